"""The processes of submissions: their root, and the files and the user that all submissions of a grading worker have."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket

import msgspec

from coding_gym_server.ipc.async_channel import AsyncChannel, ChannelClosedError
from coding_gym_server.ipc.library_messages import ImportLibraries
from coding_gym_server.ipc.messages import FromProcess, Kill, WorkerExited
from coding_gym_server.ipc.zygote_messages import SUBMISSION
from coding_gym_server.server.supervisor.systems import SessionSystem
from coding_gym_server.server.supervisor.zygote_handle import ZygoteHandle
from coding_gym_server.workspace.session_directory import SessionDirectory

__all__ = ["ANSWER_TIMEOUT_SECONDS", "IMPORT_TIMEOUT_SECONDS", "SubmissionProcesses"]

ANSWER_TIMEOUT_SECONDS = 10.0
"""Seconds within which a root responds."""

IMPORT_TIMEOUT_SECONDS = 120.0
"""Seconds within which a root has imported libraries."""


class SubmissionProcesses:
    """Root of the processes of one submission at a time, and their files. Created by ``SubmissionProcesses.start``.

    Args:
        user: Id of the submissions' user, None if they have the server's user and no separate mounts.

    Attributes:
        user: Id of the submissions' user, None if they have the server's user and no separate mounts.
        mounts: Descriptor of their mount namespace, by which test runners borrow their files; None if they have none.
        directory: The files of the submissions.
        root_pid: Process id of the root, the ancestor of all processes of the submission.
    """

    def __init__(self, user: int | None) -> None:
        self.user = user
        self.mounts: int | None = None
        self.directory: SessionDirectory
        self.root_pid = 0
        self._root: AsyncChannel[FromProcess] | None = None
        self._exit: asyncio.Future[int] | None = None

    @classmethod
    async def start(
        cls, system: SessionSystem, libraries: frozenset[str], *, zygote: ZygoteHandle, backend: str = SUBMISSION
    ) -> SubmissionProcesses:
        """Start the root.

        Args:
            system: User and files of the submissions.
            libraries: Names of modules that the root imports, as far as they are installed.
            zygote: Forks the root.
            backend: ``SUBMISSION`` or ``FAITHFUL``: the kind of root.

        Raises:
            ForkError: If processes, memory or disk space are exhausted.
            ChannelClosedError: If the zygote or the root died.
            TimeoutError: If the root does not respond.
            OSError: If the directories cannot be created.
        """
        processes = cls(system.user)
        try:
            await processes._start_root(system, zygote, backend)
            if libraries:
                await processes.ask_root(ImportLibraries(sorted(libraries)), timeout=IMPORT_TIMEOUT_SECONDS)
        except BaseException:
            processes.close()
            system.discard()
            raise
        return processes

    @property
    def is_alive(self) -> bool:
        """Whether the root is still running, as far as known."""
        return self._root is not None

    async def ask_root(
        self, request: msgspec.Struct, descriptors: tuple[int, ...] = (), *, timeout: float = ANSWER_TIMEOUT_SECONDS
    ) -> FromProcess:
        """Send a request to the root; return its response.

        Raises:
            ChannelClosedError: If the root died.
            TimeoutError: If it does not respond.
        """
        if self._root is None:
            raise ChannelClosedError
        return await self._root.call(request, descriptors, timeout=timeout)

    def kill(self) -> None:
        """Kill all processes of the submission without waiting for their end."""
        if self._root is not None:
            with contextlib.suppress(ChannelClosedError):
                self._root.send(Kill())
                self._root.expect()

    def expect_exit(self) -> asyncio.Future[int]:
        """Return a future for the wait status of the submission's process; it fails with ``ChannelClosedError``."""
        self._exit = asyncio.get_running_loop().create_future()
        return self._exit

    def close(self) -> None:
        """End the processes, which does not wait for them. The files remain until they are removed."""
        if self._root is not None:
            self._root.close()
            self._root = None
        if self.mounts is not None:
            os.close(self.mounts)
            self.mounts = None

    def take_directory(self) -> SessionDirectory:
        """Return the files, which are not accessed here any more. Call it after ``close``."""
        directory = self.directory
        del self.directory
        return directory

    async def _start_root(self, system: SessionSystem, zygote: ZygoteHandle, backend: str) -> None:
        ours, theirs = socket.socketpair()
        root = self._root = AsyncChannel(
            ours,
            on_message=self._on_message,
            on_descriptors=system.on_descriptors,
            on_closed=self._on_closed,
        )
        with theirs:
            self.root_pid = await zygote.fork_root(system.request(backend), theirs)
        self.directory = await system.enter(root)
        self.mounts = system.take_mounts()
        self.directory.repair()

    def _on_message(self, message: FromProcess) -> None:
        if isinstance(message, WorkerExited) and self._exit is not None and not self._exit.done():
            self._exit.set_result(message.status)

    def _on_closed(self) -> None:
        self._root = None
        if self._exit is not None and not self._exit.done():
            self._exit.set_exception(ChannelClosedError())
