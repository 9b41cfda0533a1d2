"""Connections of clients, which responses can reset."""

from __future__ import annotations

import contextlib
import socket
import struct

from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

__all__ = ["ClientConnection", "reset_connection"]

_EXTENSION = "coding_gym.connection"
_DISCARD = struct.pack("ii", 1, 0)


class ClientConnection(HttpToolsProtocol):
    """uvicorn's connection, to which each request has access."""

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["extensions"] = {_EXTENSION: {"transport": self.transport}}


def reset_connection(scope: Scope) -> None:
    """Reset the connection of a request, if it is a ``ClientConnection``."""
    transport = scope.get("extensions", {}).get(_EXTENSION, {}).get("transport")
    if transport is not None:
        # It may have been closed already.
        with contextlib.suppress(OSError):
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _DISCARD)
        transport.abort()
