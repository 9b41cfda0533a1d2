"""``GradingService``: assigns each submission to a grading worker, and starts and discards the workers."""

from __future__ import annotations

import asyncio
import itertools
import logging
import signal
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from coding_gym_server.ipc.async_channel import ChannelClosedError
from coding_gym_server.ipc.zygote_messages import SUBMISSION
from coding_gym_server.isolation.profile import IsolationProfile
from coding_gym_server.protocol.grading import Graded, GradingMode, Programs, Submission, TaskCheck, VerdictOutcome
from coding_gym_server.server.grading.builds import Builds
from coding_gym_server.server.grading.compiled_programs import CompiledPrograms
from coding_gym_server.server.grading.faithful.question_cache import QuestionCache
from coding_gym_server.server.grading.grading_slots import GradingSlots, OverloadedError, StartDeadline
from coding_gym_server.server.grading.libraries import are_light, mentioned_libraries
from coding_gym_server.server.grading.not_run import not_run
from coding_gym_server.server.grading.program_delivery import NotStartedError
from coding_gym_server.server.grading.program_run import Program, ProgramRun
from coding_gym_server.server.grading.test_runners import TestRunnerLostError
from coding_gym_server.server.grading.worker import GradingWorker
from coding_gym_server.server.measurements import Measurements
from coding_gym_server.server.process_limiter import ProcessGroup
from coding_gym_server.server.supervisor.session_zygotes import SessionZygotes
from coding_gym_server.server.supervisor.systems import OwnSystem, SessionSystem, SubmissionSystem
from coding_gym_server.server.supervisor.zygote_handle import ForkError, ZygoteHandle
from coding_gym_server.server.threads import start_in_thread
from coding_gym_server.zygote.config import ZygoteConfig

__all__ = ["INFRASTRUCTURE_ERRORS", "GradingService"]

_log = logging.getLogger(__name__)

# EOFError: without the launcher, no zygote can start.
INFRASTRUCTURE_ERRORS = (ForkError, NotStartedError, OSError, EOFError)

_PRELOAD = (
    *("abc", "bisect", "cmath", "collections", "copy", "dataclasses", "datetime", "decimal", "enum", "fractions", "functools"),
    *("heapq", "io", "itertools", "json", "math", "operator", "random", "re", "statistics", "string", "typing"),
)
"""Modules that submissions import most often, and that add almost no cost to a fork."""

_WORKERS_PER_SLOT = 3
"""Number of workers, of each mode and with other libraries, that are kept for each submission that is graded concurrently."""

_MAX_COMPILED_BYTES = 32 << 20
_MAX_BUILT_BYTES = 128 << 20

_Result = TypeVar("_Result")


class _LostError(Exception):
    """Two workers were lost to the same submission; its cause tells how the second was."""


