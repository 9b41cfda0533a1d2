"""Listening sockets of displays, by which the programs of a session find them."""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import socket
from pathlib import Path

__all__ = ["listen", "socket_name"]

_FIRST_NUMBER = 100
_NUMBERS = 2_000_000_000
_BACKLOG = 64


def socket_name(number: int) -> str:
    """Return the name of the socket of a display."""
    return f"X{number}"


def listen(directory: Path, *, secret: bool) -> tuple[socket.socket, int]:
    """Create a listening socket with an unused display number; return it and the number.

    Args:
        directory: Directory of the session's display sockets, which its code may replace.
        secret: Whether to choose a random number: X clients connect first to the abstract socket with that number, which others
            in the same network can create.

    Raises:
        OSError: If the directory is not one, or a socket cannot be created in it.
    """
    is_new = False
    with contextlib.suppress(FileExistsError):
        os.mkdir(directory)
        is_new = True
    descriptor = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    opened = Path(f"/proc/self/fd/{descriptor}")
    try:
        if is_new:
            opened.chmod(0o1777)
        return _listen(opened, secret=secret)
    finally:
        os.close(descriptor)


def _listen(directory: Path, *, secret: bool) -> tuple[socket.socket, int]:
    listener = socket.socket(socket.AF_UNIX)
    # The kernel reveals the name that a socket was bound to, but not the name that it was renamed to.
    bound = directory / secrets.token_hex(8)
    try:
        listener.bind(str(bound))
        listener.listen(_BACKLOG)
        listener.setblocking(False)
        offsets = iter(lambda: secrets.randbelow(_NUMBERS), None) if secret else itertools.count()
        numbers = (_FIRST_NUMBER + offset for offset in offsets)
        number = next(number for number in numbers if not os.path.lexists(directory / socket_name(number)))
        bound.rename(directory / socket_name(number))
    except BaseException:
        listener.close()
        bound.unlink(missing_ok=True)
        raise
    return listener, number
