"""The files of a session, as the server accesses them."""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import stat
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from coding_gym_server.isolation import session_user
from coding_gym_server.protocol.grading import FileContent
from coding_gym_server.workspace import directory as workspace
from coding_gym_server.workspace.files import write_files
from coding_gym_server.workspace.layout import MOUNTED, PRIVATE, Layout
from coding_gym_server.workspace.saved_files import SavedFiles

__all__ = ["X_SOCKETS", "MountedDirectory", "NamedDirectory", "SessionDirectory", "SharedDirectory", "SlotDirectory"]

_SNAPSHOTS = ".snapshots"

X_SOCKETS = "/tmp/.X11-unix"
"""Directory of display sockets, as programs see it."""


class SessionDirectory(ABC):
    """Directory with the files of a session."""

    @property
    @abstractmethod
    def path(self) -> Path:
        """Path by which the server accesses the directory."""

    @property
    @abstractmethod
    def name(self) -> str | None:
        """Path by which the session accesses the directory; None if its parts are mounted at fixed paths."""

    @property
    @abstractmethod
    def layout(self) -> Layout:
        """Paths of the parts as the session's programs see them."""

    @property
    def work(self) -> Path:
        """Path by which the server accesses the working directory."""
        return self.path / workspace.WORK

    @property
    @abstractmethod
    def x_sockets(self) -> Path:
        """Path by which the server accesses the directory of display sockets."""

    @abstractmethod
    def remove_x_socket(self, name: str) -> None:
        """Remove a socket from the directory of display sockets, unless it is removed with the other files."""

    @abstractmethod
    def begin(self) -> None:
        """Make the directory's name unknown to the previous episode, whose processes have exited.

        Raises:
            OSError: If it cannot be renamed.
        """

    @abstractmethod
    def empty_if_bare(self) -> bool:
        """Restore the initial state without blocking if there are no files to remove; return whether that was the case.

        Raises:
            OSError: If the state cannot be restored.
        """

    @abstractmethod
    def empty(self) -> None:
        """Remove all files and restore the initial state. Blocking.

        Raises:
            OSError: If an entry cannot be removed or a directory cannot be created.
        """

    @abstractmethod
    def repair(self) -> None:
        """Restore the directories and their modes, and keep the files.

        Raises:
            OSError: If a directory cannot be created, for example because the disk is full.
        """

    @abstractmethod
    def remove(self) -> None:
        """Delete the directory. Blocking."""

    @abstractmethod
    def copy(self) -> SavedFiles:
        """Return a copy of the files that is still to be made, out of reach of the session."""

    def write(self, files: Mapping[str, str | FileContent]) -> None:
        """Write files in the working directory. Blocking.

        Args:
            files: Content by relative path.

        Raises:
            FilesError: If a path is invalid or a file cannot be written.
        """
        write_files(self.work, files)


class NamedDirectory(SessionDirectory):
    """Directory of a session that shares its file system, its user or both with others.

    Its name cannot be guessed: Landlock does not prevent mode changes of files whose path is known.

    Args:
        base: The parent directory.
    """

    def __init__(self, base: Path) -> None:
        self._path = _random_name(base)
        self._path.mkdir(mode=0o700)

    @property
    def path(self) -> Path:
        return self._path

    @property
    def name(self) -> str:
        return str(self._path)

    @property
    def layout(self) -> Layout:
        return Layout.below(str(self._path))

    @property
    def x_sockets(self) -> Path:
        return Path(X_SOCKETS)

    def remove_x_socket(self, name: str) -> None:
        with contextlib.suppress(OSError):
            (self.x_sockets / name).unlink()
            # Succeeds only for the last display.
            self.x_sockets.rmdir()

    def begin(self) -> None:
        self._path = self._path.rename(_random_name(self._path.parent))

    def empty_if_bare(self) -> bool:
        if not workspace.remove_if_bare(str(self._path)):
            return False
        workspace.empty(str(self._path))
        return True

    def empty(self) -> None:
        workspace.empty(str(self._path))

    def repair(self) -> None:
        workspace.repair(str(self._path))

    def copy(self) -> SavedFiles:
        parts = (workspace.WORK, workspace.HOME, workspace.TEMPORARY)
        return SavedFiles(self._path.parent / _SNAPSHOTS, {part: self._path / part for part in parts}, {})

    def remove(self) -> None:
        with contextlib.suppress(OSError):
            workspace.clear(self._path)
            self._path.rmdir()


