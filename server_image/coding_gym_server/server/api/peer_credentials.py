"""Peer-credential check, which rejects connections from inside the sandbox."""

from __future__ import annotations

import socket
import struct

from coding_gym_server.linux.procfs import is_below

__all__ = ["is_from_session"]

_CREDENTIALS = struct.Struct("3i")


def is_from_session(connection: socket.socket, root: int) -> bool:
    """Return whether a connection over a Unix socket was made by a descendant of a process.

    Landlock does not prevent a session from connecting to a socket whose path it knows; the operating system kernel reports
    the process that connected (see ``SO_PEERCRED`` in unix(7)).

    Args:
        connection: The connection.
        root: Process id of the common ancestor of all sessions.
    """
    if connection.family != socket.AF_UNIX:
        return False
    pid, _, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    # The kernel reports 0 for a process in an ancestor PID namespace: outside the container.
    return pid != 0 and is_below(pid, root)
