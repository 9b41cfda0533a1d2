"""Files that the contexts of the code-interpreter API share, and the system in which they do."""

from __future__ import annotations

import asyncio
import secrets
import weakref
from abc import abstractmethod
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from coding_gym_server.ipc.async_channel import AsyncChannel, ChannelClosedError
from coding_gym_server.ipc.channel import close_all
from coding_gym_server.ipc.messages import FromProcess
from coding_gym_server.ipc.system_messages import CreateSystem, JoinSystem
from coding_gym_server.ipc.zygote_messages import ForkRoot
from coding_gym_server.server.supervisor.systems import SessionSystem, call_new_root
from coding_gym_server.server.supervisor.zygote_handle import ForkError, ZygoteHandle, open_connection
from coding_gym_server.workspace.layout import Layout
from coding_gym_server.workspace.root_directory import RootDirectory
from coding_gym_server.workspace.session_directory import (
    ContainerDirectory,
    MountedDirectory,
    SessionDirectory,
    SharedDirectory,
)

__all__ = ["SharedContainer", "SharedFiles", "SharedMounts", "SharedSystem"]


class SharedFiles(SessionSystem):
    """System whose files several sessions share.

    Attributes:
        is_lasting: Whether it exists as long as the server, so that executors for it can be started in advance.
    """

    is_lasting = True

    @abstractmethod
    async def start(self) -> None:
        """Make the files available. Idempotent.

        Raises:
            ForkError: If the process limit, memory or disk is exhausted.
            ChannelClosedError: If a process of the sandbox died.
            TimeoutError: If it does not respond.
        """

    @abstractmethod
    def seen_by_server(self, path: str) -> Path:
        """Return the path by which the server accesses a client's absolute path. The files must have been started."""

    def discard(self) -> None:
        """Do nothing: the system remains for other sessions."""


class SharedContainer(SharedFiles):
    """The system of a container that permits no namespaces. Its sessions share it one after the other.

    Args:
        directory: Its directories.
        wait: Waits until the files are not those of a session that shares them with no other; raises the errors of ``start``.
    """

    def __init__(self, directory: ContainerDirectory, wait: Callable[[], Awaitable[None]]) -> None:
        self.user = None
        self._directory = directory
        self._wait = wait

    async def start(self) -> None:
        await self._wait()

    def seen_by_server(self, path: str) -> Path:
        return Path(path)

    def request(self, backend: str) -> ForkRoot:
        return ForkRoot(None, backend)

    async def enter(self, root: AsyncChannel[FromProcess]) -> SessionDirectory:
        self._directory.repair()
        return SharedDirectory(self._directory, self._directory.layout)


class SharedMounts(SharedFiles):
    """User, mounts and file system that sessions share: their roots join the namespaces of another one."""

    def __init__(self) -> None:
        self._files: MountedDirectory | None = None
        self._namespaces: tuple[int, ...] = ()
        self._starting = asyncio.Lock()

    @abstractmethod
    async def _open(self) -> tuple[MountedDirectory, list[int]]:
        """Return the files, and descriptors of the namespaces, which this object closes; raises the errors of ``start``."""

    async def start(self) -> None:
        async with self._starting:
            if self._files is None:
                files, namespaces = await self._open()
                weakref.finalize(self, close_all, namespaces)
                self._files, self._namespaces = files, tuple(namespaces)

    def seen_by_server(self, path: str) -> Path:
        assert self._files is not None
        return self._files.seen_by_server(path)

    def request(self, backend: str) -> ForkRoot:
        return ForkRoot(None, backend, user=self.user)

    async def enter(self, root: AsyncChannel[FromProcess]) -> SessionDirectory:
        await self.start()
        assert self._files is not None
        # The sessions share a directory for temporary files, but no screen.
        authority = f"{self._files.layout.authority}-{secrets.token_hex(8)}"
        layout = msgspec.structs.replace(self._files.layout, authority=authority)
        directory = SharedDirectory(self._files, layout)
        # The root must find Python there.
        directory.repair()
        await call_new_root(root, JoinSystem(directory.layout.authority), self._namespaces)
        return directory


class SharedSystem(SharedMounts):
    """System that the contexts of the code-interpreter API share.

    A short-lived root creates it. Descriptors of its namespaces keep it alive.

    Args:
        zygote: Forks the root that makes it.
        user: Id of its user: the server's, unless the sandbox has users for sessions.
        backend: Name of the backend of most sessions, whose modules the zygote has imported.
        of_root: Directories of sessions whose programs are those of another image, else None.
    """

    def __init__(self, zygote: ZygoteHandle, user: int, *, backend: str, of_root: Layout | None = None) -> None:
        super().__init__()
        self.user = user
        self._zygote = zygote
        self._backend = backend
        self._of_root = of_root

    async def _open(self) -> tuple[MountedDirectory, list[int]]:
        try:
            tree, *namespaces = await self._found()
        except ChannelClosedError:
            # The zygote died and has been replaced: retry once.
            tree, *namespaces = await self._found()
        return MountedDirectory(tree) if self._of_root is None else RootDirectory(tree, self._of_root), namespaces

    async def _found(self) -> list[int]:
        """Let a root make the system; return descriptors of the root directory of its files and of its namespaces."""
        received: list[int] = []
        ours, theirs = open_connection()
        root: AsyncChannel[FromProcess] = AsyncChannel(ours, on_descriptors=received.extend)
        try:
            with theirs:
                await self._zygote.fork_root(self.request(self._backend), theirs)
            await call_new_root(root, CreateSystem())
            if len(received) != 1 + JoinSystem.DESCRIPTORS:
                message = "the server has no free file descriptor"
                raise ForkError(message)
        except BaseException:
            close_all(received)
            raise
        finally:
            root.close()
        return received
