"""Reservation of TCP ports for a session."""

from __future__ import annotations

import socket

__all__ = ["reserve_ports"]


def reserve_ports(count: int) -> list[socket.socket]:
    """Reserve free ports of 127.0.0.1, which the kernel does not assign again while the returned sockets are open.

    The sockets never listen, so a server that knows the port can still bind it with ``SO_REUSEADDR``.

    Args:
        count: Number of ports.

    Returns:
        One bound socket per port.

    Raises:
        OSError: If no port or no socket is available.
    """
    reserved = []
    for _ in range(count):
        reservation = socket.socket()
        reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reservation.bind(("127.0.0.1", 0))
        reserved.append(reservation)
    return reserved
