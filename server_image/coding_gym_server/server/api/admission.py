"""Connections of clients that have not authenticated yet: a limited number of them, for a limited time.

Whoever can reach a server can open connections, each of which takes a descriptor: those that never send a request, or only
requests without the token, must not keep others out.
"""

from __future__ import annotations

import asyncio
import functools
import resource
from collections.abc import Callable, MutableMapping
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

__all__ = ["ADMISSION", "Lobby", "LobbyProtocol", "admit", "lobby"]

ADMISSION = "coding_gym.admission"
"""Name of the extension of the ASGI scope that is called when the client of the connection has authenticated."""

_SECONDS = 10.0
_FRACTION, _MAX_WAITING = 4, 4096


class Lobby:
    """The connections that wait for an authenticated request.

    Args:
        seconds: Time after which a connection is closed at the earliest, and after twice of which at the latest, unless a
            request is being answered.
    """

    def __init__(self, seconds: float = _SECONDS) -> None:
        self._seconds = seconds
        self._waiting: dict[asyncio.Transport, Callable[[], bool]] = {}
        self._old: set[asyncio.Transport] = set()
        self._timer: asyncio.TimerHandle | None = None

    def enter(self, transport: asyncio.Transport, is_busy: Callable[[], bool]) -> None:
        """Let a connection wait. If there are too many, the one that has waited for longest is closed.

        Args:
            transport: The connection.
            is_busy: Returns whether a request is being answered.
        """
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if len(self._waiting) >= min(limit // _FRACTION, _MAX_WAITING):
            self._end(next(iter(self._waiting)))
        self._waiting[transport] = is_busy
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._seconds, self._sweep)

    def leave(self, transport: asyncio.Transport) -> None:
        """Let a connection wait no more: its client has authenticated, or it is closed. Idempotent."""
        self._waiting.pop(transport, None)
        self._old.discard(transport)

    def _sweep(self) -> None:
        # After a stall of the server, what has arrived meanwhile is read before the next sweep.
        for transport in [transport for transport in self._old if not self._waiting[transport]()]:
            self._end(transport)
        self._old = set(self._waiting)
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self._sweep) if self._waiting else None

    def _end(self, transport: asyncio.Transport) -> None:
        self.leave(transport)
        transport.abort()


lobby = Lobby()
"""That of this process, whose connections share the limit of descriptors."""


class LobbyProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol, whose connections wait in the lobby until ``admit`` is called for one of their requests."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        lobby.enter(transport, self._is_answering)

    def connection_lost(self, exc: Exception | None) -> None:
        lobby.leave(self.transport)
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        extensions: dict[Any, Any] = {ADMISSION: functools.partial(lobby.leave, self.transport)}
        self.scope["extensions"] = extensions

    def _is_answering(self) -> bool:
        cycle: Any = self.cycle
        return cycle is not None and not cycle.response_complete


def admit(scope: MutableMapping[str, Any]) -> None:
    """Let the connection of a request leave the lobby: the client has authenticated."""
    if (leave := scope.get("extensions", {}).get(ADMISSION)) is not None:
        leave()