class MountedDirectory(SessionDirectory):
    """File system of a session with its own mounts, accessed through a descriptor of its root directory.

    The session cannot replace its directories, which are mount points, so they exist as long as the session's root. Its path
    is valid as long as this object: a number that is in use again would refer to the files of another session.

    Args:
        tree: The descriptor, which is closed when no reference to the object is left.
        slots: Descriptor of the parent directory of those of forks, likewise, in the mounts of the session; None without forks.

    Attributes:
        slots: The same.
    """

    def __init__(self, tree: int, slots: int | None = None) -> None:
        self.slots = slots
        self._set_path(Path(f"/proc/self/fd/{tree}"))
        for descriptor in (tree, slots):
            if descriptor is not None:
                weakref.finalize(self, os.close, descriptor)

    def _set_path(self, path: Path) -> None:
        self._path = path
        # As strings, since each reset uses them.
        self._modes = {f"{self._path}/{name}": mode for name, (_, mode) in MOUNTED.items()}
        self._authority = f"{self._path}/{workspace.TEMPORARY}/{os.path.basename(PRIVATE.authority)}"
        self._links = {
            f"{self._path}/{name}/{os.path.basename(link)}": target
            for name, (mount_point, _) in MOUNTED.items()
            for link, target in session_user.links(mount_point).items()
        }

    @property
    def path(self) -> Path:
        return self._path

    @property
    def name(self) -> None:
        return None

    @property
    def layout(self) -> Layout:
        return PRIVATE

    @property
    def x_sockets(self) -> Path:
        return self._path / workspace.TEMPORARY / os.path.basename(X_SOCKETS)

    def remove_x_socket(self, name: str) -> None:
        """Do nothing: it is removed with the files of the session."""

    def begin(self) -> None:
        """Do nothing: no other session can access the directory."""

    def empty_if_bare(self) -> bool:
        self.repair()
        with contextlib.suppress(OSError):
            os.unlink(self._authority)
        self._remove_x_socket()
        for link in self._links:
            with contextlib.suppress(OSError):
                os.unlink(link)
        if any(_first_names(directory, 1) for directory in self._modes):
            return False
        self._restore()
        return True

    def _remove_x_socket(self) -> None:
        """Remove the directory of display sockets, unless it contains more than the session's own."""
        with contextlib.suppress(OSError):
            with _opened(self.x_sockets) as directory:
                for name in _first_names(directory, 2)[:1]:
                    os.unlink(name, dir_fd=directory)
            os.rmdir(self.x_sockets)

    def empty(self) -> None:
        for directory in self._modes:
            os.chmod(directory, stat.S_IRWXU)
            workspace.clear(Path(directory))
        self._restore()
        self.repair()

    def repair(self) -> None:
        for directory, mode in self._modes.items():
            os.chmod(directory, mode)

    def copy(self) -> SavedFiles:
        own: dict[str, list[str]] = {name: [] for name in MOUNTED}
        for directory, link in map(os.path.split, self._links):
            own[os.path.basename(directory)].append(link)
        return SavedFiles(self._snapshots, {name: self._path / name for name in MOUNTED}, own)

    @property
    def _snapshots(self) -> Path:
        """Directory of copies, beside the directories that are mounted, so that the limits of the file system apply."""
        return self._path / _SNAPSHOTS

    def remove(self) -> None:
        """Do nothing: the kernel frees the file system with the last process and descriptor that use it."""

    def restore_links(self) -> None:
        """Restore links that code of a session has removed or replaced; what has replaced one gets another name."""
        for link, target in self._links.items():
            with contextlib.suppress(OSError):
                if not os.path.islink(link) or os.readlink(link) != target:
                    _move_aside(Path(link))
                    os.symlink(target, link)

    def _restore(self) -> None:
        """Restore the content and attributes of the empty directories."""
        for link, target in self._links.items():
            os.symlink(target, link)
        for directory in self._modes:
            workspace.reset_attributes(directory)


class SlotDirectory(MountedDirectory):
    """Files of a fork, in the file system of the session that it was made of, and at the same paths.

    Args:
        session: The files of the session.
        slot: Number of the fork.
    """

    def __init__(self, session: MountedDirectory, slot: int) -> None:
        self.slots = session.slots
        self._session = session
        self._set_path(session.path / session_user.SLOTS / str(slot))

    @property
    def _snapshots(self) -> Path:
        return self._session._snapshots

    def remove(self) -> None:
        self.empty()


class SharedDirectory(SessionDirectory):
    """Files of a session in the file system of several, which keep what a session leaves.

    Args:
        shared: The file system.
    """

    def __init__(self, shared: MountedDirectory) -> None:
        self._shared = shared
        # The sessions share a directory for temporary files, but no screen.
        self._layout = msgspec.structs.replace(PRIVATE, authority=f"{PRIVATE.authority}-{secrets.token_hex(8)}")

    @property
    def path(self) -> Path:
        return self._shared.path

    @property
    def name(self) -> None:
        return None

    @property
    def layout(self) -> Layout:
        return self._layout

    @property
    def x_sockets(self) -> Path:
        return self._shared.x_sockets

    def remove_x_socket(self, name: str) -> None:
        # Code of other sessions may have replaced the directory.
        with contextlib.suppress(OSError), _opened(self.x_sockets) as directory:
            os.unlink(name, dir_fd=directory)

    def begin(self) -> None:
        self.remove()

    def empty_if_bare(self) -> bool:
        self.repair()
        return True

    def empty(self) -> None:
        """Do nothing: the files belong to other sessions, too."""

    def repair(self) -> None:
        self._shared.repair()
        self._shared.restore_links()
        with contextlib.suppress(OSError):
            if not stat.S_ISDIR(self.x_sockets.lstat().st_mode):
                _move_aside(self.x_sockets)
            else:
                with _opened(self.x_sockets, os.O_PATH) as directory:
                    os.chmod(f"/proc/self/fd/{directory}", 0o1777)  # noqa: S103 - as /tmp itself

    def copy(self) -> SavedFiles:
        message = "files that several sessions share cannot be copied for one of them"
        raise NotImplementedError(message)

    def remove(self) -> None:
        with contextlib.suppress(OSError):
            os.unlink(self.path / workspace.TEMPORARY / os.path.basename(self._layout.authority))


def _move_aside(path: Path) -> None:
    """Give an entry that code of a session has created another name, if it exists."""
    with contextlib.suppress(FileNotFoundError):
        path.rename(path.with_name(f"{path.name}.{secrets.token_hex(4)}"))


@contextlib.contextmanager
def _opened(directory: Path, access: int = os.O_RDONLY) -> Iterator[int]:
    """Open a directory that code of a session may have replaced by a link."""
    descriptor = os.open(directory, access | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _first_names(directory: str | int, count: int) -> list[str]:
    """Return the first names in a directory, which may contain many."""
    with os.scandir(directory) as entries:
        return [entry.name for entry in itertools.islice(entries, count)]


def _random_name(base: Path) -> Path:
    return base / secrets.token_hex(16)
