"""``GradingWorker``: grades one submission at a time, with processes and a file system that all its submissions have."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import time

import msgspec

from coding_gym_server.ipc.channel import HEADER
from coding_gym_server.ipc.messages import CpuTime, CpuTimeUsed, End, Ended, Failed, ForkWorker, WorkerForked
from coding_gym_server.ipc.streams import open_output_pipes
from coding_gym_server.ipc.text import truncate_middle
from coding_gym_server.linux import oom
from coding_gym_server.protocol.grading import (
    Asserts,
    CaseOutcome,
    CaseResult,
    Graded,
    GradingLimits,
    ProgramCase,
    Programs,
    Submission,
    UnitTests,
    VerdictOutcome,
)
from coding_gym_server.remote_objects.exchange import RunProgram
from coding_gym_server.server.grading.output_match import is_same_output
from coding_gym_server.server.grading.processes import GradingProcesses
from coding_gym_server.server.grading.submission_run import LimitWatch, SubmissionRun
from coding_gym_server.server.supervisor.output_capture import OutputCapture
from coding_gym_server.server.supervisor.systems import System
from coding_gym_server.server.supervisor.zygote_handle import ForkError, ZygoteHandle
from coding_gym_server.test_runner.messages import RunTests, TestsRun
from coding_gym_server.workspace.session_directory import SessionDirectory

__all__ = ["GradingWorker", "not_run"]

_EXTRA_OUTPUT_CHARS = 4096
"""Number of characters that a program may print beyond the expected output before the middle is dropped."""

_END_OF = {
    CaseOutcome.TIMEOUT: VerdictOutcome.TIMEOUT,
    CaseOutcome.MEMORY: VerdictOutcome.MEMORY,
    CaseOutcome.KILLED: VerdictOutcome.KILLED,
}


class GradingWorker:
    """Files and processes that grade one submission after the other. Created by ``GradingWorker.open``.

    Args:
        processes: The processes.
        user: Id of the submissions' user, None if they have the server's user and no mounts of their own.

    Attributes:
        user: Id of the submissions' user, None if they have the server's user and no mounts of their own.
        root_pid: Process id of the root, the ancestor of all processes of the submission.
        is_recycling: Whether the submission's processes are being replaced by those of the next one.
    """

    def __init__(self, processes: GradingProcesses, user: int | None) -> None:
        self.user = user
        self.root_pid = processes.root_pid
        self.is_recycling = False
        self._processes = processes
        self._directory = processes.directory
        self._kill_reason = ""
        self._has_files = False

    @classmethod
    async def open(cls, system: System, *, zygote: ZygoteHandle, submission_zygote: ZygoteHandle) -> GradingWorker:
        """Create a grading worker; see ``GradingProcesses.start``."""
        processes = await GradingProcesses.start(system, zygote=zygote, submission_zygote=submission_zygote)
        return cls(processes, system.user)

    @property
    def is_alive(self) -> bool:
        """Whether the root and the test runner are still running, as far as known."""
        return self._processes.are_alive

    async def grade(self, submission: Submission) -> Graded:
        """Grade a submission; its errors are part of the result.

        Raises:
            FilesError: If one of its files cannot be written.
            ForkError: If processes, memory or disk space are exhausted.
            ChannelClosedError: If the root or the test runner died.
            TimeoutError: If the root does not respond.
        """
        began = time.perf_counter()
        oom.has_killed()
        self._kill_reason = ""
        if isinstance(submission.tests, Programs):
            graded = await self._run_programs(submission, submission.tests)
        else:
            graded = await self._run_tests(submission, submission.tests)
        graded.seconds = time.perf_counter() - began
        if self._directory.name is None:
            # Files in memory must not remain until the next submission.
            try:
                await self._empty()
            except OSError:
                # Without processes, the worker is discarded, and its file system with it.
                self._processes.close()
        return graded

    def kill_with_reason(self, reason: str) -> None:
        """Kill all processes of the submission immediately.

        Args:
            reason: Reported in its verdict: the resource that it has exhausted.
        """
        self._kill_reason = reason
        self._processes.kill()

    def close(self) -> None:
        """Close the grading worker. Its files remain until they are removed."""
        self._processes.close()

    def take_directory(self) -> SessionDirectory:
        """Return the files of the submissions, which the worker does not access any more. Call it after ``close``."""
        directory = self._directory
        del self._directory, self._processes.directory
        return directory

    async def _run_tests(self, submission: Submission, tests: Asserts | UnitTests) -> Graded:
        run = await self._fork(submission, submission.limits.max_output_chars)
        with run, run.connection:
            test_runner = self._processes.test_runner
            request = RunTests(code=submission.code, entry_point=submission.entry_point, tests=tests)
            watch = self._watch(submission.limits, run)
            try:
                test_runner.send(request, (run.connection.fileno(),))
                tests_run = await watch.over(test_runner.expect())
            finally:
                watch.stop()
            cpu_seconds = await self._end(run)
            if tests_run is None:
                # The test runner is stuck in a value from the submission, or in its own tests.
                await self._processes.replace_test_runner()
            assert isinstance(tests_run, TestsRun | None)
            return self._verdict(submission, tests_run, run, expired=watch.expired, cpu_seconds=cpu_seconds)

    def _verdict(
        self, submission: Submission, tests_run: TestsRun | None, run: SubmissionRun, *, expired: bool, cpu_seconds: float
    ) -> Graded:
        if tests_run is None:
            tests_run = TestsRun(is_loaded=True, is_lost=True, cases=not_run(submission))
        end = None
        if tests_run.is_lost:
            end = CaseOutcome.TIMEOUT if expired else CaseOutcome.MEMORY if oom.has_killed() else CaseOutcome.KILLED
        cases = list(tests_run.cases)
        if end is not None:
            cases = [
                msgspec.structs.replace(case, outcome=end) if case.outcome is CaseOutcome.KILLED else case for case in cases
            ]
        if not tests_run.is_loaded:
            cases = not_run(submission)
        if cases and all(case.outcome is CaseOutcome.PASSED for case in cases):
            outcome = VerdictOutcome.PASSED
        elif end is not None:
            outcome = _END_OF[end]
        else:
            outcome = VerdictOutcome.FAILED if tests_run.is_loaded else VerdictOutcome.ERROR
        stdout, stderr = run.take_output()
        return Graded(
            outcome=outcome,
            cases=tuple(cases),
            message=self._kill_reason or tests_run.message,
            stdout=stdout,
            stderr=stderr,
            load_seconds=tests_run.load_seconds,
            cpu_seconds=cpu_seconds,
        )

    async def _run_programs(self, submission: Submission, tests: Programs) -> Graded:
        graded = Graded(outcome=VerdictOutcome.PASSED)
        cases: list[CaseResult] = []
        for number, case in enumerate(tests.cases):
            result, stdout, stderr, cpu_seconds = await self._run_program(str(number), submission, case, tests.tolerance)
            cases.append(result)
            graded.cpu_seconds += cpu_seconds
            if result.outcome is not CaseOutcome.PASSED and graded.outcome is VerdictOutcome.PASSED:
                graded.outcome = _END_OF.get(result.outcome, VerdictOutcome.FAILED)
                graded.stdout, graded.stderr = stdout, stderr
            if result.outcome is CaseOutcome.TIMEOUT:
                break
        if cases and all(case.outcome is CaseOutcome.ERROR for case in cases):
            graded.outcome = VerdictOutcome.ERROR
            graded.message = cases[0].message
        graded.cases = (*cases, *not_run(submission)[len(cases) :])
        return graded

    async def _run_program(
        self, name: str, submission: Submission, case: ProgramCase, tolerance: float | None
    ) -> tuple[CaseResult, str, str, float]:
        """Run a program once; returns the result, stdout, stderr, and the CPU time used in seconds."""
        began = time.perf_counter()
        max_output_chars = max(len(case.stdout) + _EXTRA_OUTPUT_CHARS, submission.limits.max_output_chars)
        run = await self._fork(submission, max_output_chars)
        request = msgspec.msgpack.encode(RunProgram(submission.code, case.stdin))
        ended = self._processes.expect_exit()
        with run, run.connection:
            watch = self._watch(submission.limits, run)
            sending = asyncio.ensure_future(_send(run.connection, HEADER.pack(len(request)) + request))
            try:
                status = await watch.over(ended)
            finally:
                watch.stop()
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)
            cpu_seconds = await self._end(run)
            stdout, stderr = run.take_output()
        exit_code = os.waitstatus_to_exitcode(status) if status is not None else -signal.SIGKILL
        outcome, message = self._case_outcome(exit_code, stdout, stderr, case, tolerance, expired=watch.expired)
        limit = submission.limits.max_output_chars
        result = CaseResult(name=name, outcome=outcome, message=message, seconds=time.perf_counter() - began)
        return result, truncate_middle(stdout, limit), truncate_middle(stderr, limit), cpu_seconds

    def _case_outcome(
        self, exit_code: int, stdout: str, stderr: str, case: ProgramCase, tolerance: float | None, *, expired: bool
    ) -> tuple[CaseOutcome, str]:
        if expired:
            return CaseOutcome.TIMEOUT, "it exceeded the time limit"
        if exit_code < 0:
            killed = CaseOutcome.MEMORY if exit_code == -signal.SIGKILL and oom.has_killed() else CaseOutcome.KILLED
            return killed, self._kill_reason or f"signal {-exit_code} killed it"
        if exit_code > 0:
            last = stderr.rstrip().rpartition("\n")[2]
            return CaseOutcome.ERROR, f"exit code {exit_code}: {last}" if last else f"exit code {exit_code}"
        if not is_same_output(stdout, case.stdout, tolerance=tolerance):
            return CaseOutcome.FAILED, "its output differs from the expected output"
        return CaseOutcome.PASSED, ""

    async def _fork(self, submission: Submission, max_output_chars: int) -> SubmissionRun:
        """Fork a process for a submission, among only its files."""
        if self._has_files:
            await self._empty()
        self._has_files = True
        if submission.files:
            await asyncio.to_thread(self._directory.write, submission.files)
        ours, theirs = socket.socketpair()
        (out_read, out_write), (err_read, err_write) = open_output_pipes()
        run = SubmissionRun(
            ours,
            OutputCapture(out_read, max_chars=max_output_chars),
            OutputCapture(err_read, max_chars=submission.limits.max_output_chars),
        )
        self.is_recycling = True
        try:
            descriptors = (theirs.fileno(), out_write, err_write)
            answer = await self._processes.ask_root(ForkWorker(self._directory.name), descriptors)
            if isinstance(answer, Failed):
                raise ForkError(answer.reason)
            assert isinstance(answer, WorkerForked)
        except BaseException:
            run.close()
            ours.close()
            raise
        finally:
            self.is_recycling = False
            theirs.close()
            os.close(out_write)
            os.close(err_write)
        run.cpu_before = answer.cpu_seconds
        return run

    async def _empty(self) -> None:
        """Remove what a submission and its tests have left.

        Raises:
            OSError: If something cannot be removed.
        """
        if not self._directory.empty_if_bare():
            await asyncio.to_thread(self._directory.empty)
        self._has_files = False

    async def _end(self, run: SubmissionRun) -> float:
        """Kill all remaining processes; returns the CPU time used, in seconds."""
        answer = await self._processes.ask_root(End())
        assert isinstance(answer, Ended)
        return answer.cpu_seconds - run.cpu_before

    def _watch(self, limits: GradingLimits, run: SubmissionRun) -> LimitWatch:
        async def cpu_time() -> float:
            return await self._cpu_time() - run.cpu_before

        return LimitWatch(limits, kill=self._processes.kill, cpu_time=cpu_time)

    async def _cpu_time(self) -> float:
        answer = await self._processes.ask_root(CpuTime())
        assert isinstance(answer, CpuTimeUsed)
        return answer.seconds


async def _send(connection: socket.socket, data: bytes) -> None:
    connection.setblocking(False)
    with contextlib.suppress(OSError):
        await asyncio.get_running_loop().sock_sendall(connection, data)


def not_run(submission: Submission) -> list[CaseResult]:
    """Return the results of tests, none of which was run."""
    count = len(submission.tests.cases) if isinstance(submission.tests, Asserts | Programs) else 1
    return [CaseResult(name=str(number), outcome=CaseOutcome.NOT_RUN) for number in range(count)]