class GradingService:
    """Grades submissions in parallel.

    Args:
        zygotes: That of the backend ``python`` forks the roots of workers with heavy libraries.
        base: Parent directory of those of submissions without namespaces.
        workers: Maximum number of grading workers.
        profile: Isolation profile of sessions.
        overlay: Directory of packages in addition to the interpreter's, None if there are none.
        measurements: Counts submissions and programs, unless they are invalid.

    Attributes:
        slots: Slots of the submissions and programs that run at the same time.
        builds: Programs that have been compiled.
    """

    def __init__(
        self,
        zygotes: SessionZygotes,
        base: Path,
        *,
        workers: int,
        profile: IsolationProfile,
        overlay: Path | None,
        measurements: Measurements,
    ) -> None:
        self._measurements = measurements
        self._overlay = None if overlay is None else str(overlay)
        self._zygotes = zygotes
        self._base = base
        self._numbers = itertools.count(1)
        self._users = profile.users
        # The user that has been free for longest is taken first: processes of an earlier worker may still be ending.
        self._free_users = deque(profile.users.of_submissions if profile.users is not None else ())
        self._profile = profile.of_submissions()
        self._started_zygote: ZygoteHandle | None = None
        # The most recently used one is the last.
        self._idle: list[GradingWorker] = []
        self._max_workers = workers * _WORKERS_PER_SLOT
        self._questions = QuestionCache()
        self._compiled = CompiledPrograms(max_bytes=_MAX_COMPILED_BYTES)
        self.builds = Builds(max_bytes=_MAX_BUILT_BYTES)
        self._busy: set[GradingWorker] = set()
        self._background: set[asyncio.Task[Any]] = set()
        self.slots = GradingSlots(workers)

    @property
    def workers(self) -> list[GradingWorker]:
        """All current grading workers."""
        return [*self._idle, *self._busy]

    @property
    def busy(self) -> int:
        """Number of workers that grade a submission or run a program."""
        return len(self._busy)

    @property
    def process_groups(self) -> list[ProcessGroup]:
        """Groups of processes, each of which is killed if it exhausts the processes of the sandbox."""
        return [group for worker in self.workers for group in worker.process_groups]

    async def grade(self, submission: Submission) -> Graded:
        """Grade a submission.

        Infrastructure errors are reported in the verdict. However, if grading a submission twice ends processes that it has no
        access to, or those of its tests, the submission is assumed to be the cause, and its verdict is ``killed``.

        Raises:
            FilesError: If one of its files cannot be written.
        """
        deadline = StartDeadline()
        async with self.slots.take(deadline, _workers_for(submission)) as slot:
            began = time.perf_counter()
            try:
                graded = await self._with_workers(submission, GradingWorker.grade, slot, deadline)
            except _LostError as error:
                graded = _lost(submission, error.__cause__)
            except INFRASTRUCTURE_ERRORS as error:
                message = f"the sandbox failed to grade this submission: {str(error) or type(error).__name__}"
                graded = Graded(outcome=VerdictOutcome.INFRASTRUCTURE, message=message)
        mode = submission.mode
        self._measurements.grades[mode, graded.outcome] += 1
        self._measurements.disagreements += bool(graded.disagreement)
        self._measurements.grade_times[mode].add(time.perf_counter() - began)
        return graded

    async def check(self, reference: Submission) -> TaskCheck:
        """Find out the mode that a task permits.

        Args:
            reference: The reference of the task, as a submission. Its mode does not matter.

        Raises:
            FilesError: If one of its files cannot be written.
            INFRASTRUCTURE_ERRORS: If the sandbox failed.
        """
        deadline = StartDeadline()
        async with self.slots.take(deadline, _workers_for(reference)) as slot:
            try:
                return await self._with_workers(reference, GradingWorker.check, slot, deadline)
            except _LostError as error:
                return TaskCheck(mode=GradingMode.ISOLATED, broken=_lost(reference, error.__cause__).message)

    async def run(self, program: Program, *, max_wait: float) -> ProgramRun:
        """Run a program beside the submissions, and exactly as isolated from them and from sessions.

        If running it twice ends processes that it has no access to, it is assumed to be the cause, and counts as killed.

        Args:
            program: The program.
            max_wait: Maximum number of seconds to wait in total: until fewer submissions and programs run, and until a worker
                is ready for it. A worker that is ready later is kept for others.

        Raises:
            OverloadedError: If that takes longer.
            FilesError: If one of its files cannot be written.
            NotStartedError: If it was not started, twice.
            ForkError: If processes, memory or disk space are exhausted.
            OSError: If its directories cannot be created, or a root does not respond.
            EOFError: If the launcher is gone.
        """
        deadline = StartDeadline(max_wait)
        try:
            async with self.slots.take(deadline) as slot:
                began = time.perf_counter()
                ended = await self._run(program, slot, deadline)
        except OverloadedError:
            self._measurements.refusals["places"] += 1
            raise
        except INFRASTRUCTURE_ERRORS:
            self._measurements.programs["infrastructure"] += 1
            raise
        self._measurements.programs[ended.outcome] += 1
        self._measurements.program_times.add(time.perf_counter() - began)
        return ended

    async def _run(self, program: Program, slot: ExitStack, deadline: StartDeadline) -> ProgramRun:
        async def run(worker: GradingWorker) -> ProgramRun:
            result = await worker.run(program, deadline)
            self._in_background(self._settle(worker, slot.pop_all()))
            return result

        try:
            return await self._use(program.libraries, run, slot, deadline, releases=False)
        except _LostError:
            return ProgramRun(exit_code=-signal.SIGKILL, kill_reason="running it twice ended a process of the sandbox")

    async def _settle(self, worker: GradingWorker, slot: ExitStack) -> None:
        """Prepare a worker for the next program, after the response to the last one, and release it and its slot."""
        with slot:
            try:
                await worker.settle()
            except INFRASTRUCTURE_ERRORS as error:
                _log.warning("a grading worker is replaced: %s", error)
                self._discard(worker)
            except BaseException:
                self._discard(worker)
                raise
            else:
                self._release(worker)

    def _in_background(self, work: Coroutine[Any, Any, _Result]) -> asyncio.Task[_Result]:
        """Do something that continues when the request that it is done for ends."""
        task = asyncio.ensure_future(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    def close(self) -> None:
        """Close all grading workers and the zygote that was started for them."""
        for task in self._background:
            task.cancel()
        for worker in self.workers:
            worker.close()
        if self._started_zygote is not None:
            self._started_zygote.close()

    async def _with_workers(
        self,
        submission: Submission,
        action: Callable[[GradingWorker, Submission, GradingWorker | None], Awaitable[_Result]],
        slot: ExitStack,
        deadline: StartDeadline,
    ) -> _Result:
        """Let a worker do something with a submission, and another one have its interactor; see ``_use``."""

        async def act(worker: GradingWorker) -> _Result:
            if _workers_for(submission) == 1:
                return await action(worker, submission, None)
            return await self._use(frozenset(), partial(action, worker, submission), slot, deadline)

        return await self._use(mentioned_libraries(submission), act, slot, deadline)

    async def _use(
        self,
        libraries: frozenset[str],
        action: Callable[[GradingWorker], Awaitable[_Result]],
        slot: ExitStack,
        deadline: StartDeadline,
        *,
        releases: bool = True,
    ) -> _Result:
        """Let a worker do something, and another one again if a process dies that submissions have no access to.

        Args:
            libraries: Modules that it has imported.
            action: What it does.
            slot: The slot of the request.
            deadline: Until when it must have been started.
            releases: Whether to release the worker afterwards; otherwise, the action sees to that.

        Raises:
            _LostError: If that happens again.
            INFRASTRUCTURE_ERRORS: As is.
        """
        for is_last in (False, True):
            worker = await self._acquire(libraries, slot, deadline)
            try:
                result = await action(worker)
            except (ChannelClosedError, TestRunnerLostError, NotStartedError) as error:
                if isinstance(error, TestRunnerLostError):
                    self._release(worker)
                else:
                    self._discard(worker)
                if isinstance(error, NotStartedError) and (is_last or deadline.left == 0):
                    raise
                if is_last:
                    raise _LostError from error
                _log.warning("a submission is run again: %s", error)
            except BaseException:
                self._discard(worker)
                raise
            else:
                if releases:
                    self._release(worker)
                return result
        raise AssertionError

    async def _acquire(self, libraries: frozenset[str], slot: ExitStack, deadline: StartDeadline) -> GradingWorker:
        worker = self._take_idle(libraries)
        if worker is None:
            while self._idle and len(self.workers) >= self._max_workers:
                self._discard(self._idle.pop(0))
            opening = self._in_background(self._open(libraries))
            is_open = False
            try:
                await asyncio.wait({opening}, timeout=deadline.left)
                is_open = opening.done()
            finally:
                if not is_open:
                    # The request gives up. It keeps its slot until then, so that others do not open even more workers.
                    self._in_background(self._keep(opening, slot.pop_all()))
            if not is_open:
                raise deadline.overloaded(missing="process was ready")
            worker = opening.result()
        self._busy.add(worker)
        return worker

    async def _keep(self, opening: asyncio.Future[GradingWorker], slot: ExitStack) -> None:
        """Keep a worker that nobody waits for any more."""
        with slot:
            try:
                self._release(await opening)
            except INFRASTRUCTURE_ERRORS as error:
                _log.warning("a grading worker could not be opened: %s", error)

    def _take_idle(self, libraries: frozenset[str]) -> GradingWorker | None:
        """Return the most recently used worker that has imported libraries, None if there is none."""
        for worker in [worker for worker in self._idle if not worker.is_alive]:
            self._idle.remove(worker)
            self._discard(worker)
        is_light = are_light(libraries)
        for worker in reversed(self._idle):
            if worker.libraries >= libraries and are_light(worker.libraries) == is_light:
                self._idle.remove(worker)
                return worker
        return None

    def _light_zygote(self) -> ZygoteHandle:
        if self._started_zygote is None:
            config = ZygoteConfig(preload=list(_PRELOAD), backend=SUBMISSION, profile=self._profile, overlay=self._overlay)
            self._started_zygote = self._zygotes.first.start_another(config)
            self._started_zygote.attach(on_gone=self._on_zygote_gone)
        return self._started_zygote

    async def _open(self, libraries: frozenset[str]) -> GradingWorker:
        zygote = self._light_zygote() if are_light(libraries) else self._zygotes.of("python")
        user = self._take_user()
        system: SessionSystem
        if user is not None:
            system = OwnSystem(user, shares_files=True)
        else:
            system = SubmissionSystem(self._base / f"submissions-{next(self._numbers)}")
        try:
            return await GradingWorker.open(
                system, libraries, zygote=zygote, compiled=self._compiled, builds=self.builds, questions=self._questions
            )
        except BaseException:
            self._return_user(user)
            raise

    def _take_user(self) -> int | None:
        """Return the id of the user of a new worker's submissions, None in a container without namespaces."""
        if self._users is None:
            return None
        if not self._users.count:
            return self._users.server
        if not self._free_users:
            message = f"all {len(self._users.of_submissions)} users of submissions are in use"
            raise ForkError(message)
        return self._free_users.popleft()

    def _return_user(self, user: int | None) -> None:
        if self._users is not None and user is not None and user in self._users.of_submissions:
            self._free_users.append(user)

    def _on_zygote_gone(self) -> None:
        _log.error("the zygote of submissions died too often; the next submission starts another one")
        if self._started_zygote is not None:
            self._started_zygote.close()
            self._started_zygote = None

    def _release(self, worker: GradingWorker) -> None:
        self._busy.discard(worker)
        if worker.is_alive:
            self._idle.append(worker)
        else:
            self._discard(worker)

    def _discard(self, worker: GradingWorker) -> None:
        self._busy.discard(worker)
        self._return_user(worker.user)
        worker.close()
        # The reference is dropped: a file system in memory is freed with the last one.
        start_in_thread(worker.take_directory().remove)


def _workers_for(submission: Submission) -> int:
    """Return the number of workers that a submission needs: an interactor has one of its own."""
    return 2 if isinstance(submission.tests, Programs) and submission.tests.interactor is not None else 1


def _lost(submission: Submission, error: BaseException | None) -> Graded:
    ended = "the process of its tests" if isinstance(error, TestRunnerLostError) else "a process of the sandbox"
    message = f"grading it twice ended {ended}"
    return Graded(outcome=VerdictOutcome.KILLED, message=message, cases=tuple(not_run(submission)))
