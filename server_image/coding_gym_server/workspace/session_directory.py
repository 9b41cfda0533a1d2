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

from coding_gym_server.isolation import session_user
from coding_gym_server.protocol.grading import FileContent
from coding_gym_server.workspace import directory as workspace
from coding_gym_server.workspace.files import Workspace, write_files
from coding_gym_server.workspace.layout import MOUNTABLE, MOUNTED, PRIVATE, Layout
from coding_gym_server.workspace.saved_files import SavedFiles

__all__ = [
    "X_SOCKETS",
    "ContainerDirectory",
    "MountedDirectory",
    "SessionDirectory",
    "SharedDirectory",
    "SlotDirectory",
    "SubmissionDirectory",
]

_SNAPSHOTS = ".snapshots"

X_SOCKETS = "/tmp/.X11-unix"
"""Directory of display sockets, as programs see it."""


class SessionDirectory(ABC):
    """The directories with the files of a session."""

    @abstractmethod
    def part(self, name: str) -> Path:
        """Return the path by which the server accesses a directory, given by its name in ``MOUNTABLE``."""

    @property
    @abstractmethod
    def layout(self) -> Layout:
        """Paths of the parts as the session's programs see them."""

    @property
    def work(self) -> Path:
        """Path by which the server accesses the working directory."""
        return self.part(workspace.WORK)

    @property
    def x_sockets(self) -> Path:
        """Path by which the server accesses the directory of display sockets."""
        return self.part(workspace.TEMPORARY) / os.path.basename(X_SOCKETS)

    @abstractmethod
    def remove_x_socket(self, name: str) -> None:
        """Remove a socket from the directory of display sockets, unless it is removed with the other files."""

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
        write_files(Workspace(self.work, home=str(self.work)), files)


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
        path = Path(f"/proc/self/fd/{tree}")
        self._set_path(path, store=path)
        for descriptor in (tree, slots):
            if descriptor is not None:
                weakref.finalize(self, os.close, descriptor)

    def _set_path(self, path: Path, *, store: Path) -> None:
        parts = {name: f"{path}/{name}" for name in MOUNTABLE if os.path.isdir(f"{path}/{name}")}
        links = {
            f"{part}/{os.path.basename(link)}": target
            for name, part in parts.items()
            for link, target in session_user.links(MOUNTABLE[name][0]).items()
        }
        self._set_parts(parts, store=store, links=links)

    def _set_parts(self, parts: Mapping[str, str], *, store: Path, links: Mapping[str, str]) -> None:
        """Set the paths by which the server accesses the directories, the parent of copies, and the links in them."""
        # As strings, since each reset uses them.
        self._parts = dict(parts)
        self._modes = {path: MOUNTABLE[name][1] for name, path in parts.items()}
        self._authority = f"{parts[workspace.TEMPORARY]}/{os.path.basename(PRIVATE.authority)}"
        self._store = store
        self._links = dict(links)

    def part(self, name: str) -> Path:
        return Path(self._parts[name])

    @property
    def layout(self) -> Layout:
        return PRIVATE

    def seen_by_server(self, path: str) -> Path:
        """Return the path by which the server accesses an absolute path of the session."""
        # Without "..", which would lead from a link to elsewhere, in the system of the server.
        found = Path(os.path.normpath(path))
        for name, part in self._parts.items():
            mount_point, _ = MOUNTABLE[name]
            if found.is_relative_to(mount_point):
                return Path(part) / found.relative_to(mount_point)
        return found

    def remove_x_socket(self, name: str) -> None:
        """Do nothing: it is removed with the files of the session."""

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
        self.repair()
        for directory in self._modes:
            workspace.clear(Path(directory))
        self._restore()
        self.repair()

    def repair(self) -> None:
        for directory, mode in self._modes.items():
            os.chmod(directory, mode)

    def copy(self) -> SavedFiles:
        own: dict[str, list[str]] = {name: [] for name in self._parts}
        names = {path: name for name, path in self._parts.items()}
        for directory, link in map(os.path.split, self._links):
            own[names[directory]].append(link)
        # Beside the directories, so that the limits of the file system apply.
        return SavedFiles(self._store / _SNAPSHOTS, {name: self.part(name) for name in self._parts}, own)

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
        # Which keeps the descriptor open.
        self._session = session
        self._set_path(session._store / session_user.SLOTS / str(slot), store=session._store)

    def remove(self) -> None:
        self.empty()


class ContainerDirectory(MountedDirectory):
    """Files of the only session of a container: the container's own directories, which the engine has mounted.

    Args:
        store: Parent directory of the copies.
    """

    def __init__(self, store: Path) -> None:
        self.slots = None
        self._set_parts({name: mount_point for name, (mount_point, _) in MOUNTED.items()}, store=store, links={})

    def repair(self) -> None:
        for directory, mode in self._modes.items():
            workspace.repair(directory, mode)

    def remove(self) -> None:
        with contextlib.suppress(OSError):
            self.empty()


class SubmissionDirectory(ContainerDirectory):
    """Files of submissions beside the only session of a container.

    Args:
        path: A directory of its own, which does not exist yet.

    Attributes:
        path: The same.
    """

    def __init__(self, path: Path) -> None:
        self.slots = None
        self.path = path
        names = (workspace.WORK, workspace.TEMPORARY)
        self._set_parts({name: f"{path}/{name}" for name in names}, store=path, links={})
        self.repair()

    @property
    def layout(self) -> Layout:
        return Layout.below(str(self.path))

    def repair(self) -> None:
        workspace.repair(str(self.path), stat.S_IRWXU)
        super().repair()

    def remove(self) -> None:
        with contextlib.suppress(OSError):
            workspace.clear(self.path)
            self.path.rmdir()


class SharedDirectory(SessionDirectory):
    """Files of a session in the directories of several, which keep what a session leaves.

    Args:
        shared: The directories.
        layout: Their paths, and that of the X authority file of the session, which has a screen of its own.
    """

    def __init__(self, shared: MountedDirectory, layout: Layout) -> None:
        self._shared = shared
        self._layout = layout

    def part(self, name: str) -> Path:
        return self._shared.part(name)

    @property
    def layout(self) -> Layout:
        return self._layout

    def remove_x_socket(self, name: str) -> None:
        # Code of other sessions may have replaced the directory.
        with contextlib.suppress(OSError), _opened(self.x_sockets) as directory:
            os.unlink(name, dir_fd=directory)

    def empty_if_bare(self) -> bool:
        self.remove()
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
            os.unlink(self.part(workspace.TEMPORARY) / os.path.basename(self._layout.authority))


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
