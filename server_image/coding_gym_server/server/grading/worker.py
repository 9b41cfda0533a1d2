"""``GradingWorker``: tests submissions from another process and in plain Python, and compares the output of programs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TypeVar

import msgspec

from coding_gym_server.ipc.async_channel import AsyncChannel, ChannelClosedError
from coding_gym_server.ipc.channel import close_all
from coding_gym_server.ipc.plain_messages import MAX_REPORT_BYTES, PlainReport, RunPlain, plain_reports
from coding_gym_server.ipc.question_messages import MAX_QUESTION_REPORT_BYTES, AskQuestions, QuestionReport, question_reports
from coding_gym_server.linux import oom
from coding_gym_server.protocol.grading import (
    Asserts,
    CaseOutcome,
    Graded,
    GradingLimits,
    GradingMode,
    Programs,
    Submission,
    TaskCheck,
    UnitTests,
    VerdictOutcome,
)
from coding_gym_server.remote_objects.program_messages import RunProgram
from coding_gym_server.server.grading.agreement import PlainRun, agreed, faithful, reason_of
from coding_gym_server.server.grading.builds import Builds
from coding_gym_server.server.grading.compiled_programs import CompiledPrograms
from coding_gym_server.server.grading.faithful.question_cache import QuestionCache
from coding_gym_server.server.grading.faithful.questions import Questions, make_questions
from coding_gym_server.server.grading.grading_slots import StartDeadline
from coding_gym_server.server.grading.not_run import not_run
from coding_gym_server.server.grading.program_delivery import NotStartedError, ProgramDelivery
from coding_gym_server.server.grading.program_run import Program, ProgramRun, peak_bytes_of
from coding_gym_server.server.grading.program_tests import ProgramTests, Talked
from coding_gym_server.server.grading.submission_host import ANSWER_TIMEOUT_SECONDS, SubmissionHost
from coding_gym_server.server.grading.submission_run import SubmissionRun, TalkEnds, open_talk
from coding_gym_server.server.grading.test_runners import TestRunnerLostError, TestRunners
from coding_gym_server.server.process_limiter import ProcessGroup
from coding_gym_server.server.supervisor.systems import SessionSystem
from coding_gym_server.server.supervisor.zygote_handle import ZygoteHandle
from coding_gym_server.server.threads import in_thread
from coding_gym_server.test_runner.messages import Executing, TestsRun, TestSubmission
from coding_gym_server.workspace.fetching import read_files
from coding_gym_server.workspace.session_directory import SessionDirectory

__all__ = ["GradingWorker"]

_CHECK_RUNS = 2
"""How often a reference is run together with its tests before it is said to fail them: they may depend on chance."""

_Report = TypeVar("_Report", PlainReport, QuestionReport)


class GradingWorker:
    """Worker whose tests run in another process than the submission. Created by ``GradingWorker.open``.

    Args:
        host: Has the processes and files of the submissions.
        libraries: Names of the modules that they and the test runners have imported.
        test_runners: Root of test runners with their files.
        compiled: Programs of ``run`` that have been compiled before; submissions share none.
        builds: Programs in other languages that have been compiled before.
        questions: The questions of tasks of the faithful mode.

    Attributes:
        libraries: Names of the modules that its processes have imported before a submission arrives, as far as they are
            installed.
        user: Id of the submissions' user, None if they have the server's user and no separate mounts.
        root_pid: Process id of the root, the ancestor of all processes of the submission.
    """

    def __init__(
        self,
        host: SubmissionHost,
        libraries: frozenset[str],
        test_runners: TestRunners,
        compiled: CompiledPrograms,
        builds: Builds,
        questions: QuestionCache,
    ) -> None:
        self.libraries = libraries
        self.user = host.user
        self.root_pid = host.root_pid
        self._host = host
        self._kill_reason = ""
        self._test_runners = test_runners
        self._compiled = compiled
        self._builds = builds
        self._questions = questions

    @classmethod
    async def open(
        cls,
        system: SessionSystem,
        libraries: frozenset[str],
        *,
        zygote: ZygoteHandle,
        compiled: CompiledPrograms,
        builds: Builds,
        questions: QuestionCache,
    ) -> GradingWorker:
        """Create a grading worker.

        Args:
            system: User and files of the submissions.
            libraries: Names of the modules to import for submissions and their tests.
            zygote: Forks the roots.
            compiled: Programs that have been compiled before.
            builds: Programs in other languages that have been compiled before.
            questions: The questions of tasks of the faithful mode.

        Raises:
            ForkError: If processes, memory or disk space are exhausted.
            ChannelClosedError: If a zygote or a started process died.
            TimeoutError: If a started process does not respond.
            OSError: If the directories cannot be created.
        """
        host = await SubmissionHost.start(system, libraries, zygote=zygote)
        try:
            return cls(host, libraries, await TestRunners.start(host, libraries, zygote), compiled, builds, questions)
        except BaseException:
            host.close()
            system.discard()
            raise

    @property
    def is_alive(self) -> bool:
        """Whether the processes that all submissions need are still running, as far as known."""
        return self._host.is_alive and self._test_runners.is_alive

    @property
    def is_recycling(self) -> bool:
        """Whether the submission's processes are being replaced by those of the next one."""
        return self._host.is_recycling

    @property
    def process_groups(self) -> list[ProcessGroup]:
        """Groups of processes, each of which is killed if it exhausts the processes of the sandbox."""
        return [self, self._test_runners]

    async def grade(self, submission: Submission, beside: GradingWorker | None = None) -> Graded:
        """Grade a submission; its errors are part of the result.

        Args:
            submission: The submission.
            beside: Runs its interactor, if it has one.

        Raises:
            FilesError: If one of its files cannot be written.
            ForkError: If processes, memory or disk space are exhausted.
            ChannelClosedError: If a process that the submission cannot reach died.
            TimeoutError: If a root does not respond.
        """
        began = time.perf_counter()
        oom.has_killed()
        self._kill_reason = ""
        graded = await self._grade(submission, beside)
        graded.seconds = time.perf_counter() - began
        await self._host.clean_up()
        return graded

    def kill_with_reason(self, reason: str) -> None:
        """Kill all processes of the submission immediately.

        Args:
            reason: Reported in its verdict: the resource that it has exhausted.
        """
        self._kill_reason = reason
        self._host.kill()

    def close(self) -> None:
        """Close the grading worker. Its files remain until they are removed."""
        self._host.close()
        self._test_runners.close()

    def take_directory(self) -> SessionDirectory:
        """Return the files of the submissions, which the worker does not access any more. Call it after ``close``."""
        return self._host.take_directory()

    @property
    def _roots(self) -> list[int]:
        return [group.root_pid for group in self.process_groups]

    async def _grade(self, submission: Submission, beside: GradingWorker | None) -> Graded:
        if isinstance(submission.tests, Programs):
            tests = ProgramTests(self._execute, partial(self._talk, beside), self._builds)
            return await tests.grade(submission, submission.tests)
        if submission.mode is GradingMode.FAITHFUL:
            return await self._ask_and_run(submission, submission.tests)
        graded, plain = await self._run_tests(submission, submission.tests)
        if submission.mode is not GradingMode.AGREEMENT:
            return graded
        graded.mode = GradingMode.AGREEMENT
        if graded.outcome is not VerdictOutcome.PASSED:
            return graded
        if _needs_questions(submission, graded.executed):
            asked = await self._ask_and_run(submission, submission.tests)
            return msgspec.structs.replace(asked, executed=graded.executed)
        if plain is not None and (both := agreed(graded, plain)).outcome is VerdictOutcome.PASSED:
            return both
        # What the first run has left behind may be the reason: a new process decides.
        return agreed(graded, await self._run_plain(submission, submission.tests))

    async def _run_tests(self, submission: Submission, tests: Asserts | UnitTests) -> tuple[Graded, PlainRun | None]:
        """Run tests apart from a submission and, in the agreement mode, let its process run those that it has passed.

        Returns:
            The results of both; None for the second one if there is none.
        """
        test_runners, limit = self._test_runners, submission.limits.max_output_chars
        with (
            await self._host.open_run(submission.files, max_stdout_chars=limit, max_stderr_chars=limit) as run,
            test_runners.fork(tests, run.connection) as test_runner,
        ):
            test_runner.send(TestSubmission(submission.code, submission.entry_point))
            report = test_runner.expect()
            # A test runner may end without a report, and nothing may have awaited it.
            report.add_done_callback(lambda report: report.cancelled() or report.exception())
            # Both processes are forked at the same time.
            await self._host.fork(run)
            tests_run = None
            with self._host.watch(submission.limits, run, roots=self._roots) as watch, contextlib.suppress(ChannelClosedError):
                tests_run = await watch.over(report)
            assert not isinstance(tests_run, Executing)
            continues = (
                submission.mode is GradingMode.AGREEMENT
                and tests_run is not None
                and tests_run.has_passed
                and not _needs_questions(submission, test_runners.executed)
            )
            cpu_seconds, plain = 0.0, None
            if continues:
                # The test runner has the other end of the connection, too.
                await test_runners.end()
            else:
                cpu_seconds, _ = await asyncio.gather(self._host.end(run), test_runners.end())
            self._kill_reason = self._kill_reason or test_runners.kill_reason
            if tests_run is None and not watch.expired and not self._kill_reason:
                raise TestRunnerLostError
            graded = self._verdict(submission, tests_run, run, expired=watch.expired)
            graded.executed = test_runners.executed
            if continues:
                plain = await self._continue_plain(submission, tests, run)
                cpu_seconds = await self._host.end(run)
            graded.cpu_seconds = cpu_seconds
            return graded, plain

    def _verdict(self, submission: Submission, tests_run: TestsRun | None, run: SubmissionRun, *, expired: bool) -> Graded:
        if tests_run is None:
            tests_run = TestsRun(is_loaded=True, is_lost=True, cases=not_run(submission))
        end = None
        if tests_run.is_lost:
            end = _end(expired=expired)
        cases = [
            msgspec.structs.replace(case, outcome=end or case.outcome) if case.outcome is CaseOutcome.KILLED else case
            for case in (tests_run.cases if tests_run.is_loaded else not_run(submission))
        ]
        if tests_run.has_passed:
            outcome = VerdictOutcome.PASSED
        elif end is not None:
            outcome = VerdictOutcome(end.value)
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
        )

    async def check(self, reference: Submission, beside: GradingWorker | None = None) -> TaskCheck:
        """Find out the mode that a task permits, by grading its reference.

        Args:
            reference: The reference, as a submission. Its mode does not matter.
            beside: As in ``grade``.

        Raises:
            As ``grade``.
        """
        graded = await self.grade(msgspec.structs.replace(reference, mode=GradingMode.ISOLATED), beside)
        has_passed = graded.outcome is VerdictOutcome.PASSED
        if isinstance(reference.tests, Programs):
            return TaskCheck(mode=GradingMode.ISOLATED, broken="" if has_passed else reason_of(graded))
        plain = PlainRun()
        for _ in range(_CHECK_RUNS):
            plain = await self._run_plain(reference, reference.tests)
            await self._host.clean_up()
            if plain.has_passed:
                break
        agrees = has_passed and agreed(graded, plain).outcome is VerdictOutcome.PASSED
        if agrees or not plain.has_passed:
            return TaskCheck(mode=GradingMode.AGREEMENT, broken=plain.reason)
        questions = await self._questions_of(msgspec.structs.replace(reference, reference=reference.code))
        await self._host.clean_up()
        return TaskCheck(mode=GradingMode.FAITHFUL, is_weak=questions.is_weak)

    async def _ask_and_run(self, submission: Submission, tests: Asserts | UnitTests) -> Graded:
        """Ask a submission all questions of its task, then run it together with the tests if it has answered all rightly."""
        questions = await self._questions_of(submission)
        ran, cpu_seconds = None, 0.0
        if len(questions):
            request = questions.request(submission.code, submission.entry_point)
            report, ran = await self._report(submission, request, question_reports, submission.limits)
            if report is not None:
                ran = replace(ran, error=report.plain.error, outcomes=questions.judge(report))
            cpu_seconds = ran.cpu_seconds
        if ran is None or ran.has_passed:
            ran = await self._run_plain(submission, tests)
            ran = replace(ran, cpu_seconds=ran.cpu_seconds + cpu_seconds)
        # Why it cannot be executed is found out without tests, which it could tell about.
        load_error = (await self._run_plain(submission, Asserts(cases=()))).error if ran.error else ""
        return faithful(questions, ran, load_error=load_error)

    async def _questions_of(self, submission: Submission) -> Questions:
        async def run(request: AskQuestions, limits: GradingLimits) -> tuple[QuestionReport | None, float]:
            report, ended = await self._report(submission, request, question_reports, limits)
            return report, ended.cpu_seconds

        return await self._questions.get(submission, lambda key: make_questions(submission, run, key))

    async def _run_plain(self, submission: Submission, tests: Asserts | UnitTests) -> PlainRun:
        """Run a submission together with its tests, in a new process."""
        request = _plain_request(submission, tests)
        return _as_claimed(*await self._report(submission, request, plain_reports, submission.limits))

    async def _continue_plain(self, submission: Submission, tests: Asserts | UnitTests, run: SubmissionRun) -> PlainRun:
        """Run a submission together with its tests, in the process that it has."""
        return _as_claimed(*await self._ask(run, _plain_request(submission, tests), plain_reports, submission.limits))

    async def _report(
        self,
        submission: Submission,
        request: RunPlain | AskQuestions,
        reports: msgspec.msgpack.Decoder[_Report],
        limits: GradingLimits,
    ) -> tuple[_Report | None, PlainRun]:
        """Let a new process run tests; return what it claims, None if it has ended before, and how it ended."""
        limit = submission.limits.max_output_chars
        with await self._host.open_run(submission.files, max_stdout_chars=limit, max_stderr_chars=limit) as run:
            await self._host.fork(run)
            report, ended = await self._ask(run, request, reports, limits)
            cpu_seconds = await self._host.end(run)
        return report, replace(ended, cpu_seconds=cpu_seconds)

    async def _ask(
        self,
        run: SubmissionRun,
        request: RunPlain | AskQuestions,
        reports: msgspec.msgpack.Decoder[_Report],
        limits: GradingLimits,
    ) -> tuple[_Report | None, PlainRun]:
        """Let a process run tests; return what it claims, None if it has ended before, and how it ended."""
        max_bytes = MAX_REPORT_BYTES if isinstance(request, RunPlain) else MAX_QUESTION_REPORT_BYTES
        channel: AsyncChannel[_Report] = AsyncChannel(
            run.connection, decoder=reports, unsolicited=(), max_bytes=max_bytes, is_trusted=False
        )
        report = None
        # If the channel is closed earlier, the submission has ended its process.
        with (
            contextlib.closing(channel),
            self._host.watch(limits, run, roots=self._roots) as watch,
            contextlib.suppress(ChannelClosedError),
        ):
            channel.send(request)
            report = await watch.over(channel.expect())
        return report, PlainRun(end=_end(expired=watch.expired) if report is None else None)

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
        await self._host.clean_up()
        if self._host.is_alive:
            await self._host.fork_ahead()

    async def _talk(self, beside: GradingWorker | None, program: Program, other: Program, compiled: CompiledPrograms) -> Talked:
        """Run a program, and another one beside it, each of which reads what the other one prints.

        Raises:
            As ``_execute``.
        """
        assert beside is not None
        order: list[GradingWorker] = []

        async def execute(worker: GradingWorker, program: Program, ends: TalkEnds) -> ProgramRun:
            try:
                return await worker._execute(program, compiled, StartDeadline(), ends)
            finally:
                # What the end of one does to the other one happens after this.
                order.append(worker)
                close_all(ends)

        ends, others_ends = open_talk()
        runs = [
            asyncio.ensure_future(execute(self, program, ends)),
            asyncio.ensure_future(execute(beside, other, others_ends)),
        ]
        try:
            run, others_run = await asyncio.gather(*runs)
        finally:
            for each in runs:
                each.cancel()
        await beside._host.clean_up()
        return Talked(run, others_run, is_first=order[0] is self)

    async def _execute(
        self, program: Program, compiled: CompiledPrograms, deadline: StartDeadline, talk: TalkEnds | None = None
    ) -> ProgramRun:
        """Run a program once.

        Raises:
            NotStartedError: If it was not started.
            FilesError: If one of its files cannot be written.
        """
        run = await self._host.start_run(program, talk)
        try:
            return await self._complete(run, program, compiled, deadline, keeps=talk is None)
        except NotStartedError:
            if not run.has_run:
                raise
        # The command before has ended the process.
        return await self._complete(await self._host.start_run(program), program, compiled, deadline, keeps=True)

    async def _complete(
        self, run: SubmissionRun, program: Program, compiled: CompiledPrograms, deadline: StartDeadline, *, keeps: bool
    ) -> ProgramRun:
        """Let a process run a program, and return how it ended.

        Args:
            run: The process.
            program: The program.
            compiled: Programs that have been compiled before.
            deadline: Until when it must have been started.
            keeps: Whether the process of a command waits for the next one.

        Raises:
            NotStartedError: If it was not started.
            FilesError: If its file cannot be written.
        """
        began = time.perf_counter()
        with run, contextlib.closing(ProgramDelivery(run, program.request, compiled)) as delivery:
            if program.ends_with_excess:
                run.stdout.on_excess = self._host.kill
            await delivery.send(deadline.within(ANSWER_TIMEOUT_SECONDS))
            with self._host.watch(program.limits, run, has_started=delivery.has_started, roots=self._roots) as watch:
                exited = await watch.over(run.ended)
            seconds = time.perf_counter() - began
            cpu_seconds = await self._host.end(run, delivery.command if keeps else None)
            delivery.check_started()
            stdout, stderr = run.take_output()
            is_truncated = run.stdout.is_truncated
        files: Mapping[str, bytes] = {}
        refused: tuple[str, ...] = ()
        if program.fetch:
            files, refused = await in_thread(read_files, self._host.directory.work, program.fetch)
        is_peak_known = isinstance(program.request, RunProgram) or delivery.command is not None
        return ProgramRun(
            exit_code=os.waitstatus_to_exitcode(exited.status) if exited is not None else -signal.SIGKILL,
            expired=watch.expired,
            peak_bytes=peak_bytes_of(exited, program.request) if exited is not None and is_peak_known else 0,
            kill_reason=self._kill_reason,
            stdout=stdout,
            is_truncated=is_truncated,
            stderr=stderr,
            seconds=seconds,
            cpu_seconds=cpu_seconds,
            files=files,
            refused=refused,
        )


def _needs_questions(submission: Submission, executed: str) -> bool:
    """Return whether what the tests have executed could have decided that a submission passes, and questions can be made."""
    return bool(executed) and submission.reference is not None


def _as_claimed(report: PlainReport | None, ended: PlainRun) -> PlainRun:
    """Return a run with what its process claims."""
    return ended if report is None else replace(ended, error=report.error, outcomes=report.outcomes)


def _plain_request(submission: Submission, tests: Asserts | UnitTests) -> RunPlain:
    return RunPlain(submission.code, submission.entry_point, tests)


def _end(*, expired: bool) -> CaseOutcome:
    """Return how a submission has ended that has not reported."""
    return CaseOutcome.TIMEOUT if expired else CaseOutcome.MEMORY if oom.has_killed() else CaseOutcome.KILLED
