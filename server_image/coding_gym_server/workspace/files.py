"""Client access to workspace files, safe against code that changes links concurrently.

The kernel resolves paths: ``openat2(2)`` with ``RESOLVE_BENEATH`` follows symbolic links only while they stay inside the
workspace. On kernels without ``openat2``, links are not followed.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Protocol

import msgspec

from coding_gym_server.protocol.grading import FileContent
from coding_gym_server.workspace.directory import remove_tree
from coding_gym_server.workspace.file_errors import FilesError, NotFoundError, file_error, outside_error

__all__ = ["DirectoryEntry", "FileUpload", "Files", "Upload", "Workspace", "write_all", "write_files"]

_OPENAT2 = 437
_RESOLVE_NO_MAGICLINKS, _RESOLVE_BENEATH = 0x02, 0x08
_NEW_FILE, _EXECUTABLE, _PERMISSIONS = 0o644, 0o111, 0o777
_libc = ctypes.CDLL(None, use_errno=True)


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


class DirectoryEntry(msgspec.Struct, kw_only=True):
    """Directory entry.

    Attributes:
        name: Its name.
        type: ``file`` or ``dir``.
        size: Its size in bytes, None for a directory.
        modified: Modification time in seconds since the epoch.
        is_link: Whether it is a symbolic link; the other attributes are those of its target.
        is_executable: Whether it is a file that its owner, group or others may execute.
    """

    name: str
    type: str
    size: int | None
    modified: float
    is_link: bool = False
    is_executable: bool = False


class FileUpload(Protocol):
    """Atomic write of a file; see ``Upload``."""

    is_new: bool

    def write(self, data: bytes) -> None: ...

    def finish(self) -> None: ...

    def close(self) -> None: ...


class Files(Protocol):
    """Files as clients see them; see ``Workspace``."""

    def list(self, path: str) -> list[DirectoryEntry]: ...

    def open(self, path: str) -> int: ...

    def upload(self, path: str, *, is_executable: bool = False) -> FileUpload: ...

    def remove(self, path: str) -> None: ...


class Workspace:
    """Workspace directory as clients see it; paths are relative to it.

    Args:
        root: The directory on the server; ``/`` for all files that the calling process may access, where links lead anywhere.
        home: Absolute path by which clients may refer to the directory, such as ``/home/user``.
    """

    def __init__(self, root: Path, *, home: str) -> None:
        self._root = root
        self._home = PurePosixPath(home)
        self._has_all = root == Path("/")

    def list(self, path: str) -> list[DirectoryEntry]:
        """Return the entries of a directory, sorted by name, directories first.

        Args:
            path: Path of the directory.

        Raises:
            NotFoundError: If the path does not exist.
            FilesError: If the path is outside the workspace or not a directory.
        """
        with _closing(self._open(path, os.O_RDONLY | os.O_NONBLOCK)) as descriptor:
            if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
                message = f"Not a directory: {path}"
                raise FilesError(message)
            entries = list(_entries(descriptor, self._status_of_target(path)))
        return sorted(entries, key=lambda entry: (entry.type != "dir", entry.name))

    def _status_of_target(self, directory: str) -> Callable[[str], os.stat_result]:
        """Return a function that follows a link in a directory, as far as it stays inside the workspace."""

        def follow(name: str) -> os.stat_result:
            with (
                _closing(self._open_root()) as root,
                _closing(self._open_beneath(root, self._relative(directory) / name, os.O_PATH)) as target,
            ):
                return os.fstat(target)

        return follow

    def open(self, path: str) -> int:
        """Return a descriptor for reading a file.

        Args:
            path: Path of the file.

        Raises:
            NotFoundError: If the path does not exist.
            FilesError: If the path is outside the workspace or not a regular file.
        """
        descriptor = self._open(path, os.O_RDONLY | os.O_NONBLOCK)
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISREG(mode):
            return descriptor
        os.close(descriptor)
        message = f"Is a directory: {path}" if stat.S_ISDIR(mode) else f"Not a file: {path}"
        raise FilesError(message)

    def upload(self, path: str, *, is_executable: bool = False) -> Upload:
        """Start writing a file, replacing an existing one. Missing parent directories are created.

        Args:
            path: Path of the file.
            is_executable: Whether to make it executable; an existing file keeps its permissions in any case.

        Raises:
            FilesError: If the path is outside the workspace or a directory.
        """
        relative = self._relative(path)
        if not relative.parts:
            message = f"Is a directory: {path}"
            raise FilesError(message)
        descriptor = self._make_directories(relative.parent, path)
        try:
            return Upload(descriptor, relative.name, path, is_executable=is_executable)
        except BaseException:
            os.close(descriptor)
            raise

    def remove(self, path: str) -> None:
        """Remove a file, a link, or a directory with its content.

        Args:
            path: Path of the entry.

        Raises:
            NotFoundError: If the path does not exist.
            FilesError: If the path is outside the workspace or the workspace itself, or an entry cannot be removed.
        """
        relative = self._relative(path)
        if not relative.parts:
            message = f"Path outside workspace: {path} is the workspace itself"
            raise FilesError(message)
        with _closing(self._open(str(relative.parent), os.O_RDONLY | os.O_DIRECTORY, client_path=path)) as parent:
            try:
                mode = os.stat(relative.name, dir_fd=parent, follow_symlinks=False).st_mode
                if stat.S_ISDIR(mode):
                    remove_tree(relative.name, parent)
                else:
                    os.unlink(relative.name, dir_fd=parent)
            except FileNotFoundError:
                raise NotFoundError(path) from None
            except OSError as error:
                raise file_error(error, path) from error

    def _relative(self, path: str) -> PurePosixPath:
        """Return a client's path relative to the workspace.

        Raises:
            FilesError: If the path is outside the workspace or invalid.
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
            raise outside_error(path)
        return PurePosixPath(os.path.normpath(pure)) if pure.parts else pure

    def _open(self, path: str, flags: int, *, client_path: str | None = None) -> int:
        client_path = path if client_path is None else client_path
        relative = self._relative(path)
        with _closing(self._open_root()) as root:
            try:
                return self._open_beneath(root, relative, flags)
            except (FileNotFoundError, NotADirectoryError):
                raise NotFoundError(client_path) from None
            except OSError as error:
                raise file_error(error, client_path) from error

    def _open_root(self) -> int:
        try:
            # Code of a session may replace its working directory by a link.
            return os.open(self._root, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES):
                raise file_error(error, ".") from error
            message = "The working directory has been removed or replaced"
            raise FilesError(message) from error

    def _open_beneath(self, root: int, relative: PurePosixPath, flags: int) -> int:
        """Open a path below a directory; links that lead out of it are rejected."""
        path = os.fsencode(str(relative))
        if self._has_all:
            return os.open(path, flags | os.O_CLOEXEC, dir_fd=root)
        how = _OpenHow(flags | os.O_CLOEXEC, 0, _RESOLVE_BENEATH | _RESOLVE_NO_MAGICLINKS)
        descriptor: int = _libc.syscall(_OPENAT2, root, path, ctypes.byref(how), ctypes.sizeof(how))
        if descriptor >= 0:
            return descriptor
        error = ctypes.get_errno()
        if error not in (errno.ENOSYS, errno.EPERM):
            raise OSError(error, os.strerror(error), str(relative))
        return _open_step_by_step(root, relative, flags)

    def _make_directories(self, directory: PurePosixPath, client_path: str) -> int:
        """Return a descriptor of a directory, creating missing components."""
        with _closing(self._open_root()) as root:
            try:
                made = PurePosixPath()
                for part in directory.parts:
                    with (
                        _closing(self._open_beneath(root, made, os.O_PATH | os.O_DIRECTORY)) as parent,
                        contextlib.suppress(FileExistsError),
                    ):
                        os.mkdir(part, dir_fd=parent)
                    made /= part
                return self._open_beneath(root, made, os.O_RDONLY | os.O_DIRECTORY)
            except OSError as error:
                raise file_error(error, client_path) from error


