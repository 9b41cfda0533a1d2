"""Cookie files, as ``xauth`` writes them, for the clients of an X server and for the server itself."""

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
    """Write a file for ``XAUTHORITY`` and ``Xvfb -auth``, which only its owner can read.

    It holds for every display number, so it can be written before the number is known. libX11 takes the entry for any host,
    even if the host's name changes; python-xlib knows only entries for a host by its name.
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
