"""X authority files with a cookie, for X clients and the X server."""

from __future__ import annotations

import os
import socket
import struct
from pathlib import Path

__all__ = ["write_authority"]

_PROTOCOL = b"MIT-MAGIC-COOKIE-1"
_FAMILY_LOCAL = 256
_FAMILY_WILD = 0xFFFF
_ANY_DISPLAY = b""


def write_authority(path: Path, cookie: bytes) -> None:
    """Write a file for ``XAUTHORITY`` and ``Xvfb -auth`` that only its owner can read.

    The entries match every display number, so the file can be written before the number is known. libX11 uses the wildcard
    entry, which is independent of the host's name; python-xlib supports only entries for a host name.

    Args:
        path: The file to write.
        cookie: The ``MIT-MAGIC-COOKIE-1`` value.
    """
    entries = (
        _entry(_FAMILY_LOCAL, socket.gethostname().encode(), cookie),
        _entry(_FAMILY_WILD, b"", cookie),
    )
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:
        file.write(b"".join(entries))


def _entry(family: int, address: bytes, cookie: bytes) -> bytes:
    fields = (address, _ANY_DISPLAY, _PROTOCOL, cookie)
    return struct.pack(">H", family) + b"".join(struct.pack(">H", len(field)) + field for field in fields)