class Upload:
    """Atomic write of a file: the file becomes visible in ``finish``; ``close`` discards an unfinished one.

    Args:
        directory: Descriptor of the target directory. The upload takes ownership of it.
        name: Name of the file in the directory.
        path: The client's path, for messages.
        is_executable: Whether to make the file executable.

    Attributes:
        is_new: Whether the file did not exist before.
    """

    def __init__(self, directory: int, name: str, path: str, *, is_executable: bool) -> None:
        self._directory = directory
        self._name = name
        self._path = path
        self._temporary = f".{secrets.token_hex(8)}.upload"
        self._is_finished = False
        try:
            existing = self._mode_of_target()
            self.is_new = existing is None
            mode = _NEW_FILE if existing is None or not stat.S_ISREG(existing) else stat.S_IMODE(existing) & _PERMISSIONS
            self._mode = mode | _EXECUTABLE if is_executable else mode
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            self._descriptor = os.open(self._temporary, flags, _NEW_FILE, dir_fd=directory)
        except OSError as error:
            raise file_error(error, path) from error

    def fileno(self) -> int:
        """Return the descriptor of the new file."""
        return self._descriptor

    def write(self, data: bytes) -> None:
        """Append data.

        Args:
            data: The next chunk.

        Raises:
            FilesError: If writing fails, for example because the disk is full.
        """
        write_all(self._descriptor, data, self._path)

    def finish(self) -> None:
        """Move the complete file to its path.

        Raises:
            FilesError: If it cannot be renamed.
        """
        try:
            if self._mode != _NEW_FILE:
                os.fchmod(self._descriptor, self._mode)
            os.close(self._descriptor)
            self._descriptor = -1
            os.rename(self._temporary, self._name, src_dir_fd=self._directory, dst_dir_fd=self._directory)
            self._is_finished = True
        except OSError as error:
            raise file_error(error, self._path) from error

    def close(self) -> None:
        """Discard an unfinished file and close the descriptors. Idempotent."""
        if self._directory < 0:
            return
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        if not self._is_finished:
            # Code of the session may have removed it, or its permissions.
            with contextlib.suppress(OSError):
                os.unlink(self._temporary, dir_fd=self._directory)
        os.close(self._directory)
        self._directory = -1

    def _mode_of_target(self) -> int | None:
        """Return the mode of an existing file, None if there is none; refuse a directory."""
        try:
            mode = os.stat(self._name, dir_fd=self._directory, follow_symlinks=False).st_mode
        except FileNotFoundError:
            return None
        if stat.S_ISDIR(mode):
            message = f"Is a directory: {self._path}"
            raise FilesError(message)
        return mode


