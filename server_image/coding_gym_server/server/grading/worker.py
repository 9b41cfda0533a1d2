"""``GradingWorker``: tests submissions from another process, and compares the output of programs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator, Mapping

import msgspec

from coding_gym_server.ipc.async_channel import ChannelClosedError
from coding_gym_server.ipc.text import truncate_middle
from coding_gym_server.linux import oom
from coding_gym_server.protocol.grading import (
    Asserts,
    CaseOutcome,
    CaseResult,
    Graded,
    ProgramCase,
    Programs,
    Submission,
    UnitTests,
    VerdictOutcome,
)
from coding_gym_server.remote_objects.program_messages import RunProgram
from coding_gym_server.server.grading.base_worker import BaseWorker, not_run
from coding_gym_server.server.grading.compiled_programs import CompiledPrograms
from coding_gym_server.server.grading.grading_slots import StartDeadline
from coding_gym_server.server.grading.output_match import is_same_output
from coding_gym_server.server.grading.program_delivery import ProgramDelivery
from coding_gym_server.server.grading.program_run import Program, ProgramRun
from coding_gym_server.server.grading.submission_processes import ANSWER_TIMEOUT_SECONDS, SubmissionProcesses
from coding_gym_server.server.grading.submission_run import SubmissionRun
from coding_gym_server.server.grading.test_runners import TestRunnerLostError, TestRunners
from coding_gym_server.server.process_limiter import ProcessGroup
from coding_gym_server.server.supervisor.systems import SessionSystem
from coding_gym_server.server.supervisor.zygote_handle import ZygoteHandle
from coding_gym_server.server.threads import in_thread
from coding_gym_server.test_runner.messages import TestsRun, TestSubmission
from coding_gym_server.workspace.fetching import read_files

__all__ = ["GradingWorker"]

_MAX_COMPILED_BYTES = 32 << 20
"""Maximum total size of the compiled programs of one grading."""

_EXTRA_OUTPUT_CHARS = 4096
"""Number of characters that a program may print beyond the expected output before the middle is dropped."""

_END_OF = {
    CaseOutcome.TIMEOUT: VerdictOutcome.TIMEOUT,
    CaseOutcome.MEMORY: VerdictOutcome.MEMORY,
    CaseOutcome.KILLED: VerdictOutcome.KILLED,
}


class GradingWorker(BaseWorker):
    """Worker whose tests run in another process than the submission. Created by ``GradingWorker.open``.

    Args:
        processes: The processes of the submissions.
        libraries: Names of the modules that they and the test runners have imported.
        test_runners: Root of test runners with their files.
        compiled: Programs of ``run`` that have been compiled before; submissions share none.
    """

    def __init__(
        self,
        processes: SubmissionProcesses,
        libraries: frozenset[str],
        test_runners: TestRunners,
        compiled: CompiledPrograms,
    ) -> None:
        super().__init__(processes, libraries)
        self._test_runners = test_runners
        self._compiled = compiled

    @classmethod
    async def open(
        cls, system: SessionSystem, libraries: frozenset[str], *, zygote: ZygoteHandle, compiled: CompiledPrograms
    ) -> GradingWorker:
        """Create a grading worker.

        Args:
            system: User and files of the submissions.
            libraries: Names of the modules to import for submissions and their tests.
            zygote: Forks the roots.
            compiled: Programs that have been compiled before.

        Raises:
            ForkError: If processes, memory or disk space are exhausted.
            ChannelClosedError: If a zygote or a started process died.
            TimeoutError: If a started process does not respond.
            OSError: If the directories cannot be created.
        """
        processes = await SubmissionProcesses.start(system, libraries, zygote=zygote)
        try:
            return cls(processes, libraries, await TestRunners.start(processes, libraries, zygote), compiled)
        except BaseException:
            processes.close()
            system.discard()
            raise

    @property
    def is_alive(self) -> bool:
        return super().is_alive and self._test_runners.is_alive

    @property
    def process_groups(self) -> list[ProcessGroup]:
        return [*super().process_groups, self._test_runners]

    def close(self) -> None:
        super().close()
        self._test_runners.close()

    async def _grade(self, submission: Submission) -> Graded:
        if isinstance(submission.tests, Programs):
            return await self._run_programs(submission, submission.tests)
        return await self._run_tests(submission, submission.tests)

    async def _run_tests(self, submission: Submission, tests: Asserts | UnitTests) -> Graded:
        test_runners, limit = self._test_runners, submission.limits.max_output_chars
        with (
            await self._open_run(submission.files, max_stdout_chars=limit, max_stderr_chars=limit) as run,
            test_runners.fork(tests, run.connection) as test_runner,
        ):
            test_runner.send(TestSubmission(submission.code, submission.entry_point))
            report = test_runner.expect()
            # A test runner may end without a report, and nothing may have awaited it.
            report.add_done_callback(_retrieve)
            # Both processes are forked at the same time.
            await self._fork(run)
            watch = self._watch(submission.limits, run)
            try:
                tests_run = await watch.over(report)
            except ChannelClosedError:
                tests_run = None
            finally:
                watch.stop()
            cpu_seconds, _ = await asyncio.gather(self._end(run), test_runners.end())
            self._kill_reason = self._kill_reason or test_runners.kill_reason
            if tests_run is None and not watch.expired and not self._kill_reason:
                raise TestRunnerLostError
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
        compiled = CompiledPrograms(max_bytes=_MAX_COMPILED_BYTES)
        cases: list[CaseResult] = []
        for number, case in enumerate(tests.cases):
            result, run = await self._run_program(str(number), submission, case, tests.tolerance, compiled)
            cases.append(result)
            graded.cpu_seconds += run.cpu_seconds
            if result.outcome is not CaseOutcome.PASSED and graded.outcome is VerdictOutcome.PASSED:
                graded.outcome = _END_OF.get(result.outcome, VerdictOutcome.FAILED)
                graded.stdout = truncate_middle(run.stdout, submission.limits.max_output_chars)
                graded.stderr = run.stderr
            if result.outcome is CaseOutcome.TIMEOUT:
                break
        if cases and all(case.outcome is CaseOutcome.ERROR for case in cases):
            graded.outcome = VerdictOutcome.ERROR
            graded.message = cases[0].message
        graded.cases = (*cases, *not_run(submission)[len(cases) :])
        return graded

    async def _run_program(
        self, name: str, submission: Submission, case: ProgramCase, tolerance: float | None, compiled: CompiledPrograms
    ) -> tuple[CaseResult, ProgramRun]:
        limit = submission.limits.max_output_chars
        program = Program(
            request=RunProgram(submission.code, case.stdin),
            limits=submission.limits,
            files=submission.files,
            max_stdout_chars=max(len(case.stdout) + _EXTRA_OUTPUT_CHARS, limit),
            max_stderr_chars=limit,
        )
        run = await self._execute(program, compiled, StartDeadline())
        outcome, message = self._case_outcome(run, case, tolerance)
        return CaseResult(name=name, outcome=outcome, message=message, seconds=run.seconds), run

    async def run(self, program: Program, deadline: StartDeadline) -> ProgramRun:
        """Run a program; its errors are part of the result. ``settle`` must be called before the next one.

        Args:
            program: The program.
            deadline: Until when it must have been started.

        Raises:
            FilesError: If one of its files cannot be written.
            NotStartedError: If it was not started.
            ForkError: If processes, memory or disk space are exhausted.
            ChannelClosedError: If a process that the program cannot reach died.
            TimeoutError: If a root does not respond.
        """
        self._kill_reason = ""
        return await self._execute(program, self._compiled, deadline)

    async def settle(self) -> None:
        """Remove what the last program has left, and fork the process of the next one.

        Raises:
            ForkError: If processes or memory are exhausted.
            ChannelClosedError: If the root died.
            TimeoutError: If it does not respond.
        """
        try:
            await self._empty()
        except OSError:
            # Without processes, the worker is discarded, and its files with it.
            self.close()
            return
        await self.fork_ahead()

    @contextlib.asynccontextmanager
    async def _started(self, program: Program) -> AsyncIterator[tuple[SubmissionRun, asyncio.Future[int]]]:
        """Yield a process that waits for a program, and its wait status; close it afterwards."""
        limits = {"max_stdout_chars": program.max_stdout_chars, "max_stderr_chars": program.max_stderr_chars}
        if (waiting := self._take_ahead()) is None:
            with await self._open_run(program.files, **limits) as run:
                await self._fork(run)
                yield run, self._processes.expect_exit()
            return
        with waiting.run as run:
            self._has_files = True
            if program.files:
                await in_thread(self._processes.directory.write, program.files)
            run.begin(**limits)
            yield run, waiting.ended

    async def _execute(self, program: Program, compiled: CompiledPrograms, deadline: StartDeadline) -> ProgramRun:
        """Run a program once.

        Raises:
            NotStartedError: If it was not started.
            FilesError: If one of its files cannot be written.
        """
        began = time.perf_counter()
        async with self._started(program) as (run, ended):
            delivery = ProgramDelivery(run.connection, program.request, compiled)
            try:
                await delivery.send(deadline.within(ANSWER_TIMEOUT_SECONDS))
                watch = self._watch(program.limits, run, has_started=delivery.has_started)
                try:
                    status = await watch.over(ended)
                finally:
                    watch.stop()
                seconds = time.perf_counter() - began
                cpu_seconds = await self._end(run)
                delivery.check_started()
            finally:
                delivery.close()
            stdout, stderr = run.take_output()
        files: Mapping[str, bytes] = {}
        refused: tuple[str, ...] = ()
        if program.fetch:
            files, refused = await in_thread(read_files, self._processes.directory.work, program.fetch)
        return ProgramRun(
            exit_code=os.waitstatus_to_exitcode(status) if status is not None else -signal.SIGKILL,
            expired=watch.expired,
            kill_reason=self._kill_reason,
            stdout=stdout,
            stderr=stderr,
            seconds=seconds,
            cpu_seconds=cpu_seconds,
            files=files,
            refused=refused,
        )

    def _case_outcome(self, run: ProgramRun, case: ProgramCase, tolerance: float | None) -> tuple[CaseOutcome, str]:
        if run.expired:
            return CaseOutcome.TIMEOUT, "it exceeded the time limit"
        if run.exit_code < 0:
            killed = CaseOutcome.MEMORY if run.exit_code == -signal.SIGKILL and oom.has_killed() else CaseOutcome.KILLED
            return killed, run.kill_reason or f"signal {-run.exit_code} killed it"
        if run.exit_code > 0:
            last = run.stderr.rstrip().rpartition("\n")[2]
            return CaseOutcome.ERROR, f"exit code {run.exit_code}: {last}" if last else f"exit code {run.exit_code}"
        if not is_same_output(run.stdout, case.stdout, tolerance=tolerance):
            return CaseOutcome.FAILED, "its output differs from the expected output"
        return CaseOutcome.PASSED, ""


def _retrieve(report: asyncio.Future[TestsRun]) -> None:
    if not report.cancelled():
        report.exception()
