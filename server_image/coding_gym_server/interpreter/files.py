"""Files of the workspace, for clients: whatever code does there meanwhile, no path leads out of it.

A path is resolved by the kernel, ``openat2(2)`` with ``RESOLVE_BENEATH``, which follows symbolic links only as long as they
stay inside. Where the kernel has no such call, links are not followed at all.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import secrets
import shutil
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

import msgspec

from coding_gym_server.grading.messages import FileContent

__all__ = ["Entry", "FilesError", "NotFoundError", "Upload", "Workspace", "write_files"]

_OPENAT2 = 437
_RESOLVE_NO_MAGICLINKS, _RESOLVE_BENEATH = 0x02, 0x08
_libc = ctypes.CDLL(None, use_errno=True)


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


class FilesError(ValueError):
    """A path that a client gave cannot be used so."""


class NotFoundError(FilesError):
    """There is nothing at a path."""

    def __init__(self, path: str) -> None:
        super().__init__(f"Not found: {path}")


class Entry(msgspec.Struct, kw_only=True):
    """One entry of a directory.

    Attributes:
        name: Its name.
        type: ``file`` or ``dir``.
        size: Its size in bytes; None for a directory.
        modified: When it was modified, in seconds since the epoch.
    """

    name: str
    type: str
    size: int | None
    modified: float


class Workspace:
    """The directory that clients see as ``/home/user``, in which they name files by their path below it.

    Args:
        root: The directory.
        home: The absolute path that clients may call it by.
    """

    def __init__(self, root: Path, *, home: str) -> None:
        self._root = root
        self._home = PurePosixPath(home)

    def list(self, path: str) -> list[Entry]:
        """Return what is in a directory: directories first, then files, each by name.

        Raises:
            NotFoundError: There is nothing.
            FilesError: The path leads out of the workspace, or to a file.
        """
        with _closing(self._open(path, os.O_RDONLY | os.O_NONBLOCK)) as descriptor:
            if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
                message = f"Not a directory: {path}"
                raise FilesError(message)
            entries = list(_entries(descriptor))
        return sorted(entries, key=lambda entry: (entry.type != "dir", entry.name))

    def open(self, path: str) -> int:
        """Return a descriptor for reading a file.

        Raises:
            NotFoundError: There is nothing.
            FilesError: The path leads out of the workspace, or to something else than a file.
        """
        descriptor = self._open(path, os.O_RDONLY | os.O_NONBLOCK)
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISREG(mode):
            return descriptor
        os.close(descriptor)
        message = f"Is a directory: {path}" if stat.S_ISDIR(mode) else f"Not a file: {path}"
        raise FilesError(message)

    def upload(self, path: str) -> Upload:
        """Begin to write a file, in the place of what may be there; missing directories are made.

        Raises:
            FilesError: The path leads out of the workspace, or to a directory.
        """
        relative = self._relative(path)
        if not relative.parts:
            message = f"Is a directory: {path}"
            raise FilesError(message)
        descriptor = self._make_directories(relative.parent, path)
        try:
            return Upload(descriptor, relative.name, path)
        except BaseException:
            os.close(descriptor)
            raise

    def remove(self, path: str) -> None:
        """Remove a file, a link, or a directory with all that is in it.

        Raises:
            NotFoundError: There is nothing.
            FilesError: The path leads out of the workspace, or is the workspace itself.
        """
        relative = self._relative(path)
        if not relative.parts:
            message = f"Path outside workspace: {path} is the workspace itself"
            raise FilesError(message)
        with _closing(self._open(str(relative.parent), os.O_RDONLY | os.O_DIRECTORY, shown=path)) as parent:
            try:
                mode = os.stat(relative.name, dir_fd=parent, follow_symlinks=False).st_mode
                if stat.S_ISDIR(mode):
                    shutil.rmtree(relative.name, dir_fd=parent)
                else:
                    os.unlink(relative.name, dir_fd=parent)
            except FileNotFoundError:
                raise NotFoundError(path) from None

    def _relative(self, path: str) -> PurePosixPath:
        """Return a client's path relative to the workspace.

        Raises:
            FilesError: It leads out, or is no path at all.
        """
        pure = PurePosixPath(path)
        if pure.is_absolute() and pure.is_relative_to(self._home):
            pure = pure.relative_to(self._home)
        depth = 0
        for part in pure.parts:
            depth += -1 if part == ".." else 1
            if depth < 0:
                break
        if pure.is_absolute() or depth < 0 or "\0" in path:
            raise _outside(path)
        return PurePosixPath(os.path.normpath(pure)) if pure.parts else pure

    def _open(self, path: str, flags: int, *, shown: str | None = None) -> int:
        shown = path if shown is None else shown
        relative = self._relative(path)
        with _closing(os.open(self._root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)) as root:
            try:
                return _open_beneath(root, relative, flags)
            except (FileNotFoundError, NotADirectoryError):
                raise NotFoundError(shown) from None
            except OSError as error:
                raise _explained(error, shown) from error

    def _make_directories(self, directory: PurePosixPath, shown: str) -> int:
        """Return a descriptor of a directory, made if it is missing."""
        with _closing(os.open(self._root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)) as root:
            try:
                made = PurePosixPath()
                for part in directory.parts:
                    with (
                        _closing(_open_beneath(root, made, os.O_PATH | os.O_DIRECTORY)) as parent,
                        contextlib.suppress(FileExistsError),
                    ):
                        os.mkdir(part, dir_fd=parent)
                    made /= part
                return _open_beneath(root, made, os.O_RDONLY | os.O_DIRECTORY)
            except OSError as error:
                raise _explained(error, shown) from error


class Upload:
    """A file that is being written: it appears when it is complete, and not at all if it never is.

    Args:
        directory: A descriptor of where it will be; the upload owns it from now on.
        name: Its name there.
        path: The client's path, for messages.
    """

    def __init__(self, directory: int, name: str, path: str) -> None:
        self._directory = directory
        self._name = name
        self._path = path
        self._temporary = f".{secrets.token_hex(8)}.upload"
        try:
            self.is_new = not self._check_target()
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            self._descriptor = os.open(self._temporary, flags, 0o644, dir_fd=directory)
        except OSError as error:
            raise _explained(error, path) from error

    def write(self, data: bytes) -> None:
        """Write the next piece.

        Raises:
            FilesError: There is no room.
        """
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(self._descriptor, view) :]
        except OSError as error:
            raise _explained(error, self._path) from error

    def finish(self) -> None:
        """Put the file in its place."""
        os.close(self._descriptor)
        self._descriptor = -1
        try:
            os.rename(self._temporary, self._name, src_dir_fd=self._directory, dst_dir_fd=self._directory)
        except OSError as error:
            raise _explained(error, self._path) from error

    def close(self) -> None:
        """Drop what has not been finished."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
            os.unlink(self._temporary, dir_fd=self._directory)
        if self._directory >= 0:
            os.close(self._directory)
            self._directory = -1

    def _check_target(self) -> bool:
        """Say whether there is a file already.

        Raises:
            FilesError: There is a directory.
        """
        try:
            mode = os.stat(self._name, dir_fd=self._directory, follow_symlinks=False).st_mode
        except FileNotFoundError:
            return False
        if stat.S_ISDIR(mode):
            message = f"Is a directory: {self._path}"
            raise FilesError(message)
        return True


