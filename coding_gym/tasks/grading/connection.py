"""Grades one submission at a time in a pooled sandbox, and retries in another one after a failure."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from coding_gym.errors import (
    CapacityError,
    ConfigurationError,
    PoolTimeoutError,
    ProtocolError,
    SandboxStartError,
    TransportError,
    TransportTimeoutError,
)
from coding_gym.sandbox import ManagedSandbox
from coding_gym.tasks.screen.tests import ScreenTests, run_screen_tests
from coding_gym.tasks.task import Task
from coding_gym.tracing import OperationTrace
from coding_gym_server.protocol import MAX_FRAME_BYTES, GradeRequest
from coding_gym_server.protocol.grading import (
    CaseOutcome,
    CaseResult,
    Graded,
    GradingMode,
    Programs,
    Submission,
    VerdictOutcome,
)

if TYPE_CHECKING:
    from coding_gym.client.session import Session

__all__ = ["CancellationToken", "GradingConnection", "not_run"]

_INFRASTRUCTURE_ERRORS = (TransportError, ProtocolError, SandboxStartError, PoolTimeoutError)
"""Errors that a retry may resolve. Permanent ones, such as a missing provider, are raised."""

_ANSWER_SLACK = 60.0
"""Seconds that a response may take beyond the limits of a submission: others may be graded first."""

_FAITHFUL_RUNS = 8
"""How many times the wall-clock limit of a submission its faithful grading may take: the first one of a task validates canaries
with the reference, and the submission faces canaries in addition to the tests."""

_HEALTH_TIMEOUT = 2.0
_PAUSE = 0.1
"""Seconds before the first retry; doubled before each further one."""

_encoder = msgspec.msgpack.Encoder()


class CancellationToken:
    """Cancellation flag shared by the submissions that are cancelled together."""

    def __init__(self) -> None:
        self.is_cancelled = False


class _CancelledError(Exception):
    """The submission was cancelled, and no caller needs the verdict."""


class GradingConnection:
    """A lazily opened connection to a sandbox. Not thread-safe, except for ``abort``.

    Args:
        slot: Source of the sandbox.
        retries: Maximum number of retries after an infrastructure error.
        on_loss: Called after an infrastructure error: a retry may have to wait for a slot.
    """

    def __init__(self, slot: ManagedSandbox, *, retries: int, on_loss: Callable[[], None] = lambda: None) -> None:
        self._slot = slot
        self._on_loss = on_loss
        self._retries = retries
        self._lock = threading.Lock()
        self._session: Session | None = None
        self._run: CancellationToken | None = None
        self._trace = OperationTrace()

    def grade(self, task: Task, code: str, run: CancellationToken) -> Graded:
        """Grade a program; an infrastructure error that persists is reported as an outcome.

        Raises:
            ConfigurationError: If the task cannot be graded, regardless of the program: its tests are too large, or require a
                screen.
            ProviderError: If no sandbox is available.
        """
        with self._lock:
            self._run = run
        self._trace.begin("grade", lambda: _span_attributes(task))
        try:
            graded = self._grade_with_retries(task, code, run)
        except BaseException as error:
            self._trace.fail(error)
            self._drop_session()
            raise
        else:
            if self._trace.is_recording:
                passed = sum(case.outcome is CaseOutcome.PASSED for case in graded.cases)
                counts = {"coding_gym.tests.passed": passed, "coding_gym.tests.total": len(graded.cases)}
                self._trace.end(graded.outcome.value, counts)
            return graded
        finally:
            with self._lock:
                self._run = None

    def abort(self, run: CancellationToken | None = None) -> None:
        """Cancel the grading in progress if it belongs to ``run``, or any if ``run`` is None. Thread-safe."""
        with self._lock:
            if self._session is not None and self._run is not None and run in (None, self._run):
                self._session.abort()

    def close(self) -> None:
        """Close the connection and return the sandbox."""
        self._drop_session()
        self._slot.close()

    def _grade_with_retries(self, task: Task, code: str, run: CancellationToken) -> Graded:
        message = "it was cancelled"
        for attempt in range(self._retries + 1):
            if run.is_cancelled:
                break
            if attempt:
                time.sleep(_PAUSE * 2 ** (attempt - 1))
            try:
                graded = self._grade_with_waiting(task, code, run)
            except _CancelledError:
                break
            except _INFRASTRUCTURE_ERRORS as error:
                message = str(error)
                self._release_sandbox(is_stuck=isinstance(error, TransportTimeoutError))
                self._on_loss()
            else:
                if graded.outcome is not VerdictOutcome.INFRASTRUCTURE:
                    return graded
                message = graded.message
                self._release_sandbox()
        return Graded(outcome=VerdictOutcome.INFRASTRUCTURE, cases=not_run(task), message=message)

    def _grade_with_waiting(self, task: Task, code: str, run: CancellationToken) -> Graded:
        """Grade once; while other clients have all sessions of a pool's server, wait for one in the pool."""
        while True:
            try:
                return self._grade_once(task, code, run)
            except CapacityError:
                self._drop_session()
                if not self._slot.leave_full():
                    raise

    def _grade_once(self, task: Task, code: str, run: CancellationToken) -> Graded:
        session = self._connect()
        if run.is_cancelled:
            # Cancelled while it waited for a sandbox.
            raise _CancelledError
        if isinstance(task.tests, ScreenTests):
            graded = run_screen_tests(session, code, task.tests, files=task.files, limits=task.limits)
            # Ending the session ends the processes that the program started in the sandbox.
            self._drop_session()
            return graded
        submission = Submission(
            code=code,
            tests=task.tests,
            entry_point=task.entry_point,
            files=task.wire_files(),
            limits=task.limits,
            mode=GradingMode(task.grading),
            reference=task.reference_submission if task.grading == GradingMode.FAITHFUL else None,
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

    def _release_sandbox(self, *, is_stuck: bool = False) -> None:
        """Leave the sandbox; it is replaced if it does not respond."""
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


def _span_attributes(task: Task) -> dict[str, Any]:
    return {
        "coding_gym.task.id": task.id,
        "coding_gym.grading.mode": str(GradingMode(task.grading)),
        "coding_gym.timeout": float(task.limits.wall_timeout),
    }


def not_run(task: Task) -> tuple[CaseResult, ...]:
    """Return the results of a task whose tests were not run: one per test, where the tests can be counted."""
    tests = task.tests
    names = [step.name for step in tests.steps] if isinstance(tests, ScreenTests) else ["" for _ in getattr(tests, "cases", ())]
    return tuple(CaseResult(name=name or str(number), outcome=CaseOutcome.NOT_RUN) for number, name in enumerate(names))


def _grade_in_parts(session: Session, submission: Submission, task: Task) -> Graded:
    """Grade with as many requests as the tests require: the inputs of programs may exceed the frame size limit."""
    tests = submission.tests
    if len(_encoder.encode(GradeRequest(submission))) <= MAX_FRAME_BYTES:
        runs = len(tests.cases) if isinstance(tests, Programs) else 1
        if submission.mode is GradingMode.FAITHFUL:
            runs = _FAITHFUL_RUNS
        return session.grade(submission, timeout=submission.limits.max_seconds * runs + _ANSWER_SLACK)
    if not isinstance(tests, Programs) or len(tests.cases) < 2:
        message = f"The tests of task {task.id!r} are too large: expected at most {MAX_FRAME_BYTES >> 20} MiB"
        raise ConfigurationError(message)
    half = len(tests.cases) // 2
    parts = [
        _grade_in_parts(session, msgspec.structs.replace(submission, tests=msgspec.structs.replace(tests, cases=cases)), task)
        for cases in (tests.cases[:half], tests.cases[half:])
    ]
    return _merged(parts)


def _merged(parts: list[Graded]) -> Graded:
    """Merge the results of parts of the test cases into one result."""
    # The first outcome in the order of the enumeration takes precedence; the result is "passed" only if all parts passed.
    failed = [part for part in parts if part.outcome is not VerdictOutcome.PASSED]
    order = list(VerdictOutcome)
    worst = min(failed, key=lambda part: order.index(part.outcome), default=parts[0])
    shown = failed[0] if failed else parts[0]
    cases = [case for part in parts for case in part.cases]
    return Graded(
        outcome=worst.outcome,
        cases=tuple(msgspec.structs.replace(case, name=str(number)) for number, case in enumerate(cases)),
        message=worst.message,
        stdout=shown.stdout,
        stderr=shown.stderr,
        load_seconds=parts[0].load_seconds,
        seconds=sum(part.seconds for part in parts),
        cpu_seconds=sum(part.cpu_seconds for part in parts),
    )
