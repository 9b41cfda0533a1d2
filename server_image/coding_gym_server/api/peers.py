"""Who may connect at all: nobody from inside the sandbox."""

from __future__ import annotations

import asyncio
import os
import socket
import struct

from coding_gym_server.workers.process_table import is_below

__all__ = ["comes_from_inside"]

_CREDENTIALS = struct.Struct("3i")


def comes_from_inside(transport: asyncio.Transport) -> bool:
    """Say whether a connection over a Unix socket was made by one of the server's own descendants.

    Landlock does not keep a session from connecting to a socket whose path it knows; the kernel tells whose connection it is
    (see ``SO_PEERCRED`` in unix(7)).
    """
    connection = transport.get_extra_info("socket")
    if connection.family != socket.AF_UNIX:
        return False
    pid, _, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    # The kernel says 0 of a process in a pid namespace further up: outside of the container.
    return pid != 0 and is_below(pid, os.getpid())