def write_files(directory: Path, files: Mapping[str, str | FileContent]) -> None:
    """Write files below a directory.

    Raises:
        FilesError: One of them cannot be written.
    """
    target = Workspace(directory, home=str(directory))
    for path, content in files.items():
        with contextlib.closing(target.upload(path)) as upload:
            upload.write(content.encode() if isinstance(content, str) else content.base64)
            upload.finish()


class _closing:
    """Closes a descriptor at the end of a block."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __enter__(self) -> int:
        return self._descriptor

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)


def _entries(directory: int) -> Iterator[Entry]:
    with os.scandir(directory) as found:
        for entry in found:
            try:
                status = entry.stat()
            except OSError:
                # A link to nowhere, or gone meanwhile.
                try:
                    status = entry.stat(follow_symlinks=False)
                except OSError:
                    continue
            is_directory = stat.S_ISDIR(status.st_mode)
            name = entry.name.encode(errors="surrogateescape").decode(errors="replace")
            kind = "dir" if is_directory else "file"
            yield Entry(name=name, type=kind, size=None if is_directory else status.st_size, modified=status.st_mtime)


def _open_beneath(root: int, relative: PurePosixPath, flags: int) -> int:
    """Open a path below a directory, whatever links there are on the way."""
    path = os.fsencode(str(relative))
    how = _OpenHow(flags | os.O_CLOEXEC, 0, _RESOLVE_BENEATH | _RESOLVE_NO_MAGICLINKS)
    descriptor: int = _libc.syscall(_OPENAT2, root, path, ctypes.byref(how), ctypes.sizeof(how))
    if descriptor >= 0:
        return descriptor
    error = ctypes.get_errno()
    if error not in (errno.ENOSYS, errno.EPERM):
        raise OSError(error, os.strerror(error), str(relative))
    return _open_step_by_step(root, relative, flags)


def _open_step_by_step(root: int, relative: PurePosixPath, flags: int) -> int:
    descriptor = os.dup(root)
    try:
        for part in relative.parts[:-1]:
            step = os.open(part, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = step
        return os.open(relative.name or ".", flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=descriptor)
    finally:
        os.close(descriptor)


def _outside(path: str) -> FilesError:
    return FilesError(f"Path outside workspace: {path}")


def _explained(error: OSError, path: str) -> FilesError:
    match error.errno:
        case errno.EXDEV:
            return _outside(path)
        case errno.ENOENT:
            return NotFoundError(path)
        case errno.ENXIO:
            return FilesError(f"Not a file: {path}")
    return FilesError(f"{error.strerror}: {path}")
