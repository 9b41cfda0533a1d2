"""Connections of clients, which responses can reset."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from contextvars import ContextVar
from typing import Any

from coding_gym_server.server.api.admission import LobbyProtocol

__all__ = ["ClientConnection", "reset_connection"]

_transport: ContextVar[asyncio.Transport] = ContextVar("transport")
"""The connection of a request: uvicorn starts the application's task while it receives the request's data."""

_DISCARD = struct.pack("ii", 1, 0)


class ClientConnection(asyncio.Protocol):
    """uvicorn's HTTP protocol, in whose requests ``reset_connection`` works.

    Args:
        options: Arguments of uvicorn's protocol.
    """

    def __init__(self, **options: Any) -> None:
        self._protocol = LobbyProtocol(**options)
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport
        self._protocol.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        _transport.set(self._transport)
        self._protocol.data_received(data)

    def eof_received(self) -> None:
        self._protocol.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._protocol.connection_lost(exc)

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()


def reset_connection() -> None:
    """Reset the connection of the current request, if it is a ``ClientConnection``."""
    transport = _transport.get(None)
    if transport is not None:
        # It may have been closed already.
        with contextlib.suppress(OSError):
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _DISCARD)
        transport.abort()
