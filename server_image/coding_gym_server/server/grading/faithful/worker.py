"""``FaithfulWorker``: runs each test in a process with the submission, forked for this test alone."""

from __future__ import annotations

import secrets
import time

import msgspec

from coding_gym_server.ipc.async_channel import AsyncChannel, ChannelClosedError
from coding_gym_server.ipc.messages import CpuTime, CpuTimeUsed
from coding_gym_server.ipc.zygote_messages import FAITHFUL
from coding_gym_server.linux import oom
from coding_gym_server.protocol.grading import CaseOutcome, Graded, GradingLimits, Submission
from coding_gym_server.server.grading.base_worker import BaseWorker
from coding_gym_server.server.grading.faithful.canary_pool import CanaryPool, GuardedTest
from coding_gym_server.server.grading.faithful.pool_cache import PoolCache
from coding_gym_server.server.grading.faithful.runs import ProcessRun
from coding_gym_server.server.grading.faithful.validation import Validation
from coding_gym_server.server.grading.faithful.verdict import grade
from coding_gym_server.server.grading.submission_processes import SubmissionProcesses
from coding_gym_server.server.grading.submission_run import LimitWatch, SubmissionRun
from coding_gym_server.server.supervisor.systems import SessionSystem
from coding_gym_server.server.supervisor.zygote_handle import ZygoteHandle
from coding_gym_server.submission.faithful_messages import (
    CollectedTest,
    CollectTests,
    Framework,
    FromFaithfulProcess,
    Loaded,
    LoadFailed,
    LoadSubmission,
    RunOutcome,
    RunTest,
    TestRan,
    TestsCollected,
    from_faithful_process,
)

__all__ = ["FaithfulWorker"]

_NEGLIGIBLE_LOAD = 0.05

_OUTCOMES = {
    RunOutcome.PASSED: CaseOutcome.PASSED,
    RunOutcome.SKIPPED: CaseOutcome.PASSED,
    RunOutcome.FAILED: CaseOutcome.FAILED,
    RunOutcome.ERROR: CaseOutcome.ERROR,
}


class _NoMessage(msgspec.Struct):
    """Placeholder for unsolicited messages, which these processes never send."""


