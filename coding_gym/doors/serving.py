"""What is behind doors: servers, functions, proxies."""

from __future__ import annotations

import functools
import ssl
from http import HTTPStatus
from typing import Any, Protocol

import h11

from coding_gym.doors.egress import Egress
from coding_gym.doors.exchanges import DoorLog, Recording
from coding_gym.doors.functions import answer_by
from coding_gym.doors.http import Forwarder, HttpConnection, end_to_end, serve_http, upgrade_of
from coding_gym.doors.proxy import EgressProxy
from coding_gym.doors.streams import DoorStream, SocketStream, relay
from coding_gym.doors.targets import DoorTarget, ServerTarget

__all__ = ["serve"]

_NAME = "The server behind this door"


class _DoorState(Protocol):
    """What a connection needs of its door.

    Attributes:
        port: Its port.
        log: Its log.
    """

    port: int
    log: DoorLog

    @property
    def step(self) -> int:
        """The present step."""


async def serve(target: DoorTarget, stream: DoorStream, door: _DoorState) -> None:
    """Serve a connection of a session to its end.

    Args:
        target: Where the door leads to.
        stream: The connection.
        door: The door.

    Raises:
        OSError: If it is broken.
    """
    if isinstance(target, str):
        target = ServerTarget(target)
    if isinstance(target, ServerTarget) and not target.is_http:
        await _relay_to(target, stream)
    elif isinstance(target, (ServerTarget, Egress)):
        forwarder = Forwarder(stream)
        visit = (
            _ServerVisit(target, forwarder, door)
            if isinstance(target, ServerTarget)
            else EgressProxy(target, stream, forwarder, lambda request: _record(door, request))
        )
        try:
            await serve_http(stream, visit.answer)
        finally:
            forwarder.close()
    else:
        function = target

        async def answer(request: h11.Request, client: HttpConnection) -> None:
            await answer_by(function, door.port, door.step, door.log, request, client)

        await serve_http(stream, answer)


async def _relay_to(target: ServerTarget, stream: DoorStream) -> None:
    server = await _connect(target)
    try:
        await relay(stream, server)
    finally:
        server.abort()


async def _connect(target: ServerTarget) -> SocketStream:
    assert target.parts.hostname is not None
    assert target.port is not None
    options: dict[str, Any] = {"ssl": ssl.create_default_context()} if target.parts.scheme == "https" else {}
    return await SocketStream.connect(target.parts.hostname, target.port, **options)


class _ServerVisit:
    """One connection of a session to a server of HTTP.

    Args:
        target: The server.
        forwarder: Passes on the requests.
        door: Its door.
    """

    def __init__(self, target: ServerTarget, forwarder: Forwarder, door: _DoorState) -> None:
        self._target = target
        self._forwarder = forwarder
        self._door = door
        headers = {"host": target.parts.netloc, **target.headers}
        self._replaced = {name.lower().encode("latin-1"): value.encode("latin-1") for name, value in headers.items()}
        self._prefix = target.parts.path.rstrip("/").encode()

    async def answer(self, request: h11.Request, client: HttpConnection) -> None:
        """Let the server answer a request."""
        recording = _record(self._door, request)
        if request.method == b"CONNECT":
            recording.end("a door is no proxy")
            await client.respond(HTTPStatus.METHOD_NOT_ALLOWED, "This door leads to one server: it is no proxy.\n")
            return
        headers = [header for header in end_to_end(request.headers) if header[0] not in self._replaced]
        head = h11.Request(
            method=request.method,
            target=self._prefix + _origin_form(request.target),
            headers=[*self._replaced.items(), *headers, *upgrade_of(request.headers)],
        )
        connect = functools.partial(_connect, self._target)
        await self._forwarder.forward(client, head, recording, name=_NAME, connect=connect)


def _record(door: _DoorState, request: h11.Request) -> Recording:
    """Add a request to the log of a door."""
    return door.log.record(door.step, request.method, request.target, list(request.headers))


def _origin_form(target: bytes) -> bytes:
    """Return the path and the query of a request's target."""
    if target.startswith(b"/"):
        return target
    _, _, rest = target.partition(b"://")
    _, slash, path = rest.partition(b"/")
    return slash + path or b"/"
