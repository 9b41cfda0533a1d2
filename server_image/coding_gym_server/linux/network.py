"""The loopback interface of a new network namespace (see netdevice(7))."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import struct

__all__ = ["bring_up_loopback", "has_only_loopback", "open_low_ports"]

_SIOCSIFFLAGS = 0x8914
_IFF_UP = 1
_FIRST_UNPRIVILEGED_PORT = "/proc/sys/net/ipv4/ip_unprivileged_port_start"


def bring_up_loopback() -> None:
    """Enable 127.0.0.1 and ::1, which are down in a new namespace.

    Raises:
        OSError: If the process has no capabilities over the namespace.
    """
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP))


def has_only_loopback() -> bool:
    """Return whether the calling process's network namespace leads nowhere."""
    return all(name == "lo" for _, name in socket.if_nameindex())


def open_low_ports() -> None:
    """Let any user listen on ports below 1024 of the calling process's network namespace, as in a container of an engine."""
    # Not all kernels have it.
    with contextlib.suppress(OSError):
        descriptor = os.open(_FIRST_UNPRIVILEGED_PORT, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(descriptor, b"0")
        finally:
            os.close(descriptor)
