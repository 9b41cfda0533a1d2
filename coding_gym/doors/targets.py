"""Where doors lead to, as users say it."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, urlsplit

from coding_gym.doors.egress import Egress
from coding_gym.errors import ConfigurationError
from coding_gym_server.protocol.doors import MAX_DOORS, MAX_PORT

__all__ = [
    "DoorFunction",
    "DoorRequest",
    "DoorResponse",
    "DoorTarget",
    "ServerTarget",
    "check_doors",
    "check_port",
    "check_target",
]

_PORTS = {"http": 80, "https": 443, "tcp": None}
_HTTP = ("http", "https")


@dataclass(frozen=True)
class ServerTarget:
    """A server that a door leads to.

    Attributes:
        url: ``http://HOST:PORT``, ``https://HOST:PORT``, each maybe with a path that all requests begin with, or
            ``tcp://HOST:PORT``, whose bytes are passed on as they are.
        headers: Headers that replace those of requests, such as ``Authorization``: a key that programs do not get to know.

    Raises:
        ConfigurationError: If the URL is another one.
    """

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        parts = self.parts
        if not parts.hostname or self.port is None or parts.query or parts.fragment or parts.username is not None:
            message = f"Expected a door to lead to http://HOST:PORT, https://HOST or tcp://HOST:PORT, got {self.url!r:.200}"
            raise ConfigurationError(message)
        if not self.is_http and (parts.path or self.headers):
            message = f"Expected only a host and a port for a door of TCP, got {self.url!r:.200} and headers {[*self.headers]}"
            raise ConfigurationError(message)

    @functools.cached_property
    def parts(self) -> SplitResult:
        """The parts of the URL."""
        return urlsplit(self.url)

    @functools.cached_property
    def port(self) -> int | None:
        """The port; None if the URL has no valid one."""
        try:
            return self.parts.port or _PORTS.get(self.parts.scheme)
        except ValueError:
            return None

    @property
    def is_http(self) -> bool:
        """Whether it speaks HTTP."""
        return self.parts.scheme in _HTTP


@dataclass(frozen=True)
class DoorRequest:
    """An HTTP request of a session.

    Attributes:
        port: Port of the door.
        step: The step of the episode in which it came; see ``Exchange.step``.
        method: Its method.
        path: Its path, with the query.
        headers: Its headers, with names in lower case; several values of one name are joined by commas.
        body: Its body, at most 64 MiB.
    """

    port: int
    step: int
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """Return the JSON document of the body.

        Raises:
            ValueError: If it is not JSON.
        """
        return json.loads(self.body)


@dataclass(frozen=True)
class DoorResponse:
    """The response to an HTTP request of a session.

    Attributes:
        body: Text, bytes, or an iterator, or asynchronous iterator, of either, whose parts are sent as they come; or any other
            object, which is sent as JSON.
        status: The status code.
        headers: Headers. ``content-type`` follows from the body unless it is among them.
    """

    body: Any = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


DoorFunction = Callable[[DoorRequest], Any]
"""Answers a request: with a ``DoorResponse``, or its body. It is called in a thread of its own. A coroutine function runs in
the event loop of all doors instead, and must not block."""

DoorTarget = str | ServerTarget | Egress | DoorFunction
"""Where a door leads to: the URL of a server, a ``ServerTarget``, a function, or a proxy with the rules of an ``Egress``."""


def check_target(target: Any) -> None:
    """Check where a door leads to.

    Raises:
        ConfigurationError: If it can be no ``DoorTarget``.
    """
    if isinstance(target, str):
        ServerTarget(target)
    elif not isinstance(target, (ServerTarget, Egress)) and not callable(target):
        message = f"Expected a door to lead to a URL, a ServerTarget, an Egress or a function, got {target!r:.200}"
        raise ConfigurationError(message)


def check_doors(found: Any) -> None:
    """Check a mapping of ports to where they lead to.

    Raises:
        ConfigurationError: If it is invalid.
    """
    if not isinstance(found, Mapping):
        message = f"Expected doors= to map ports to where they lead to, got {found!r:.200}"
        raise ConfigurationError(message)
    if len(found) > MAX_DOORS:
        message = f"Expected at most {MAX_DOORS} doors, got {len(found)}"
        raise ConfigurationError(message)
    for port, target in found.items():
        check_port(port)
        check_target(target)


def check_port(port: Any) -> int:
    """Return the port of a door.

    Raises:
        ConfigurationError: If it is none.
    """
    if isinstance(port, bool) or not isinstance(port, int) or not 0 < port <= MAX_PORT:
        message = f"Expected the port of a door, from 1 to {MAX_PORT}, got {port!r:.200}"
        raise ConfigurationError(message)
    return port
