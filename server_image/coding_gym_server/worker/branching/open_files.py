"""The open files of a worker, and whether they can be opened again."""

from __future__ import annotations

import contextlib
import fcntl
import gc
import os
import stat
import sys
from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

__all__ = ["OpenFile", "examine", "find_shared"]

_STATELESS = frozenset({"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"})
_NOT_AT_OPENING = os.O_CREAT | os.O_TRUNC | os.O_EXCL
_SQLITE_HEADER = b"SQLite format 3\0"
# User code may have replaced the builtin.
_open = open


class OpenFile(NamedTuple):
    """Open file or directory.

    Attributes:
        descriptor: Its descriptor.
        path: Its path.
        flags: The flags to open it with.
        offset: Its position in bytes.
        identity: Device and inode.
        original: An earlier descriptor of which this one is a duplicate, so that they have one position; None if there is none.
    """

    descriptor: int
    path: str
    flags: int
    offset: int
    identity: tuple[int, int]
    original: int | None = None


def examine(number: int, path: str, writable: Collection[str]) -> OpenFile | str | None:
    """Return the open file of a descriptor, or why a copy could not have it open as well; None for a device without state.

    Args:
        number: The descriptor.
        path: The path that the kernel shows for it.
        writable: Directories whose files are copied along, so that files open for writing can be opened again.
    """
    if path in _STATELESS:
        return None
    status = os.fstat(number)
    flags = fcntl.fcntl(number, fcntl.F_GETFL) & ~_NOT_AT_OPENING
    offset = os.lseek(number, 0, os.SEEK_CUR) if _has_position(status, flags) else 0
    file = OpenFile(number, path, flags, offset, (status.st_dev, status.st_ino))
    obstacle = _obstacle(file, status, writable)
    return file if obstacle is None else f"{obstacle} (descriptor {number})"


def _has_position(status: os.stat_result, flags: int) -> bool:
    return not flags & os.O_PATH and (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode))


def _obstacle(file: OpenFile, status: os.stat_result, writable: Collection[str]) -> str | None:
    path, flags = file.path, file.flags
    is_directory = stat.S_ISDIR(status.st_mode)
    if not is_directory and not stat.S_ISREG(status.st_mode):
        return path
    if path.startswith("/proc/") and path[6:7].isdigit():
        return f"{path}, which is about this process"
    if not _can_be_opened(file):
        deleted = path.removesuffix(" (deleted)")
        return f"{path}, which cannot be opened again" if path == deleted else f"the deleted file {deleted}, which is open"
    if flags & os.O_PATH:
        return None
    if flags & os.O_ACCMODE and not any(path.startswith(f"{directory}/") for directory in writable):
        return f"{path}, open for writing"
    if flags & os.O_ACCMODE == os.O_RDWR and _is_database(file.descriptor, flags):
        return f"the SQLite database {path}, which is open"
    if _is_locked(file.descriptor):
        return f"a lock on {path}"
    if is_directory and file.offset:
        return f"the directory {path}, which has been listed in part"
    return None


def find_shared(files: Iterable[OpenFile]) -> list[OpenFile]:
    """Return the files with ``original`` filled in. No other process may use them meanwhile."""
    found: list[OpenFile] = []
    candidates: dict[Any, list[int]] = {}
    for file in files:
        alike = candidates.setdefault(file[1:5], [])
        original = next((number for number in alike if _share_position(number, file)), None)
        if original is None:
            alike.append(file.descriptor)
        found.append(file._replace(original=original))
    return found


def _share_position(number: int, file: OpenFile) -> bool:
    """Return whether moving one descriptor, which is at the same position, moves the other."""
    try:
        os.lseek(number, file.offset + 1, os.SEEK_SET)
        return os.lseek(file.descriptor, 0, os.SEEK_CUR) != file.offset
    except OSError:
        # It has no position (``O_PATH``), or is a directory, whose positions are not numbers of bytes.
        return False
    finally:
        with contextlib.suppress(OSError):
            os.lseek(number, file.offset, os.SEEK_SET)


def _can_be_opened(file: OpenFile) -> bool:
    """Return whether its path still leads to it, and its mode and those of its directories permit to open it.

    It is not opened: closing it again would end the locks that the process has on it through other descriptors.
    """
    needed = {os.O_RDONLY: os.R_OK, os.O_WRONLY: os.W_OK, os.O_RDWR: os.R_OK | os.W_OK}[file.flags & os.O_ACCMODE]
    try:
        status = os.stat(file.path)
    except OSError:
        return False
    if (status.st_dev, status.st_ino) != file.identity:
        return False
    return bool(file.flags & os.O_PATH) or os.access(file.path, needed)


def _is_locked(number: int) -> bool:
    """Return whether there is a lock through a descriptor: duplicates would share it, and reopened files would lack it."""
    with _open(f"/proc/self/fdinfo/{number}", "rb", buffering=0) as file:
        return b"\nlock:" in file.readall()


def _is_database(number: int, flags: int) -> bool:
    """Return whether a file that is open for reading and writing is a database of SQLite, which notices a new inode."""
    if header := os.pread(number, len(_SQLITE_HEADER), 0):
        return header == _SQLITE_HEADER
    # A new database is empty. SQLite opens files with this flag, as ``tempfile`` does.
    return bool(flags & os.O_NOFOLLOW) and _has_connections()


def _has_connections() -> bool:
    connection: Any = getattr(sys.modules.get("sqlite3"), "Connection", None)
    return connection is not None and any(issubclass(type(each), connection) for each in gc.get_objects())
