"""The server's ends of the root of test runners, and of each test runner."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import msgspec

from coding_gym_server.ipc.async_channel import AsyncChannel, ChannelClosedError
from coding_gym_server.ipc.library_messages import ImportLibraries
from coding_gym_server.ipc.messages import Failed
from coding_gym_server.ipc.zygote_messages import ForkTestRunnerRoot
from coding_gym_server.protocol.grading import Asserts, UnitTests
from coding_gym_server.server.grading.submission_processes import (
    ANSWER_TIMEOUT_SECONDS,
    IMPORT_TIMEOUT_SECONDS,
    SubmissionProcesses,
)
from coding_gym_server.server.supervisor.zygote_handle import ForkError, ZygoteHandle
from coding_gym_server.test_runner.messages import (
    MAX_REPORT_BYTES,
    BorrowFiles,
    EndTests,
    FromTestRunnerRoot,
    RunTests,
    TestsEnded,
    TestsRun,
    test_runner_root_messages,
    tests_run_messages,
)
from coding_gym_server.workspace.session_directory import SubmissionDirectory

__all__ = ["TestRunnerLostError", "TestRunners"]


class TestRunnerLostError(RuntimeError):
    """A test runner ended without a report, or sent something else: its tests made it do so, or memory was exhausted."""

    def __init__(self) -> None:
        super().__init__("the process of the tests ended without a report")


class _Unsolicited(msgspec.Struct):
    """Placeholder for unsolicited messages, which neither a root nor a test runner sends."""


class TestRunners:
    """Root of test runners with the files of submissions. Created by ``TestRunners.start``.

    Attributes:
        root_pid: Process id of the root, the ancestor of all processes of the tests.
        is_recycling: Whether the processes are being replaced; never, because there is none between two submissions.
        kill_reason: Why the test runner was killed: the resource that it has exhausted; empty if it was not.
    """

    def __init__(self) -> None:
        self.root_pid = 0
        self.is_recycling = False
        self.kill_reason = ""
        self._root: AsyncChannel[FromTestRunnerRoot] | None = None

    @classmethod
    async def start(cls, submissions: SubmissionProcesses, libraries: frozenset[str], zygote: ZygoteHandle) -> TestRunners:
        """Start the root.

        Args:
            submissions: The processes of the submissions that it tests.
            libraries: Names of modules that the root imports, as far as they are installed.
            zygote: Forks the root.

        Raises:
            ForkError: If processes or memory are exhausted.
            ChannelClosedError: If the zygote or the root died.
            TimeoutError: If the root does not respond.
        """
        test_runners = cls()
        try:
            await test_runners._start_root(submissions, zygote)
            if libraries and test_runners._root is not None:
                await test_runners._root.call(ImportLibraries(sorted(libraries)), timeout=IMPORT_TIMEOUT_SECONDS)
        except BaseException:
            test_runners.close()
            raise
        return test_runners

    @property
    def is_alive(self) -> bool:
        """Whether the root is still running, as far as known."""
        return self._root is not None

    @contextlib.contextmanager
    def fork(self, tests: Asserts | UnitTests, connection: socket.socket) -> Iterator[AsyncChannel[TestsRun]]:
        """Let the root fork a test runner; yield the channel to it, which is closed afterwards.

        Nothing that a test runner sends is trusted beyond the results of its submission: one response of limited size is read,
        and descriptors are not received.

        Args:
            tests: The tests.
            connection: The tests' end of the connection with the submission.

        Raises:
            ChannelClosedError: If the root died.
        """
        if self._root is None:
            raise ChannelClosedError
        self.kill_reason = ""
        ours, theirs = socket.socketpair()
        channel = AsyncChannel(ours, decoder=tests_run_messages, unsolicited=_Unsolicited, max_bytes=MAX_REPORT_BYTES)
        try:
            with theirs:
                self._root.send(RunTests(tests), (connection.fileno(), theirs.fileno()))
            yield channel
        finally:
            channel.close()

    async def end(self) -> None:
        """Kill the test runner with all its processes, and wait for their end.

        Raises:
            ForkError: If the last test runner could not be forked.
            ChannelClosedError: If the root died.
            TimeoutError: If it does not respond.
        """
        if self._root is None:
            raise ChannelClosedError
        response = await self._root.call(EndTests(), timeout=ANSWER_TIMEOUT_SECONDS)
        assert isinstance(response, TestsEnded)
        if response.failure:
            raise ForkError(response.failure)

    def kill_with_reason(self, reason: str) -> None:
        """Kill the test runner with all its processes, without waiting for their end.

        Args:
            reason: The resource that it has exhausted.
        """
        self.kill_reason = reason
        if self._root is not None:
            with contextlib.suppress(ChannelClosedError):
                self._root.send(EndTests())
                self._root.expect()

    def close(self) -> None:
        """End the root, which does not wait for it."""
        if self._root is not None:
            self._root.close()
            self._root = None

    async def _start_root(self, submissions: SubmissionProcesses, zygote: ZygoteHandle) -> None:
        ours, theirs = socket.socketpair()
        root = self._root = AsyncChannel(
            ours, decoder=test_runner_root_messages, unsolicited=_Unsolicited, on_closed=self._on_closed
        )
        files = submissions.directory
        path = str(files.path) if isinstance(files, SubmissionDirectory) else None
        with theirs:
            self.root_pid = await zygote.fork_test_runner_root(ForkTestRunnerRoot(path), theirs)
        if submissions.mounts is not None:
            assert submissions.user is not None
            request = BorrowFiles(submissions.user)
            response = await root.call(request, (submissions.mounts,), timeout=ANSWER_TIMEOUT_SECONDS)
            if isinstance(response, Failed):
                raise ForkError(response.reason)

    def _on_closed(self) -> None:
        self._root = None
