"""Directory of the sockets of this user's trainers."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import stat
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path

__all__ = ["connect", "is_own_process", "listen", "prepare_directory", "socket_paths", "watching_directory"]

_NAME = "watch"
_SUFFIX = ".sock"
_CREDENTIALS = struct.Struct("3i")


def watching_directory() -> Path:
    """Return the directory, which need not exist: that of sandboxes' sockets, too, in XDG_RUNTIME_DIR or /tmp."""
    parent = os.environ.get("XDG_RUNTIME_DIR")
    if not parent or not os.path.isdir(parent):
        parent = tempfile.gettempdir()
    return Path(parent) / f"coding-gym-{os.getuid()}" / _NAME


def prepare_directory() -> Path:
    """Create the directory if necessary, and return it.

    Raises:
        OSError: If it cannot be created, or others could access it.
    """
    directory = watching_directory()
    for level in (directory.parent, directory):
        with contextlib.suppress(FileExistsError):
            level.mkdir(mode=0o700)
        check_private(level)
    return directory


def check_private(directory: Path) -> None:
    """Raise if others can access a directory, or it belongs to another user.

    Raises:
        PermissionError: If that is so.
    """
    status = directory.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        message = f"Expected {directory} to be a private directory of this user (mode 0700); remove it, or set XDG_RUNTIME_DIR"
        raise PermissionError(message)


def listen(*, backlog: int) -> tuple[Path, socket.socket]:
    """Create a listening socket for this process in the directory.

    Args:
        backlog: Maximum number of pending connections.

    Returns:
        The path of the socket, and the socket.

    Raises:
        OSError: If the directory is not private or cannot be created, or if the socket cannot be created.
    """
    # The random part distinguishes processes of several containers.
    path = prepare_directory() / f"{os.getpid()}-{secrets.token_hex(3)}{_SUFFIX}"
    # Renamed once it listens, because readers remove sockets that refuse connections.
    created = path.with_suffix(".new")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(os.fspath(created))
        listener.listen(backlog)
        created.rename(path)
    except BaseException:
        listener.close()
        created.unlink(missing_ok=True)
        raise
    return path, listener


def socket_paths() -> Iterator[Path]:
    """Yield the paths of the sockets of this user, some of which may be left over; none if others could access them."""
    directory = watching_directory()
    try:
        for level in (directory.parent, directory):
            check_private(level)
        yield from sorted(directory.glob(f"*{_SUFFIX}"))
    except OSError:
        return


def connect(path: Path, *, timeout: float) -> socket.socket | None:
    """Connect to a trainer; return None, and remove the socket, if the trainer has ended.

    Args:
        path: Path of its socket.
        timeout: Timeout of the connection's operations in seconds.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(timeout)
    try:
        connection.connect(os.fspath(path))
    except ConnectionRefusedError:
        # Nobody listens, as after kill -9.
        connection.close()
        with contextlib.suppress(OSError):
            if stat.S_ISSOCK(path.lstat().st_mode):
                path.unlink()
        return None
    except OSError:
        connection.close()
        return None
    if not is_own_process(connection):
        connection.close()
        return None
    return connection


def is_own_process(connection: socket.socket) -> bool:
    """Return whether the other end is a process of this user."""
    _, uid, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return bool(uid == os.getuid())