def write_all(descriptor: int, data: bytes, path: str) -> None:
    """Write data to a file.

    Args:
        descriptor: The open file.
        data: The data.
        path: The client's path, for messages.

    Raises:
        FilesError: If writing fails, for example because the disk is full.
    """
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
    except OSError as error:
        raise file_error(error, path) from error


def write_files(workspace: Files, files: Mapping[str, str | FileContent]) -> None:
    """Write files.

    Args:
        workspace: Where.
        files: Content by path.

    Raises:
        FilesError: If a path is invalid or a file cannot be written.
    """
    for path, content in files.items():
        data = FileContent(content.encode()) if isinstance(content, str) else content
        with contextlib.closing(workspace.upload(path, is_executable=data.is_executable)) as upload:
            upload.write(data.base64)
            upload.finish()


@contextlib.contextmanager
def _closing(descriptor: int) -> Iterator[int]:
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _entries(directory: int, status_of_target: Callable[[str], os.stat_result]) -> Iterator[DirectoryEntry]:
    with os.scandir(directory) as found:
        for entry in found:
            try:
                status = entry.stat(follow_symlinks=False)
            except OSError:
                # Removed since it was listed.
                continue
            if entry.is_symlink():
                # Unless it dangles, or leads out of the workspace.
                with contextlib.suppress(OSError):
                    status = status_of_target(entry.name)
            is_directory = stat.S_ISDIR(status.st_mode)
            yield DirectoryEntry(
                name=entry.name.encode(errors="surrogateescape").decode(errors="replace"),
                type="dir" if is_directory else "file",
                size=None if is_directory else status.st_size,
                modified=status.st_mtime,
                is_link=entry.is_symlink(),
                is_executable=stat.S_ISREG(status.st_mode) and bool(status.st_mode & _EXECUTABLE),
            )


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
