"""TCP sockets that commands listen on."""

from __future__ import annotations

import errno
import socket

from coding_gym.errors import ConfigurationError

__all__ = ["listen"]


def listen(host: str, port: int) -> socket.socket:
    """Return a TCP socket that is bound to an address, and does not listen yet.

    Args:
        host: Name or address of an interface of this machine.
        port: The port, 0 for a free one.

    Raises:
        ConfigurationError: If the port is in use, or the address is not available.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except (OSError, UnicodeError) as error:
        message = f"{host!r} is not an address of this machine: {error}. Use 127.0.0.1, or 0.0.0.0 for all interfaces"
        raise ConfigurationError(message) from None
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        # Two sockets that reuse an address can both be bound, but not both listen.
        listener.listen(0)
    except OSError as error:
        listener.close()
        raise ConfigurationError(_refusal(host, port, error)) from None
    return listener


def _refusal(host: str, port: int, error: OSError) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            return f"Port {port} of {host} is in use: stop what listens there, or choose another, or 0 for a free one"
        case errno.EACCES:
            return f"Port {port} of {host} is reserved for root: choose one above 1023, or 0 for a free one"
        case _:
            return f"Cannot listen on port {port} of {host}: {error.strerror}. Use 127.0.0.1, or 0.0.0.0 for all interfaces"
