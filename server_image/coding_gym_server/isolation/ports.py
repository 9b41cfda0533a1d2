"""TCP ports that belong to one session."""

from __future__ import annotations

import socket

__all__ = ["reserve_ports"]


def reserve_ports(count: int) -> list[socket.socket]:
    """Return sockets that keep as many free ports of 127.0.0.1 from being given to anybody else for as long as they are open.

    They never listen, and so whoever knows the port can still bind it with ``SO_REUSEADDR``, as servers do.

    Raises:
        OSError: There are no free ports, or no sockets.
    """
    reserved = []
    for _ in range(count):
        reservation = socket.socket()
        reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reservation.bind(("127.0.0.1", 0))
        reserved.append(reservation)
    return reserved
