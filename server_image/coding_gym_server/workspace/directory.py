"""Directories of sessions: their repair and removal, whatever code of a session has made of them."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Collection
from pathlib import Path

__all__ = [
    "TEMPORARY",
    "WORK",
    "clear",
    "remove_tree",
    "repair",
    "reset_attributes",
]

WORK = "work"
TEMPORARY = "tmp"
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def reset_attributes(directory: str) -> None:
    """Remove the extended attributes of a directory and reset its times.

    Raises:
        OSError: If an attribute cannot be removed.
    """
    for attribute in os.listxattr(directory):
        os.removexattr(directory, attribute)
    os.utime(directory)


def repair(directory: str, mode: int) -> None:
    """Create a directory if it is missing, and reset its mode. Another file in its place, such as a link, is removed.

    Raises:
        OSError: If it cannot be created, for example because the disk is full.
    """
    with contextlib.suppress(FileNotFoundError):
        status = os.lstat(directory)
        if stat.S_ISDIR(status.st_mode):
            if status.st_uid == os.geteuid():
                os.chmod(directory, mode)
            return
        os.unlink(directory)
    os.mkdir(directory)
    os.chmod(directory, mode)


def clear(directory: Path, *, keep: Collection[str] = ()) -> None:
    """Remove the content of a directory, regardless of permissions and nesting depth, and without following links.

    Args:
        directory: The directory.
        keep: Names of entries that remain.

    Raises:
        OSError: If an entry cannot be removed.
    """
    top = os.open(directory, _OPEN)
    try:
        _clear(top, keep)
    finally:
        os.close(top)


def remove_tree(name: str, parent: int) -> None:
    """Remove a directory with its content; see ``clear``.

    Args:
        name: Its name.
        parent: Descriptor of its parent directory.

    Raises:
        OSError: If an entry cannot be removed.
    """
    _unlock(name, parent)
    top = os.open(name, _OPEN, dir_fd=parent)
    try:
        _clear(top)
    finally:
        os.close(top)
    os.rmdir(name, dir_fd=parent)


def _clear(top: int, keep: Collection[str] = ()) -> None:
    # Instead of being descended into, directories move up: two descriptors suffice for any depth.
    full = _remove_entries(top, top, keep)
    while full:
        name = full.pop()
        directory = os.open(name, _OPEN, dir_fd=top)
        try:
            full += _remove_entries(directory, top)
        finally:
            os.close(directory)
        os.rmdir(name, dir_fd=top)


def _remove_entries(directory: int, top: int, keep: Collection[str] = ()) -> list[str]:
    """Remove what a directory contains except directories with content; return the names that these get in ``top``."""
    with os.scandir(directory) as found:
        entries = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in found if entry.name not in keep]
    full = []
    for name, is_directory in entries:
        if not is_directory:
            os.unlink(name, dir_fd=directory)
        elif not _remove_if_empty(name, directory):
            _unlock(name, directory)
            moved = name
            if directory != top:
                moved = secrets.token_hex(16)
                os.rename(name, moved, src_dir_fd=directory, dst_dir_fd=top)
            full.append(moved)
    return full


def _remove_if_empty(name: str, parent: int) -> bool:
    try:
        os.rmdir(name, dir_fd=parent)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        return False
    return True


def _unlock(name: str, parent: int) -> None:
    """Give the owner of a directory all permissions for it."""
    directory = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        if os.fstat(directory).st_mode & stat.S_IRWXU != stat.S_IRWXU:
            os.chmod(f"/proc/self/fd/{directory}", stat.S_IRWXU)
    finally:
        os.close(directory)
