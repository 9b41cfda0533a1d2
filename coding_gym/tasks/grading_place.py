"""One submission at a time, graded in a sandbox of a pool, and elsewhere if that fails."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import msgspec

from coding_gym.errors import (
    ConfigurationError,
    PoolTimeoutError,
    ProtocolError,
    SandboxStartError,
    TransportError,
    TransportTimeoutError,
)
from coding_gym.providers import SandboxSlot
from coding_gym.tasks.screen_tests import ScreenTests, run_screen_tests
from coding_gym.tasks.task import Task
from coding_gym_server.grading.messages import CaseOutcome, CaseResult, Graded, Programs, Submission, VerdictOutcome
from coding_gym_server.protocol import MAX_FRAME_BYTES, Grade

if TYPE_CHECKING:
    from coding_gym.client.session import Session

__all__ = ["GradingPlace", "Run", "not_run"]

_FAULTS = (TransportError, ProtocolError, SandboxStartError, PoolTimeoutError)
"""What may work elsewhere, or later. What cannot, such as a provider that is not there, is raised."""

_ANSWER_SLACK = 60.0
"""Seconds that an answer may take beyond the limits of a submission: others may be graded first."""

_HEALTH_TIMEOUT = 2.0
_PAUSE = 0.1
"""Seconds before the second attempt; twice as many before each further one."""

_encoder = msgspec.msgpack.Encoder()


class Run:
    """Submissions that are cancelled together."""

    def __init__(self) -> None:
        self.is_cancelled = False


class _CancelledError(Exception):
    """Nobody wants the verdict any more."""


class GradingPlace:
    """A connection to a sandbox, made when it is needed. Not for use by two threads at a time, but for ``abort``.

    Args:
        slot: Where the sandbox comes from.
        retries: How often to try again after a fault of ours.
    """

    def __init__(self, slot: SandboxSlot, *, retries: int) -> None:
        self._slot = slot
        self._retries = retries
        self._lock = threading.Lock()
        self._session: Session | None = None
        self._run: Run | None = None

    def grade(self, task: Task, code: str, run: Run) -> Graded:
        """Grade a program; a fault of ours that stays is an outcome.

        Raises:
            ConfigurationError: The task cannot be graded, whatever the program: its tests are too large, or want a screen.
            ProviderError: There are no sandboxes to be had here.
        """
        with self._lock:
            self._run = run
        try:
            return self._grade_patiently(task, code, run)
        except BaseException:
            self._drop_session()
            raise
        finally:
            with self._lock:
                self._run = None

    def abort(self, run: Run | None = None) -> None:
        """Give up what is being graded, if it is of ``run``, or whatever it is; from any thread."""
        with self._lock:
            if self._session is not None and self._run is not None and run in (None, self._run):
                self._session.abort()

    def close(self) -> None:
        """End the connection, and give the sandbox back."""
        self._drop_session()
        self._slot.close()

    def _grade_patiently(self, task: Task, code: str, run: Run) -> Graded:
        fault = "it was cancelled"
        for attempt in range(self._retries + 1):
            if run.is_cancelled:
                break
            if attempt:
                time.sleep(_PAUSE * 2 ** (attempt - 1))
            try:
                graded = self._grade_once(task, code, run)
            except _CancelledError:
                break
            except _FAULTS as error:
                fault = str(error)
                self._leave(is_stuck=isinstance(error, TransportTimeoutError))
            else:
                if graded.outcome is not VerdictOutcome.INFRASTRUCTURE:
                    return graded
                fault = graded.message
                self._leave()
        return Graded(outcome=VerdictOutcome.INFRASTRUCTURE, cases=not_run(task), message=fault)

    def _grade_once(self, task: Task, code: str, run: Run) -> Graded:
        session = self._connect()
        if run.is_cancelled:
            # Meanwhile: it may have waited for a sandbox.
            raise _CancelledError
        if isinstance(task.tests, ScreenTests):
            graded = run_screen_tests(session, code, task.tests, files=task.files, limits=task.limits)
            # What it has begun in the sandbox ends with it.
            self._drop_session()
            return graded
        submission = Submission(
            code=code, tests=task.tests, entry_point=task.entry_point, files=task.wire_files(), limits=task.limits
        )
        return _grade_in_parts(session, submission, task)

    def _connect(self) -> Session:
        if self._session is not None and self._slot.begin_episode():
            return self._session
        self._drop_session()
        session = self._slot.connect()
        with self._lock:
            self._session = session
        return session

    def _leave(self, *, is_stuck: bool = False) -> None:
        """Go elsewhere; what does not answer is replaced."""
        self._drop_session()
        sandbox = self._slot.sandbox
        if sandbox is not None and (is_stuck or not sandbox.is_healthy(timeout=_HEALTH_TIMEOUT)):
            self._slot.give_up(sandbox)
        else:
            self._slot.close()

    def _drop_session(self) -> None:
        with self._lock:
            session, self._session = self._session, None
        if session is not None:
            session.close()


def not_run(task: Task) -> tuple[CaseResult, ...]:
    """Return what is known of the tests of a task that were not run: how many there are, where they can be counted."""
    tests = task.tests
    names = [step.name for step in tests.steps] if isinstance(tests, ScreenTests) else ["" for _ in getattr(tests, "cases", ())]
    return tuple(CaseResult(name=name or str(number), outcome=CaseOutcome.NOT_RUN) for number, name in enumerate(names))


def _grade_in_parts(session: Session, submission: Submission, task: Task) -> Graded:
    """Grade by as many requests as the tests fill: inputs of programs may be larger than what a frame holds."""
    tests = submission.tests
    if len(_encoder.encode(Grade(submission))) <= MAX_FRAME_BYTES:
        runs = len(tests.cases) if isinstance(tests, Programs) else 1
        return session.grade(submission, timeout=submission.limits.wall_timeout * runs + _ANSWER_SLACK)
    if not isinstance(tests, Programs) or len(tests.cases) < 2:
        message = f"The tests of task {task.id!r} are too large: with a submission they may have {MAX_FRAME_BYTES >> 20} MiB"
        raise ConfigurationError(message)
    half = len(tests.cases) // 2
    parts = [
        _grade_in_parts(session, msgspec.structs.replace(submission, tests=msgspec.structs.replace(tests, cases=cases)), task)
        for cases in (tests.cases[:half], tests.cases[half:])
    ]
    return _joined(parts)


def _joined(parts: list[Graded]) -> Graded:
    """Return what came of all cases, of what came of some each."""
    # In the order of the outcomes the first that is true counts, and "passed" is if it is of all.
    failed = [part for part in parts if part.outcome is not VerdictOutcome.PASSED]
    order = list(VerdictOutcome)
    telling = min(failed, key=lambda part: order.index(part.outcome), default=parts[0])
    shown = failed[0] if failed else parts[0]
    cases = [case for part in parts for case in part.cases]
    return Graded(
        outcome=telling.outcome,
        cases=tuple(msgspec.structs.replace(case, name=str(number)) for number, case in enumerate(cases)),
        message=telling.message,
        stdout=shown.stdout,
        stderr=shown.stderr,
        load_seconds=parts[0].load_seconds,
        seconds=sum(part.seconds for part in parts),
        cpu_seconds=sum(part.cpu_seconds for part in parts),
    )