class FaithfulWorker(BaseWorker):
    """Worker whose tests run in the process of the submission. Created by ``FaithfulWorker.open``.

    Args:
        processes: The processes of the submissions.
        libraries: Names of the modules that have been imported for their tests, as far as they are installed.
        pools: Canary pools of all workers.
    """

    def __init__(
        self,
        processes: SubmissionProcesses,
        libraries: frozenset[str],
        *,
        pools: PoolCache,
    ) -> None:
        super().__init__(processes, libraries)
        self._pools = pools

    @classmethod
    async def open(
        cls,
        system: SessionSystem,
        libraries: frozenset[str],
        *,
        zygote: ZygoteHandle,
        pools: PoolCache,
    ) -> FaithfulWorker:
        """Create a grading worker.

        Args:
            system: User and files of the submissions.
            libraries: Names of the modules to import for their tests.
            zygote: Forks the root.
            pools: Canary pools of all workers.

        Raises:
            ForkError: If processes, memory or disk space are exhausted.
            ChannelClosedError: If the zygote or the root died.
            TimeoutError: If the root does not respond.
            OSError: If the directories cannot be created.
        """
        processes = await SubmissionProcesses.start(system, libraries, zygote=zygote, backend=FAITHFUL)
        return cls(processes, libraries, pools=pools)

    async def _grade(self, submission: Submission) -> Graded:
        async def run(code: str, test: GuardedTest, source: str, limits: GradingLimits) -> ProcessRun:
            return await self._run(submission, code, test, source, limits)

        async def collect(source: str, framework: Framework) -> list[CollectedTest] | None:
            return await self._collect(submission, source, framework)

        async def build() -> CanaryPool:
            return await Validation(submission, run=run, collect=collect).pool()

        pool = await self._pools.get(submission, build)
        graded = await grade(submission, pool, run)
        graded.message = self._kill_reason or graded.message
        return graded

    async def _collect(self, submission: Submission, source: str, framework: Framework) -> list[CollectedTest] | None:
        """Return the tests of a module that is executed with the reference; None if that fails."""
        assert submission.reference is not None
        process = await self._start(submission, submission.limits)
        async with process:
            loaded = await process.ask(LoadSubmission(submission.reference, None))
            answer = await process.ask(CollectTests(source, framework)) if isinstance(loaded, Loaded) else None
        return answer.tests if isinstance(answer, TestsCollected) else None

    async def _run(
        self, submission: Submission, code: str, test: GuardedTest, source: str, limits: GradingLimits
    ) -> ProcessRun:
        ran = ProcessRun()
        began = time.perf_counter()
        process = await self._start(submission, limits)
        async with process:
            answer = await process.ask(LoadSubmission(code, submission.entry_point))
            ran.load_seconds = time.perf_counter() - began
            if isinstance(answer, LoadFailed):
                ran.outcome, ran.message = CaseOutcome.ERROR, answer.message
            elif isinstance(answer, Loaded):
                ran.is_loaded = True
                if ran.load_seconds > _NEGLIGIBLE_LOAD:
                    ran.load_cpu_seconds = await process.cpu_time()
                token = secrets.token_hex(16)
                request = RunTest(
                    source=source,
                    framework=test.framework,
                    test=test.id,
                    earlier=test.earlier,
                    token=token,
                )
                answer = await process.ask(request)
                if isinstance(answer, TestRan) and answer.token == token:
                    ran.outcome = _OUTCOMES[answer.outcome]
                    ran.is_skipped = answer.outcome is RunOutcome.SKIPPED
        if process.watch.expired:
            ran.outcome = CaseOutcome.TIMEOUT
        elif ran.outcome is CaseOutcome.KILLED and oom.has_killed():
            ran.outcome = CaseOutcome.MEMORY
        ran.cpu_seconds = process.cpu_seconds
        ran.seconds = time.perf_counter() - began
        return ran

    async def _start(self, submission: Submission, limits: GradingLimits) -> _Process:
        """Fork a process, with files that no earlier one has had."""
        run = await self._open_run(submission.files, max_stdout_chars=0, max_stderr_chars=submission.limits.max_output_chars)
        try:
            await self._fork(run)
        except BaseException:
            run.close()
            raise
        return _Process(self, run, self._watch(limits, run))


class _Process:
    """A process with a submission and one test.

    Args:
        worker: Its worker.
        run: Its descriptors.
        watch: Kills it when it exceeds its limits.

    Attributes:
        watch: Kills it when it exceeds its limits.
        cpu_seconds: CPU time that it has used, when it has ended.
    """

    def __init__(self, worker: FaithfulWorker, run: SubmissionRun, watch: LimitWatch) -> None:
        self.watch = watch
        self.cpu_seconds = 0.0
        self._worker = worker
        self._run = run
        self._channel: AsyncChannel[FromFaithfulProcess] = AsyncChannel(
            run.connection, decoder=from_faithful_process, unsolicited=_NoMessage, is_trusted=False
        )

    async def __aenter__(self) -> _Process:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.watch.stop()
        self._channel.close()
        try:
            self.cpu_seconds = await self._worker._end(self._run)
        finally:
            self._run.close()

    async def ask(self, request: msgspec.Struct) -> FromFaithfulProcess | None:
        """Send a request; return the response, None if the process has ended."""
        try:
            self._channel.send(request)
            return await self.watch.over(self._channel.expect())
        except ChannelClosedError:
            return None

    async def cpu_time(self) -> float:
        """Return the CPU time that it has used so far."""
        answer = await self._worker._processes.ask_root(CpuTime())
        assert isinstance(answer, CpuTimeUsed)
        return answer.seconds - self._run.cpu_before
