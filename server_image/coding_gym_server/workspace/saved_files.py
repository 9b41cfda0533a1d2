"""Copies of the files of a session, made by the server while code of the session may interfere."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path

from coding_gym_server.workspace import directory as workspace

__all__ = ["SavedFiles"]

_COPY_BYTES = 1 << 24
_MAX_DEPTH = 100
"""Maximum number of nested directories that are copied: each level has two open descriptors."""

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OWN_ENTRIES = frozenset({".X11-unix", ".Xauthority", "Xauthority"})
"""Files of the session's screen, which belong to the screen that it has."""


class SavedFiles:
    """Copy of directories: files, hard links, symbolic links, FIFOs and sockets, with modes, times and extended attributes.

    Args:
        store: Directory in which the copy is made. It must be on the file system whose limits apply to the session.
        directories: The directories to copy, by the name of their copy.
        own: Names of the sandbox's own entries, which are neither copied nor removed, by the same names.

    Attributes:
        size: Size of the copied files in bytes.
    """

    def __init__(self, store: Path, directories: Mapping[str, Path], own: Mapping[str, Collection[str]]) -> None:
        self._own_entries = {name: _OWN_ENTRIES.union(own.get(name, ())) for name in directories}
        self._copy = store / secrets.token_hex(16)
        self._directories = dict(directories)
        self._exists = False
        self.size = 0

    @property
    def are_bare(self) -> bool:
        """Whether there are neither files to copy or remove, nor a copy."""
        return not self._exists and not any(_names(path, self._own(name)) for name, path in self._directories.items())

    def save(self) -> None:
        """Make the copy. Blocking.

        Raises:
            OSError: If it cannot be made, for example because the disk is full; nothing is left.
        """
        self._copy.parent.mkdir(mode=0o700, exist_ok=True)
        self._copy.mkdir(mode=0o700)
        self._exists = True
        try:
            for name, path in self._directories.items():
                (self._copy / name).mkdir(mode=0o700)
                self.size += _copy_tree(path, self._copy / name, without=self._own(name))
        except BaseException:
            self.remove()
            raise

    def _own(self, directory: str) -> frozenset[str]:
        return self._own_entries[directory]

    @property
    def exist(self) -> bool:
        """Whether there is a copy; if not, there were no files."""
        return self._exists

    def restore(self, into: Callable[[str], Path] | None = None) -> None:
        """Replace the content of directories by the copy. Blocking.

        Args:
            into: Returns the directory of a name; None for those that were copied.

        Raises:
            OSError: If something cannot be removed or written.
        """
        for name, path in self._directories.items():
            target = path if into is None else into(name)
            workspace.clear(target, keep=self._own(name))
            if self._exists:
                _copy_tree(self._copy / name, target)

    def remove(self) -> None:
        """Delete the copy. Blocking."""
        if self._exists:
            self._exists = False
            workspace.clear(self._copy)
            self._copy.rmdir()


def _names(path: Path, without: Collection[str]) -> list[str]:
    with os.scandir(path) as entries:
        return [entry.name for entry in entries if entry.name not in without]


def _copy_tree(source: Path, target: Path, *, without: Iterable[str] = ()) -> int:
    """Copy the content of a directory without following links; return the size of the files in bytes."""
    links: dict[tuple[int, int], str] = {}
    root = os.open(target, _DIRECTORY)
    try:
        with _opened(source) as opened:
            return _copy_entries(opened, root, root, "", links, frozenset(without))
    finally:
        os.close(root)


