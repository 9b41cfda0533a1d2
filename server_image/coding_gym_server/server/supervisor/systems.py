"""Systems of sessions: the user and the files that a session root starts with."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path

from coding_gym_server.ipc.async_channel import AsyncChannel
from coding_gym_server.ipc.channel import close_all
from coding_gym_server.ipc.messages import Failed, FromProcess, ToProcess
from coding_gym_server.ipc.system_messages import EnterOwnSystem
from coding_gym_server.ipc.zygote_messages import ForkRoot
from coding_gym_server.server.supervisor.spawner_handle import ROOT_TIMEOUT_SECONDS
from coding_gym_server.server.supervisor.zygote_handle import ForkError
from coding_gym_server.server.threads import in_thread, start_in_thread
from coding_gym_server.workspace.layout import Layout
from coding_gym_server.workspace.root_directory import RootDirectory
from coding_gym_server.workspace.session_directory import (
    ContainerDirectory,
    MountedDirectory,
    SessionDirectory,
    SubmissionDirectory,
)

__all__ = ["ContainerSystem", "OwnSystem", "SessionSystem", "SubmissionSystem", "call_new_root"]


class SessionSystem(ABC):
    """User and files that a session root starts with.

    Attributes:
        user: Id of the session's user, None if it has the server's user and no namespaces.
    """

    user: int | None

    @property
    def on_descriptors(self) -> Callable[[list[int]], None] | None:
        """Callback for the descriptors that the root sends, None if it sends none."""
        return None

    @abstractmethod
    def request(self, backend: str) -> ForkRoot:
        """Return the request that forks the root.

        Args:
            backend: Name of the backend that executes the cells.
        """

    @abstractmethod
    async def enter(self, root: AsyncChannel[FromProcess]) -> SessionDirectory:
        """Let the root enter the system, before anything else; return the files.

        Args:
            root: Channel to the root.

        Raises:
            ForkError: If the root cannot enter it.
            ChannelClosedError: If the root died.
            TimeoutError: If the root does not respond.
        """

    def take_mounts(self) -> int | None:
        """Return a descriptor of the mounts of a root that shares its files, else None; the caller closes it."""
        return None

    def take_descriptors(self) -> list[int]:
        """Return the descriptors that the root has sent since it has entered the system, which the caller closes."""
        return []

    @abstractmethod
    def discard(self) -> None:
        """Release what no root has entered, or one that failed to start. Idempotent."""


class ContainerSystem(SessionSystem):
    """The system of a container that permits no namespaces, for its only session.

    Args:
        directory: Its directories, which are emptied first.
    """

    def __init__(self, directory: ContainerDirectory) -> None:
        self.user = None
        self._directory = directory

    def request(self, backend: str) -> ForkRoot:
        return ForkRoot(None, backend)

    async def enter(self, root: AsyncChannel[FromProcess]) -> SessionDirectory:
        self._directory.repair()
        if not self._directory.empty_if_bare():
            await in_thread(self._directory.empty)
        return self._directory

    def discard(self) -> None:
        """Do nothing: the next session empties the directories."""


class SubmissionSystem(SessionSystem):
    """Directories of submissions beside the only session of such a container.

    Args:
        path: A directory of their own, which does not exist yet.
    """

    def __init__(self, path: Path) -> None:
        self.user = None
        self._path = path
        self._directory = SubmissionDirectory(path)

    def request(self, backend: str) -> ForkRoot:
        return ForkRoot(str(self._path), backend)

    async def enter(self, root: AsyncChannel[FromProcess]) -> SessionDirectory:
        return self._directory

    def discard(self) -> None:
        start_in_thread(self._directory.remove)


class OwnSystem(SessionSystem):
    """Mounts and a file system of the session's own.

    Args:
        user: Id of the session's user: the server's, unless the sandbox has users for sessions.
        shares_files: Whether ``take_mounts`` returns a descriptor, by which a test runner borrows the files.
        slots: Maximum number of forks of the session that exist at the same time.
        of_root: Directories of a session whose programs are root, else None.
    """

    def __init__(self, user: int, *, shares_files: bool = False, slots: int = 0, of_root: Layout | None = None) -> None:
        self.user = user
        self._shares_files = shares_files
        self._slots = slots
        self._of_root = of_root
        self._received: list[int] = []

    @property
    def on_descriptors(self) -> Callable[[list[int]], None]:
        return self._received.extend

    def request(self, backend: str) -> ForkRoot:
        return ForkRoot(None, backend, user=self.user)

    async def enter(self, root: AsyncChannel[FromProcess]) -> SessionDirectory:
        await call_new_root(root, EnterOwnSystem(self._shares_files, self._slots, self._of_root is not None))
        if len(self._received) < (2 if self._shares_files or self._slots else 1):
            message = "the server has no free file descriptor"
            raise ForkError(message)
        tree = self._received.pop(0)
        if self._of_root is not None:
            return RootDirectory(tree, self._of_root)
        return MountedDirectory(tree, self._received.pop(0) if self._slots else None)

    def take_mounts(self) -> int | None:
        return self._received.pop() if self._received else None

    def take_descriptors(self) -> list[int]:
        taken = self._received[:]
        self._received.clear()
        return taken

    def discard(self) -> None:
        close_all(self._received)
        self._received.clear()


async def call_new_root(root: AsyncChannel[FromProcess], request: ToProcess, descriptors: tuple[int, ...] = ()) -> None:
    """Send a root its first request, and wait until it has done it.

    Raises:
        ForkError: If it fails.
        ChannelClosedError: If the root died.
        TimeoutError: If the root does not respond.
    """
    response = await root.call(request, descriptors, timeout=ROOT_TIMEOUT_SECONDS)
    if isinstance(response, Failed):
        raise ForkError(response.reason)
