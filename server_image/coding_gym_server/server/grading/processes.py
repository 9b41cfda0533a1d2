"""The processes of a grading worker: the root of its submissions and its test runner, and the files of both."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket

import msgspec

from coding_gym_server.ipc.async_channel import AsyncChannel, ChannelClosedError
from coding_gym_server.ipc.messages import SUBMISSION, Failed, ForkTestRunner, FromProcess, Kill, WorkerExited
from coding_gym_server.server.supervisor.systems import System
from coding_gym_server.server.supervisor.zygote_handle import ForkError, ZygoteHandle
from coding_gym_server.test_runner.messages import BorrowFiles, FromTestRunner, test_runner_messages
from coding_gym_server.workspace.session_directory import SessionDirectory

__all__ = ["GradingProcesses"]

_ANSWER_TIMEOUT = 10.0
_MAX_ACCOUNT_BYTES = 64 << 20


class _Unsolicited(msgspec.Struct):
    """Placeholder for unsolicited messages, which a test runner never sends."""


class GradingProcesses:
    """Root of the processes of submissions, and a test runner. Created by ``GradingProcesses.start``.

    Args:
        zygote: Forks test runners, with the modules that tests import.
        user: Id of the submissions' user, None if they have the server's user and no mounts of their own.

    Attributes:
        directory: The files of the submissions.
        root_pid: Process id of the root, the ancestor of all processes of the submission.
    """

    def __init__(self, zygote: ZygoteHandle, user: int | None) -> None:
        self.directory: SessionDirectory
        self.root_pid = 0
        self._zygote = zygote
        self._user = user
        # Of the submissions, by which test runners borrow their files.
        self._mounts: int | None = None
        self._root: AsyncChannel[FromProcess] | None = None
        self._exit: asyncio.Future[int] | None = None
        self._test_runner: AsyncChannel[FromTestRunner] | None = None
        self._test_runner_pid: int | None = None

    @classmethod
    async def start(cls, system: System, *, zygote: ZygoteHandle, submission_zygote: ZygoteHandle) -> GradingProcesses:
        """Start the processes.

        Args:
            system: User and files of the submissions.
            zygote: Forks test runners, with the modules that tests import.
            submission_zygote: Forks root processes, with a small memory footprint.

        Raises:
            ForkError: If processes, memory or disk space are exhausted.
            ChannelClosedError: If a zygote or a started process died.
            TimeoutError: If a started process does not respond.
            OSError: If the directories cannot be created.
        """
        processes = cls(zygote, system.user)
        try:
            await processes._start_root(system, submission_zygote)
            await processes._start_test_runner()
        except BaseException:
            processes.close()
            system.discard()
            raise
        return processes

    @property
    def are_alive(self) -> bool:
        """Whether the root and the test runner are still running, as far as known."""
        return self._root is not None and self._test_runner is not None

    @property
    def test_runner(self) -> AsyncChannel[FromTestRunner]:
        """Channel to the test runner.

        Raises:
            ChannelClosedError: If it died.
        """
        if self._test_runner is None:
            raise ChannelClosedError
        return self._test_runner

    async def ask_root(self, request: msgspec.Struct, descriptors: tuple[int, ...] = ()) -> FromProcess:
        """Send a request to the root; return its response.

        Raises:
            ChannelClosedError: If the root died.
            TimeoutError: If it does not respond.
        """
        if self._root is None:
            raise ChannelClosedError
        return await self._root.call(request, descriptors, timeout=_ANSWER_TIMEOUT)

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

    async def replace_test_runner(self) -> None:
        """Replace a test runner that does not respond.

        Raises:
            ForkError: If processes or memory are exhausted.
            ChannelClosedError: If the zygote or the new test runner died.
            TimeoutError: If the new test runner does not respond.
        """
        self._end_test_runner()
        await self._start_test_runner()

    def close(self) -> None:
        """End the processes, which does not wait for them. The files remain until they are removed."""
        if self._root is not None:
            self._root.close()
            self._root = None
        self._end_test_runner()
        if self._mounts is not None:
            os.close(self._mounts)
            self._mounts = None

    async def _start_root(self, system: System, zygote: ZygoteHandle) -> None:
        ours, theirs = socket.socketpair()
        root = self._root = AsyncChannel(
            ours,
            on_message=self._on_root_message,
            on_descriptors=system.on_descriptors,
            on_closed=self._on_root_closed,
        )
        with theirs:
            self.root_pid = await zygote.fork_root(system.request(SUBMISSION), theirs)
        self.directory = await system.enter(root)
        self._mounts = system.take_mounts()
        self.directory.repair()

    async def _start_test_runner(self) -> None:
        ours, theirs = socket.socketpair()
        test_runner = self._test_runner = AsyncChannel(
            ours,
            decoder=test_runner_messages,
            unsolicited=_Unsolicited,
            max_bytes=_MAX_ACCOUNT_BYTES,
            on_closed=self._on_test_runner_closed,
        )
        with theirs:
            self._test_runner_pid = await self._zygote.fork_test_runner(ForkTestRunner(self.directory.name), theirs)
        if self._mounts is not None:
            assert self._user is not None
            response = await test_runner.call(BorrowFiles(self._user), (self._mounts,), timeout=_ANSWER_TIMEOUT)
            if isinstance(response, Failed):
                raise ForkError(response.reason)

    def _end_test_runner(self) -> None:
        test_runner, self._test_runner = self._test_runner, None
        pid, self._test_runner_pid = self._test_runner_pid, None
        if test_runner is not None:
            test_runner.close()
            if pid is not None:
                # It may not be the server's user yet; then it has not begun either, and ends with its channel.
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)

    def _on_root_message(self, message: FromProcess) -> None:
        if isinstance(message, WorkerExited) and self._exit is not None and not self._exit.done():
            self._exit.set_result(message.status)

    def _on_root_closed(self) -> None:
        self._root = None
        if self._exit is not None and not self._exit.done():
            self._exit.set_exception(ChannelClosedError())

    def _on_test_runner_closed(self) -> None:
        self._test_runner = None
