"""The server's ends of the root of test runners, and of each test runner."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

from coding_gym_server.ipc.async_channel import AsyncChannel, ChannelClosedError
from coding_gym_server.ipc.library_messages import ImportLibraries
from coding_gym_server.ipc.messages import Failed
from coding_gym_server.ipc.zygote_messages import ForkTestRunnerRoot
from coding_gym_server.protocol.grading import Asserts, UnitTests
from coding_gym_server.server.grading.submission_host import ANSWER_TIMEOUT_SECONDS, IMPORT_TIMEOUT_SECONDS, SubmissionHost
from coding_gym_server.server.supervisor.zygote_handle import ForkError, ZygoteHandle
from coding_gym_server.test_runner.messages import (
    MAX_REPORT_BYTES,
    BorrowFiles,
    EndTests,
    Executing,
    FromTestRunner,
    FromTestRunnerRoot,
    RunTests,
    TestsEnded,
    test_runner_messages,
    test_runner_root_messages,
)
from coding_gym_server.workspace.session_directory import SubmissionDirectory

__all__ = ["TestRunnerLostError", "TestRunners"]


class TestRunnerLostError(RuntimeError):
    """A test runner ended without a report, or sent something else: its tests made it do so, or memory was exhausted."""

    def __init__(self) -> None:
        super().__init__("the process of the tests ended without a report")


class TestRunners:
    """Root of test runners with the files of submissions. Created by ``TestRunners.start``.

    Attributes:
        root_pid: Process id of the root, the ancestor of all processes of the tests.
        is_recycling: Whether the processes are being replaced; never, because there is none between two submissions.
        kill_reason: Why the test runner was killed: the resource that it has exhausted; empty if it was not.
        executed: Audit event by which it executed what the submission may have chosen; empty if it did not.
    """

    def __init__(self) -> None:
        self.root_pid = 0
        self.is_recycling = False
        self.kill_reason = ""
        self.executed = ""
        self._root: AsyncChannel[FromTestRunnerRoot] | None = None

    @classmethod
    async def start(cls, submissions: SubmissionHost, libraries: frozenset[str], zygote: ZygoteHandle) -> TestRunners:
        """Start the root.

        Args:
            submissions: Has the processes and files of the submissions that it tests.
            libraries: Names of modules that the root imports, as far as they are installed.
            zygote: Forks the root.

        Raises:
            ForkError: If processes or memory are exhausted.
            ChannelClosedError: If the zygote or the root died.
            TimeoutError: If the root does not respond.
        """
        test_runners = cls()
        try:
            ours, theirs = socket.socketpair()
            root = test_runners._root = AsyncChannel(
                ours, decoder=test_runner_root_messages, unsolicited=(), on_closed=test_runners._on_closed
            )
            files = submissions.directory
            path = str(files.path) if isinstance(files, SubmissionDirectory) else None
            with theirs:
                test_runners.root_pid = await zygote.fork_test_runner_root(ForkTestRunnerRoot(path), theirs)
            if submissions.mounts is not None:
                assert submissions.user is not None
                request = BorrowFiles(submissions.user)
                response = await root.call(request, (submissions.mounts,), timeout=ANSWER_TIMEOUT_SECONDS)
                if isinstance(response, Failed):
                    raise ForkError(response.reason)
            if libraries:
                await root.call(ImportLibraries(sorted(libraries)), timeout=IMPORT_TIMEOUT_SECONDS)
        except BaseException:
            test_runners.close()
            raise
        return test_runners

    @property
    def is_alive(self) -> bool:
        """Whether the root is still running, as far as known."""
        return self._root is not None

    @contextlib.contextmanager
    def fork(self, tests: Asserts | UnitTests, connection: socket.socket) -> Iterator[AsyncChannel[FromTestRunner]]:
        """Let the root fork a test runner; yield the channel to it, which is closed afterwards.

        Nothing that a test runner sends is trusted beyond the results of its submission: messages of limited size are read, and
        descriptors are not received.

        Args:
            tests: The tests.
            connection: The tests' end of the connection with the submission.

        Raises:
            ChannelClosedError: If the root died.
        """
        if self._root is None:
            raise ChannelClosedError
        self.kill_reason = self.executed = ""
        ours, theirs = socket.socketpair()
        channel = AsyncChannel(
            ours,
            decoder=test_runner_messages,
            unsolicited=Executing,
            on_message=self._on_message,
            max_bytes=MAX_REPORT_BYTES,
        )
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

    def _on_message(self, message: FromTestRunner) -> None:
        # Only the first report is certain to be that of the test runner itself.
        if isinstance(message, Executing):
            self.executed = self.executed or message.event

    def _on_closed(self) -> None:
        self._root = None