def _copy_entries(
    source: int, target: int, root: int, prefix: str, links: dict[tuple[int, int], str], without: frozenset[str]
) -> int:
    size = 0
    for name in os.listdir(source):
        if name in without:
            continue
        status = os.stat(name, dir_fd=source, follow_symlinks=False)
        path = f"{prefix}{name}"
        identity = (status.st_dev, status.st_ino)
        if stat.S_ISDIR(status.st_mode):
            size += _copy_directory(name, status, source, target, root, path, links)
        elif identity in links:
            os.link(links[identity], name, src_dir_fd=root, dst_dir_fd=target, follow_symlinks=False)
        elif stat.S_ISLNK(status.st_mode):
            os.symlink(os.readlink(name, dir_fd=source), name, dir_fd=target)
        elif stat.S_ISFIFO(status.st_mode) or stat.S_ISSOCK(status.st_mode):
            os.mknod(name, status.st_mode, dir_fd=target)
            os.chmod(name, stat.S_IMODE(status.st_mode), dir_fd=target)
        elif stat.S_ISREG(status.st_mode):
            size += _copy_file(name, status, source, target)
        else:
            continue
        if status.st_nlink > 1 and not stat.S_ISDIR(status.st_mode):
            links.setdefault(identity, path)
        os.utime(name, ns=(status.st_atime_ns, status.st_mtime_ns), dir_fd=target, follow_symlinks=False)
    return size


def _copy_directory(
    name: str, status: os.stat_result, source: int, target: int, root: int, path: str, links: dict[tuple[int, int], str]
) -> int:
    if path.count("/") >= _MAX_DEPTH:
        raise OSError(errno.ELOOP, f"directories are nested more than {_MAX_DEPTH} levels deep")
    os.mkdir(name, 0o700, dir_fd=target)
    with _readable(name, status, source, _DIRECTORY) as opened:
        created = os.open(name, _DIRECTORY, dir_fd=target)
        try:
            size = _copy_entries(opened, created, root, f"{path}/", links, frozenset())
            _copy_attributes(opened, created)
            os.fchmod(created, stat.S_IMODE(status.st_mode))
        finally:
            os.close(created)
    return size


def _copy_file(name: str, status: os.stat_result, source: int, target: int) -> int:
    with _readable(name, status, source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC) as opened:
        created = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=target)
        try:
            os.ftruncate(created, status.st_size)
            size = sum(_copy_range(opened, created, begin, end) for begin, end in _data_ranges(opened, status.st_size))
            _copy_attributes(opened, created)
            os.fchmod(created, stat.S_IMODE(status.st_mode))
        finally:
            os.close(created)
    return size


def _copy_attributes(source: int, target: int) -> None:
    """Copy the extended attributes that programs have set."""
    try:
        names = os.listxattr(source)
    except OSError as error:
        if error.errno != errno.ENOTSUP:
            raise
        return
    for name in names:
        if name.startswith("user."):
            os.setxattr(target, name, os.getxattr(source, name))


def _data_ranges(file: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges of a file that are not holes."""
    end = 0
    while end < size:
        try:
            begin = os.lseek(file, end, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            return
        end = min(os.lseek(file, begin, os.SEEK_HOLE), size)
        yield begin, end


def _copy_range(source: int, target: int, begin: int, end: int) -> int:
    os.lseek(target, begin, os.SEEK_SET)
    offset = begin
    while offset < end and (count := os.sendfile(target, source, offset, min(end - offset, _COPY_BYTES))):
        offset += count
    return offset - begin


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    descriptor = os.open(path, _DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _readable(name: str, status: os.stat_result, directory: int, flags: int) -> Iterator[int]:
    """Open an entry, which its owner may have made unreadable for himself, and which code may replace meanwhile."""
    mode = stat.S_IMODE(status.st_mode)
    needed = mode | (stat.S_IRWXU if stat.S_ISDIR(status.st_mode) else stat.S_IRUSR)
    entry = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    try:
        if stat.S_IFMT(os.fstat(entry).st_mode) != stat.S_IFMT(status.st_mode):
            raise OSError(errno.EBUSY, "the file has been replaced while it was copied", name)
        path = f"/proc/self/fd/{entry}"
        if needed != mode:
            os.chmod(path, needed)
        opened = os.open(path, flags & ~os.O_NOFOLLOW)
    finally:
        os.close(entry)
    try:
        yield opened
    finally:
        if needed != mode:
            os.fchmod(opened, mode)
        os.close(opened)
