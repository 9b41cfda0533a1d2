"""``BaseWorker``: the part of a grading worker that does not depend on how submissions are tested."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import NamedTuple

from coding_gym_server.ipc.messages import CpuTime, CpuTimeUsed, End, Ended, Failed, ForkWorker, WorkerForked
from coding_gym_server.linux import oom
from coding_gym_server.protocol.grading import (
    Asserts,
    CaseOutcome,
    CaseResult,
    FileContent,
    Graded,
    GradingLimits,
    Programs,
    Submission,
)
from coding_gym_server.server.grading.submission_processes import SubmissionProcesses
from coding_gym_server.server.grading.submission_run import LimitWatch, RunLimits, SubmissionRun
from coding_gym_server.server.process_limiter import ProcessGroup
from coding_gym_server.server.supervisor.zygote_handle import ForkError
from coding_gym_server.server.threads import in_thread
from coding_gym_server.workspace.session_directory import SessionDirectory

__all__ = ["BaseWorker", "not_run"]


class _WaitingRun(NamedTuple):
    """A process that waits for a submission.

    Attributes:
        run: Its connection and its output.
        ended: Its wait status.
    """

    run: SubmissionRun
    ended: asyncio.Future[int]


class BaseWorker(ABC):
    """Files and processes that grade one submission after the other.

    Args:
        processes: The processes of the submissions.
        libraries: Names of the modules that its processes have imported before a submission arrives.

    Attributes:
        libraries: Names of the modules that its processes have imported before a submission arrives, as far as they are
            installed.
        user: Id of the submissions' user, None if they have the server's user and no separate mounts.
        root_pid: Process id of the root, the ancestor of all processes of the submission.
        is_recycling: Whether the submission's processes are being replaced by those of the next one.
    """

    def __init__(self, processes: SubmissionProcesses, libraries: frozenset[str]) -> None:
        self.libraries = libraries
        self.user = processes.user
        self.root_pid = processes.root_pid
        self.is_recycling = False
        self._processes = processes
        self._kill_reason = ""
        self._has_files = False
        self._ahead: _WaitingRun | None = None

    @property
    def is_alive(self) -> bool:
        """Whether the processes that all submissions need are still running, as far as known."""
        return self._processes.is_alive

    @property
    def process_groups(self) -> list[ProcessGroup]:
        """Groups of processes, each of which is killed if it exhausts the processes of the sandbox."""
        return [self]

    async def grade(self, submission: Submission) -> Graded:
        """Grade a submission; its errors are part of the result.

        Raises:
            FilesError: If one of its files cannot be written.
            ForkError: If processes, memory or disk space are exhausted.
            ChannelClosedError: If a process that the submission cannot reach died.
            TimeoutError: If a root does not respond.
        """
        began = time.perf_counter()
        oom.has_killed()
        self._kill_reason = ""
        graded = await self._grade(submission)
        graded.seconds = time.perf_counter() - began
        await self._clean_up()
        return graded

    def kill_with_reason(self, reason: str) -> None:
        """Kill all processes of the submission immediately.

        Args:
            reason: Reported in its verdict: the resource that it has exhausted.
        """
        self._kill_reason = reason
        self._drop_ahead()
        self._processes.kill()

    def close(self) -> None:
        """Close the grading worker. Its files remain until they are removed."""
        self._drop_ahead()
        self._processes.close()

    def take_directory(self) -> SessionDirectory:
        """Return the files of the submissions, which the worker does not access any more. Call it after ``close``."""
        return self._processes.take_directory()

    @abstractmethod
    async def _grade(self, submission: Submission) -> Graded:
        """Grade a submission, with files and processes that no other one has."""

    async def _open_run(
        self, files: Mapping[str, str | FileContent], *, max_stdout_chars: int, max_stderr_chars: int
    ) -> SubmissionRun:
        """Write the files of a submission, the only ones, and open the descriptors of its process.

        Args:
            files: Initial content of the working directory.
            max_stdout_chars: Maximum number of characters that are kept of its stdout.
            max_stderr_chars: Maximum number of characters that are kept of its stderr.
        """
        if self._has_files:
            await self._empty()
        self._has_files = True
        if files:
            await in_thread(self._processes.directory.write, files)
        run = SubmissionRun.open()
        run.begin(max_stdout_chars=max_stdout_chars, max_stderr_chars=max_stderr_chars)
        return run

    async def fork_ahead(self) -> None:
        """Fork the process of the next submission, which waits for it, in the empty directories.

        Raises:
            ForkError: If processes or memory are exhausted.
            ChannelClosedError: If the root died.
            TimeoutError: If it does not respond.
        """
        if self._ahead is not None:
            return
        run = SubmissionRun.open()
        try:
            await self._fork(run)
        except BaseException:
            run.close()
            raise
        self._ahead = _WaitingRun(run, self._processes.expect_exit())

    def _take_ahead(self) -> _WaitingRun | None:
        """Return the process that waits for a submission, None if there is none, or it has been killed."""
        waiting = self._ahead
        if waiting is None or waiting.ended.done():
            self._drop_ahead()
            return None
        self._ahead = None
        return waiting

    def _drop_ahead(self) -> None:
        if self._ahead is not None:
            self._ahead.run.close()
            if self._ahead.ended.done():
                # If the root died, nothing else retrieves that.
                self._ahead.ended.exception()
            self._ahead = None

    async def _fork(self, run: SubmissionRun) -> None:
        """Fork the process of a submission, which replaces one that waits."""
        self._drop_ahead()
        self.is_recycling = True
        try:
            request = ForkWorker()
            answer = await self._processes.ask_root(request, run.descriptors)
        finally:
            self.is_recycling = False
            run.close_descriptors()
        if isinstance(answer, Failed):
            raise ForkError(answer.reason)
        assert isinstance(answer, WorkerForked)
        run.cpu_before = answer.cpu_seconds

    async def _clean_up(self) -> None:
        """Remove files in memory, which must not remain until the next submission."""
        try:
            await self._empty()
        except OSError:
            # Without processes, the worker is discarded, and its file system with it.
            self._processes.close()

    async def _empty(self) -> None:
        """Remove what a submission and its tests have left.

        Raises:
            OSError: If something cannot be removed.
        """
        directory = self._processes.directory
        if not directory.empty_if_bare():
            await in_thread(directory.empty)
        self._has_files = False

    async def _end(self, run: SubmissionRun) -> float:
        """Kill all remaining processes; returns the CPU time used, in seconds."""
        answer = await self._processes.ask_root(End())
        assert isinstance(answer, Ended)
        return answer.cpu_seconds - run.cpu_before

    def _watch(
        self, limits: GradingLimits | RunLimits, run: SubmissionRun, *, has_started: Callable[[], bool] = lambda: True
    ) -> LimitWatch:
        async def cpu_time() -> float:
            answer = await self._processes.ask_root(CpuTime())
            assert isinstance(answer, CpuTimeUsed)
            return answer.seconds - run.cpu_before

        roots = [group.root_pid for group in self.process_groups]
        return LimitWatch(limits, kill=self._processes.kill, cpu_time=cpu_time, roots=roots, has_started=has_started)


def not_run(submission: Submission) -> list[CaseResult]:
    """Return the results of tests, none of which was run."""
    count = len(submission.tests.cases) if isinstance(submission.tests, Asserts | Programs) else 1
    return [CaseResult(name=str(number), outcome=CaseOutcome.NOT_RUN) for number in range(count)]
