"""The server's end of a test runner."""

from __future__ import annotations

import contextlib
import os
import signal
import socket

import msgspec

from coding_gym_server.ipc.async_channel import AsyncChannel, ChannelClosedError
from coding_gym_server.ipc.messages import Failed, ForkTestRunner
from coding_gym_server.server.grading.submission_processes import ANSWER_TIMEOUT_SECONDS, SubmissionProcesses
from coding_gym_server.server.supervisor.zygote_handle import ForkError, ZygoteHandle
from coding_gym_server.test_runner.messages import BorrowFiles, FromTestRunner, test_runner_messages

__all__ = ["TestRunnerProcess"]

_MAX_ACCOUNT_BYTES = 64 << 20


class _Unsolicited(msgspec.Struct):
    """Placeholder for unsolicited messages, which a test runner never sends."""


class TestRunnerProcess:
    """Test runner with the files of submissions. Created by ``TestRunnerProcess.start``.

    Args:
        submissions: The processes of the submissions that it tests.
        zygote: Forks test runners, with the modules that tests import.
    """

    def __init__(self, submissions: SubmissionProcesses, zygote: ZygoteHandle) -> None:
        self._submissions = submissions
        self._zygote = zygote
        self._channel: AsyncChannel[FromTestRunner] | None = None
        self._pid: int | None = None

    @classmethod
    async def start(cls, submissions: SubmissionProcesses, zygote: ZygoteHandle) -> TestRunnerProcess:
        """Start a test runner; see ``replace``."""
        process = cls(submissions, zygote)
        await process.replace()
        return process

    @property
    def is_alive(self) -> bool:
        """Whether it is still running, as far as known."""
        return self._channel is not None

    @property
    def channel(self) -> AsyncChannel[FromTestRunner]:
        """Channel to the test runner.

        Raises:
            ChannelClosedError: If it died.
        """
        if self._channel is None:
            raise ChannelClosedError
        return self._channel

    async def replace(self) -> None:
        """End the test runner, which may not respond, and start another one.

        Raises:
            ForkError: If processes or memory are exhausted.
            ChannelClosedError: If the zygote or the new test runner died.
            TimeoutError: If the new test runner does not respond.
        """
        self.close()
        try:
            await self._start()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the test runner, which does not wait for it."""
        channel, self._channel = self._channel, None
        pid, self._pid = self._pid, None
        if channel is not None:
            channel.close()
            if pid is not None:
                # It may not be the server's user yet; then it has not begun either, and ends with its channel.
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)

    async def _start(self) -> None:
        ours, theirs = socket.socketpair()
        channel = self._channel = AsyncChannel(
            ours,
            decoder=test_runner_messages,
            unsolicited=_Unsolicited,
            max_bytes=_MAX_ACCOUNT_BYTES,
            on_closed=self._on_closed,
        )
        with theirs:
            self._pid = await self._zygote.fork_test_runner(ForkTestRunner(self._submissions.directory.name), theirs)
        mounts, user = self._submissions.mounts, self._submissions.user
        if mounts is not None:
            assert user is not None
            response = await channel.call(BorrowFiles(user), (mounts,), timeout=ANSWER_TIMEOUT_SECONDS)
            if isinstance(response, Failed):
                raise ForkError(response.reason)

    def _on_closed(self) -> None:
        self._channel = None
