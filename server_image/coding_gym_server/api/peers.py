"""Who may connect at all: nobody from inside the sandbox."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from coding_gym_server.workers.process_table import is_below

__all__ = ["OutsidersOnly"]

_CREDENTIALS = struct.Struct("3i")


class OutsidersOnly(HttpToolsProtocol):
    """Uvicorn's HTTP protocol, which drops connections over a Unix socket that the server's own descendants make.

    Landlock does not keep a session from connecting to a socket whose path it knows; the kernel tells whose connection it is
    (see ``SO_PEERCRED`` in unix(7)).
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if _comes_from_below(transport.get_extra_info("socket")):
            transport.abort()


def _comes_from_below(connection: Any) -> bool:
    if connection.family != socket.AF_UNIX:
        return False
    pid, _, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    # The kernel says 0 of a process in a pid namespace further up: outside of the container.
    return pid != 0 and is_below(pid, os.getpid())
