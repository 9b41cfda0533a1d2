"""Grading of submissions with hidden tests, in parallel."""

from __future__ import annotations

import contextlib
import hashlib
import os
import queue
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Unpack

import msgspec

from coding_gym._validation import check_count, parameter_names
from coding_gym.errors import (
    CapacityError,
    ConfigurationError,
    PoolClosedError,
    PoolTimeoutError,
    ProtocolError,
    ProviderError,
    SandboxStartError,
    TransportError,
    TransportTimeoutError,
)
from coding_gym.sandbox import ManagedSandbox, Sandbox
from coding_gym.sandbox.config import SandboxConfig, SandboxKwargs, sandbox_config
from coding_gym.sandbox.pool import SandboxPool, managed_sandbox, resolve_config
from coding_gym.tasks.checks import check_of, is_checkable, recorded_mode
from coding_gym.tasks.repository.grading import RepositoryGrading
from coding_gym.tasks.repository.tests import RepositoryTests
from coding_gym.tasks.screen.tests import ScreenTests, run_screen_tests
from coding_gym.tasks.secret import task_secret
from coding_gym.tasks.task import Task
from coding_gym.tasks.verdict import Verdict
from coding_gym.tracing import OperationTrace, in_current_context
from coding_gym.waiting import BAR
from coding_gym_server.protocol import MAX_FRAME_BYTES, GradeRequest
from coding_gym_server.protocol.grading import (
    Asserts,
    CaseOutcome,
    CaseResult,
    Graded,
    GradingLimits,
    GradingMode,
    Programs,
    Submission,
    TaskCheck,
    UnitTests,
    VerdictOutcome,
)

if TYPE_CHECKING:
    from coding_gym.client.session import Session
    from coding_gym.envs.coding_env import CodingEnv

__all__ = [
    "BackgroundGrading",
    "BorrowedSandbox",
    "CancellationToken",
    "Grader",
    "GradingConnection",
    "OrderedGradingQueue",
    "mode_of_repository",
    "not_run",
    "show_progress",
]

_INFRASTRUCTURE_ERRORS = (TransportError, ProtocolError, SandboxStartError, PoolTimeoutError)
"""Errors that a retry may resolve. Permanent ones, such as a missing provider, are raised."""

_ANSWER_SLACK = 60.0
"""Seconds that a response may take beyond the limits of a submission: others may be graded first."""

_MAX_RUNS = 8
"""How many times the wall-clock limit of a submission its grading may take: the first one of a task makes its questions, with
the reference and mutants of it, and a submission answers them before it faces the tests."""

_CHECK_RUNS = 4
"""How often the reference of a task is run to check it."""

_DEFAULT_MODES = {Asserts: GradingMode.AGREEMENT, UnitTests: GradingMode.AGREEMENT}
"""Modes of tasks that have no reference, from which the mode could be found out."""

_HEALTH_TIMEOUT = 2.0
_END_TIMEOUT = 10.0
"""Seconds within which a server ends a session whose connection was aborted."""
_PAUSE = 0.1
"""Seconds before the first retry; doubled before each further one."""

_encoder = msgspec.msgpack.Encoder()


class CancellationToken:
    """Cancellation flag shared by the submissions that are canceled together."""

    def __init__(self) -> None:
        self.is_cancelled = False


class _CancelledError(Exception):
    """The submission was canceled, and no caller needs the verdict."""


class GradingConnection:
    """A lazily opened connection to a sandbox. Not thread-safe, except for ``abort``.

    Args:
        slot: Source of the sandbox.
        retries: Maximum number of retries after an infrastructure error.
        on_loss: Called after an infrastructure error: a retry may have to wait for a slot.
        network: Network of the tests of repositories; that of the sandbox if None.
    """

    def __init__(
        self, slot: ManagedSandbox, *, retries: int, on_loss: Callable[[], None] = lambda: None, network: str | None = None
    ) -> None:
        self._slot = slot
        self._network = network
        self._on_loss = on_loss
        self._retries = retries
        self._lock = threading.Lock()
        self._session: Session | None = None
        self._repository: RepositoryGrading | None = None
        self._run: CancellationToken | None = None
        self._trace = OperationTrace()

    def grade(self, task: Task, code: str | CodingEnv, run: CancellationToken) -> Verdict:
        """Grade a program; an infrastructure error that persists is reported as an outcome.

        Args:
            task: The task.
            code: The program; for ``RepositoryTests``, a patch, a script, or the session that has changed the repository.
            run: Cancels it.

        Raises:
            ConfigurationError: If the task cannot be graded, regardless of the program: its tests are too large, or require a
                screen.
            ProviderError: If no sandbox is available.
        """
        with self._lock:
            self._run = run
        self._trace.begin("grade", lambda: _span_attributes(task))
        try:
            verdict = self._grade_with_retries(task, code, run)
        except BaseException as error:
            self._trace.fail(error)
            self._drop_session()
            raise
        else:
            if self._trace.is_recording:
                counts = {"coding_gym.tests.passed": verdict.passed, "coding_gym.tests.total": verdict.total}
                self._trace.end(verdict.outcome.value, {**counts, "coding_gym.grading.mode": verdict.mode.value})
            return verdict
        finally:
            with self._lock:
                self._run = None
            if run.is_cancelled:
                # Which may have aborted the session before it was used.
                self._drop_session()

    def abort(self, run: CancellationToken | None = None) -> None:
        """Cancel the grading in progress if it belongs to ``run``, or any if ``run`` is None. Thread-safe."""
        with self._lock:
            if self._run is None or run not in (None, self._run):
                return
            if self._session is not None:
                self._session.abort()
            if self._repository is not None:
                self._repository.close()

    def close(self) -> None:
        """Close the connection and return the sandbox."""
        self._drop_session()
        if self._repository is not None:
            self._repository.close()
        self._slot.close()

    def _grade_with_retries(self, task: Task, code: str | CodingEnv, run: CancellationToken) -> Verdict:
        message = "it was canceled"
        for attempt in range(self._retries + 1):
            if run.is_cancelled:
                break
            if attempt:
                time.sleep(_PAUSE * 2 ** (attempt - 1))
            try:
                verdict = self._grade_with_waiting(task, code, run)
            except _CancelledError:
                break
            except _INFRASTRUCTURE_ERRORS as error:
                message = str(error)
                self._release_sandbox(is_stuck=isinstance(error, TransportTimeoutError))
                self._on_loss()
            else:
                if not verdict.is_infrastructure or verdict.checker_failed:
                    return verdict
                message = verdict.message
                self._release_sandbox()
        return Verdict(task_id=task.id, outcome=VerdictOutcome.INFRASTRUCTURE, cases=not_run(task), message=message)

    def _grade_with_waiting(self, task: Task, code: str | CodingEnv, run: CancellationToken) -> Verdict:
        """Grade once; wait for a session while other clients, or one that has just been aborted, have all of the server's."""
        deadline = time.monotonic() + _END_TIMEOUT
        while True:
            try:
                return self._grade_once(task, code, run)
            except CapacityError:
                self._drop_session()
                if self._slot.leave_full():
                    continue
                if run.is_cancelled or time.monotonic() > deadline:
                    raise
                time.sleep(_PAUSE)

    def _grade_once(self, task: Task, code: str | CodingEnv, run: CancellationToken) -> Verdict:
        if isinstance(task.tests, RepositoryTests):
            if self._repository is None:
                self._repository = RepositoryGrading(self._slot.config, network=self._network)
            grade: Any = self._repository.grade if isinstance(code, str) else self._repository.grade_session
            return Verdict.of(task.id, grade(task.tests, code, mode_of_repository(task)))
        assert isinstance(code, str)
        session = self._connect()
        if run.is_cancelled:
            # Canceled while it waited for a sandbox.
            raise _CancelledError
        if isinstance(task.tests, ScreenTests):
            graded = run_screen_tests(session, code, task.tests, files=task.files, limits=task.limits)
            # Ending the session ends the processes that the program started in the sandbox.
            self._drop_session()
            return Verdict.of(task.id, graded)
        checked = self._check(session, task) if is_checkable(task) else None
        mode = task.grading or _DEFAULT_MODES.get(type(task.tests), GradingMode.ISOLATED) if checked is None else checked.mode
        submission = _submission(task, code, GradingMode(mode))
        graded = _grade_in_parts(session, submission, task)
        return Verdict.of(task.id, graded, broken="" if checked is None else checked.broken)

    def _check(self, session: Session, task: Task) -> TaskCheck:
        """Return which mode a task permits, found out by grading its reference if that is not known."""
        reference = task.reference_submission
        assert reference is not None

        def check() -> TaskCheck:
            return _check_in_parts(session, _submission(task, reference, GradingMode.ISOLATED), task)

        return check_of(task, self._slot.config, check)

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


def mode_of_repository(task: Task) -> GradingMode:
    """Return the mode of a task of a repository: the one that it says, the recorded one, or the default one."""
    assert isinstance(task.tests, RepositoryTests)
    if task.grading is not None:
        return GradingMode(task.grading)
    if task.tests.submission == "patch":
        return GradingMode.COPY
    return recorded_mode(task) or GradingMode.SESSION


def _span_attributes(task: Task) -> dict[str, Any]:
    return {
        "coding_gym.task.id": task.id,
        "coding_gym.timeout": float(task.limits.wall_timeout),
    }


def not_run(task: Task) -> tuple[CaseResult, ...]:
    """Return the results of a task whose tests were not run: one per test, where the tests can be counted."""
    tests = task.tests
    if isinstance(tests, RepositoryTests):
        names = [name for command in tests.commands for name in command.names or (command.command,)]
    elif isinstance(tests, ScreenTests):
        names = [step.name for step in tests.steps]
    else:
        names = ["" for _ in getattr(tests, "cases", ())]
    return tuple(CaseResult(name=name or str(number), outcome=CaseOutcome.NOT_RUN) for number, name in enumerate(names))


def _submission(task: Task, code: str, mode: GradingMode) -> Submission:
    assert not isinstance(task.tests, ScreenTests | RepositoryTests)
    has_questions = task.reference is not None and not isinstance(task.tests, Programs)
    return Submission(
        code=code,
        tests=task.tests,
        entry_point=task.entry_point,
        files=task.wire_files(),
        limits=task.limits,
        mode=mode,
        reference=task.reference_submission if has_questions and mode is not GradingMode.ISOLATED else None,
        secret=task_secret(task) if has_questions else None,
    )


def _check_in_parts(session: Session, reference: Submission, task: Task) -> TaskCheck:
    """Check a task with as many requests as its tests require."""
    checks = [session.check(part, timeout=_answer_time(part, _CHECK_RUNS)) for part in _parts(reference, task)]
    return next((check for check in checks if check.broken), checks[0])


def _grade_in_parts(session: Session, submission: Submission, task: Task) -> Graded:
    """Grade with as many requests as the tests require: the inputs of programs may exceed the frame size limit."""
    runs = 1 if submission.mode is GradingMode.ISOLATED else _MAX_RUNS
    graded = [session.grade(part, timeout=_answer_time(part, runs)) for part in _parts(submission, task)]
    return _merged(graded) if len(graded) > 1 else graded[0]


def _answer_time(submission: Submission, runs: int) -> float:
    """Return the seconds within which a submission is graded with a number of runs, or one for each program."""
    # Limits may be invalid, which the response says.
    seconds = max(0.0, submission.limits.max_seconds)
    if isinstance(submission.tests, Programs):
        runs = max(runs, len(submission.tests.cases))
        for judge in (submission.tests.checker, submission.tests.interactor):
            seconds += judge.limits.max_seconds if judge is not None else 0.0
    return seconds * runs + _ANSWER_SLACK


def _parts(submission: Submission, task: Task) -> list[Submission]:
    """Return a submission, with parts of its tests if all of them together exceed the frame size limit.

    Raises:
        ConfigurationError: If that is not possible.
    """
    tests = submission.tests
    if len(_encoder.encode(GradeRequest(submission))) <= MAX_FRAME_BYTES:
        return [submission]
    if not isinstance(tests, Programs) or len(tests.cases) < 2:
        message = f"The tests of task {task.id!r} are too large: expected at most {MAX_FRAME_BYTES >> 20} MiB"
        raise ConfigurationError(message)
    half = len(tests.cases) // 2
    halves = (msgspec.structs.replace(tests, cases=cases) for cases in (tests.cases[:half], tests.cases[half:]))
    return [part for half in halves for part in _parts(msgspec.structs.replace(submission, tests=half), task)]


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
        checker_failed=worst.checker_failed,
    )


@contextlib.contextmanager
def show_progress(total: int | None, *, shown: bool) -> Iterator[Callable[[Verdict], None]]:
    """Show a progress bar on stderr: submissions graded and solved, infrastructure errors, and times elapsed and remaining.

    Args:
        total: Number of submissions; None if unknown.
        shown: Whether to show anything.

    Yields:
        A callback to call with each verdict.
    """
    if not (shown and BAR.acquire(blocking=False)):
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (
        TextColumn("grading"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("[green]{task.fields[solved]} solved"),
        TextColumn("{task.fields[lost]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    solved = lost = 0
    with contextlib.ExitStack() as stack:
        stack.callback(BAR.release)
        progress = stack.enter_context(Progress(*columns, console=Console(stderr=True)))
        bar = progress.add_task("grading", total=total, solved=0, lost="")

        def advance(verdict: Verdict) -> None:
            nonlocal solved, lost
            solved += verdict.solved
            lost += verdict.is_infrastructure
            progress.update(bar, advance=1, solved=solved, lost=f"[red]{lost} infrastructure" if lost else "")

        yield advance


_LOOK_AHEAD = 16
"""Maximum number of submissions per worker ahead of the verdict that is due: a slow one does not block the others."""

_QUEUED = 2
"""Number of submissions kept per worker, if available: the one being graded and the next."""


@dataclass(frozen=True, kw_only=True)
class _Entry:
    """A submission whose verdict is, or will be, available.

    Attributes:
        task: The task.
        code: The submission.
        graded: The verdict, possibly of an equal submission.
        is_repeat: Whether it is that of an equal submission.
    """

    task: Task
    code: str
    graded: Future[Verdict]
    is_repeat: bool


class OrderedGradingQueue:
    """Takes submissions as workers become free, and yields them in order, once they are graded.

    Args:
        source: The submissions, each of which begins to be graded when it is taken; may be infinite.
        workers: Number of workers.
    """

    def __init__(self, source: Iterator[_Entry], *, workers: int) -> None:
        self._source = source
        self._workers = workers
        self._waiting: deque[_Entry] = deque()
        self._changed = threading.Condition()
        self._unfinished: set[Future[Verdict]] = set()
        self._is_exhausted = False

    def graded(self) -> Iterator[_Entry]:
        """Yield the submissions in order, each as soon as it is graded."""
        while True:
            self._fill()
            if not self._waiting:
                return
            with self._changed:
                # Any submission that is graded frees a worker, not only the one that is due.
                self._changed.wait_for(lambda: self._is_due() or self._has_capacity())
            if self._is_due():
                yield self._waiting.popleft()

    def cancel(self) -> bool:
        """Cancel the submissions that have not started; returns whether any are still in progress."""
        for entry in self._waiting:
            entry.graded.cancel()
        return bool(self._unfinished)

    def _fill(self) -> None:
        while self._has_capacity():
            try:
                entry = next(self._source)
            except StopIteration:
                self._is_exhausted = True
                return
            self._waiting.append(entry)
            with self._changed:
                # A repeat occupies no worker.
                is_new = entry.graded not in self._unfinished
                self._unfinished.add(entry.graded)
            if is_new:
                entry.graded.add_done_callback(self._ended)

    def _has_capacity(self) -> bool:
        if self._is_exhausted or len(self._waiting) >= self._workers * _LOOK_AHEAD:
            return False
        # A verdict that is due is not delayed by taking submissions, unless a worker is idle.
        return len(self._unfinished) < self._workers * (1 if self._is_due() else _QUEUED)

    def _is_due(self) -> bool:
        return bool(self._waiting) and self._waiting[0].graded.done()

    def _ended(self, graded: Future[Verdict]) -> None:
        with self._changed:
            self._unfinished.discard(graded)
            self._changed.notify_all()


class _KnownVerdicts:
    """Verdicts by submission, of which the least recently used are forgotten. Thread-safe.

    Args:
        size: Maximum number of verdicts.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._lock = threading.Lock()
        self._known: OrderedDict[bytes, Future[Verdict]] = OrderedDict()

    def entry(self, task: Task, code: str, begin: Callable[[], Future[Verdict]]) -> _Entry:
        """Return the entry of a submission, which is graded if no verdict of an equal one is known or in progress.

        Args:
            task: The task.
            code: The submission.
            begin: Begins to grade it.
        """
        key = _key_of_submission(task, code)
        with self._lock:
            graded = self._known.get(key)
            is_repeat = graded is not None and not _is_lost(graded)
            if graded is None or not is_repeat:
                graded = self._known[key] = begin()
            self._known.move_to_end(key)
            while len(self._known) > self._size:
                self._known.popitem(last=False)
        return _Entry(task=task, code=code, graded=graded, is_repeat=is_repeat)


def _is_lost(graded: Future[Verdict]) -> bool:
    """Return whether grading ended without a verdict on the submission."""
    if not graded.done():
        return False
    return graded.cancelled() or graded.exception() is not None or graded.result().is_infrastructure


def _key_of_submission(task: Task, code: str) -> bytes:
    key = (task.id, task.content_digest, task.prefix, task.text_variable, task.limits, task.grading, code)
    return hashlib.sha256(_encoder.encode(key)).digest()


_RETRIES = 2


class BackgroundGrading:
    """Grades one submission at a time in a background thread.

    It occupies a session slot of a sandbox from its first submission until ``close``.

    Args:
        slot: Source of the sandbox.
        network: See ``GradingConnection``.
    """

    def __init__(self, slot: ManagedSandbox, *, network: str | None = None) -> None:
        self._connection = GradingConnection(slot, retries=_RETRIES, network=network)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="coding_gym_grading")
        self._in_progress: tuple[CancellationToken, Future[list[Verdict]]] | None = None

    def begin(self, tasks: Sequence[Task], code: str | CodingEnv) -> None:
        """Start grading a submission for each of some tasks; cancels the one in progress.

        Args:
            tasks: The tasks.
            code: A program, or the session that has changed the repository of the task.
        """
        self.cancel()
        run = CancellationToken()
        self._in_progress = run, self._thread.submit(in_current_context(self._grade), tasks, code, run)

    def finish(self) -> list[Verdict]:
        """Wait for the verdicts on the submission in progress, one per task; there are none without a submission.

        Raises:
            ConfigurationError: If the task cannot be graded, regardless of the submission.
        """
        if self._in_progress is None:
            return []
        try:
            return self._in_progress[1].result()
        except BaseException:
            # Possibly a KeyboardInterrupt: no caller is left to use this verdict.
            self.cancel()
            raise
        finally:
            self._in_progress = None

    def cancel(self) -> None:
        """Cancel the submission in progress. Idempotent."""
        if self._in_progress is not None:
            run, verdicts = self._in_progress
            self._in_progress = None
            run.is_cancelled = True
            if not verdicts.cancel() and not verdicts.done():
                self._connection.abort(run)

    def close(self) -> None:
        """Cancel the submission in progress and release the session slot."""
        self.cancel()
        self._thread.shutdown()
        self._connection.close()

    def _grade(self, tasks: Sequence[Task], code: str | CodingEnv, run: CancellationToken) -> list[Verdict]:
        return [self._verdict(task, code, run) for task in tasks]

    def _verdict(self, task: Task, code: str | CodingEnv, run: CancellationToken) -> Verdict:
        try:
            return self._connection.grade(task, task.submission(code) if isinstance(code, str) else code, run)
        except ProviderError as error:
            return Verdict(task_id=task.id, outcome=VerdictOutcome.INFRASTRUCTURE, cases=not_run(task), message=str(error))


class BorrowedSandbox(ManagedSandbox):
    """Sandbox borrowed from another slot, whose owner starts and removes it.

    Args:
        owner: The slot that owns the sandbox.
        fork_of: See ``ManagedSandbox``.
    """

    def __init__(self, owner: ManagedSandbox, *, fork_of: str | None = None) -> None:
        super().__init__(owner.config, fork_of=fork_of)
        self._owner = owner
        self._used: Sandbox | None = None

    @property
    def sandbox(self) -> Sandbox | None:
        return self._used

    def obtain(self, *, canceled: threading.Event | None = None) -> Sandbox:
        self._used = self._owner.obtain()
        return self._used

    def give_up(self, sandbox: Sandbox) -> None:
        self._owner.give_up(sandbox)

    def begin_episode(self) -> bool:
        # Only checks that the sandbox is still there: the owner counts episodes.
        return self._used is self._owner.sandbox

    def _remove(self) -> None:
        self._used = None


_WORKERS_PER_CORE = 2
"""The server grades about one submission per core at a time; the second is in transit."""

_WORKERS_PER_SANDBOX = 16
"""One process of a sandbox forks all others: it has enough to do for about eight cores."""

_MAX_CODE_BYTES = MAX_FRAME_BYTES // 2

_MAX_KNOWN = 65_536
"""Maximum number of submissions of one call whose repeats are recognized."""


class Grader:
    """Grades submissions in parallel in sandboxes. Use it as a context manager, or call ``close``.

    Every submission gets a verdict. After an infrastructure error, such as a sandbox crash, it is graded again; if the retries
    fail too, the outcome is ``infrastructure``, and the verdict has no score rather than a score of 0.

    All methods are thread-safe.

    Args:
        pool: Source of the sandboxes; session slots are kept until ``close``, or until a sandbox is lost. If None, the grader
            starts its own, one per 16 workers.
        config: Configuration of these, a ``SandboxConfig`` or a mapping of its fields. They share all cores unless ``cpu`` is
            set.
        workers: Number of submissions graded in parallel; two per core if None. Limited to the number of slots of the pool.
        retries: Maximum number of retries of a submission after an infrastructure error.
        grading_network: Docker network of the tests of repositories, in sandboxes of their own; that of the sandboxes if None.
        limits: Resource limits of all submissions; those of their tasks if None.
        cache: Maximum number of verdicts kept across calls. If not 0, the default, a submission equal to one of them gets its
            verdict. Infrastructure errors are not kept.
        sandbox_options: Fields of ``SandboxConfig``, instead of ``config``: ``provider="local"``, ``mem="1g"`` ...

    Raises:
        ConfigurationError: If an option is invalid.

    Example:
        >>> with Grader(provider="local") as grader:  # doctest: +SKIP
        ...     task = load_suite("humaneval")["HumanEval/0"]
        ...     verdict = grader.grade(task, "    return False")
        >>> verdict.passed, verdict.total, verdict.outcome.value  # doctest: +SKIP
        (3, 7, 'failed')
    """

    def __init__(
        self,
        *,
        pool: SandboxPool | None = None,
        config: SandboxConfig | Mapping[str, Any] | None = None,
        workers: int | None = None,
        retries: int = 2,
        grading_network: str | None = None,
        limits: GradingLimits | None = None,
        cache: int = 0,
        **sandbox_options: Unpack[SandboxKwargs],
    ) -> None:
        cores = len(os.sched_getaffinity(0))
        requested = cores * _WORKERS_PER_CORE if workers is None else workers
        check_count("workers", requested, 1)
        check_count("retries", retries, 0)
        check_count("cache", cache, 0)
        _check_limits(limits)
        self._owns_pool = pool is None
        if pool is None:
            if config is None:
                sandbox_options = {"cpu": cores, **sandbox_options}
            own = sandbox_config(config, sandbox_options, parameter_names(Grader))
            size = 1 if own.provider == "remote" else -(-requested // _WORKERS_PER_SANDBOX)
            pool = SandboxPool(size, config=replace(own, sessions=max(own.sessions, -(-requested // size))))
        resolve_config(pool, None if self._owns_pool else config, {} if self._owns_pool else sandbox_options)
        self.pool = pool
        self.workers = min(requested, pool.capacity)
        slots = [managed_sandbox(pool, pool.config) for _ in range(self.workers)]
        self._connections = [
            GradingConnection(slot, retries=retries, on_loss=self._leave_idle_slots, network=grading_network) for slot in slots
        ]
        # LIFO: recently used connections are open already, and the others may never need to be opened.
        self._idle: queue.LifoQueue[GradingConnection] = queue.LifoQueue()
        for connection in self._connections:
            self._idle.put(connection)
        self._limits = limits
        self._known = _KnownVerdicts(cache) if cache else None
        self._lock = threading.Lock()
        self._threads: ThreadPoolExecutor | None = None
        self._single = CancellationToken()
        self._runs = {self._single}
        self._is_closed = False

    def start(self) -> None:
        """Start the sandboxes and wait until they are ready. Idempotent.

        Raises:
            ProviderError: If a sandbox is unavailable.
        """
        self.pool.start()

    def grade(self, task: Task, code: str) -> Verdict:
        """Grade a submission, waiting for a free worker if all are in use.

        Args:
            task: The task.
            code: A whole program, or a completion of ``task.prefix``.

        Raises:
            ConfigurationError: If the task cannot be graded, regardless of the submission, or ``code`` is not a str.
            ProviderError: If no sandbox is available.
        """
        if self._known is None:
            return self._grade(task, code, self._single)
        self._begin()
        return self._verdict(self._entry((task, code), run=self._single, known=self._known))

    def grade_many(
        self, submissions: Iterable[tuple[Task, str]], *, progress: bool = False, regrade: bool = False
    ) -> Iterator[Verdict]:
        """Grade submissions in parallel; yields the verdicts in order, each as soon as it is available.

        Equal submissions of one task are graded once: the verdicts on the others have ``is_repeat``. The submissions may be an
        infinite iterable: they are consumed lazily, a bounded number ahead of the verdicts, and repeats of the last 65,536
        different ones are recognized. Closing or abandoning the iterator cancels the submissions in progress.

        Args:
            submissions: Pairs of task and code, consumed in the thread that iterates over the verdicts.
            progress: Whether to show a progress bar on stderr.
            regrade: Whether to grade repeats, too.

        Raises:
            ConfigurationError: If a task cannot be graded, regardless of the submission, or code is not a str.
            ProviderError: If no sandbox is available.
        """
        total = len(submissions) if isinstance(submissions, Sized) else None
        run = self._begin_run()
        known = None if regrade else self._known or _KnownVerdicts(_MAX_KNOWN)
        line = OrderedGradingQueue(map(partial(self._entry, run=run, known=known), submissions), workers=self.workers)
        try:
            with show_progress(total, shown=progress) as report:
                for entry in line.graded():
                    verdict = self._verdict(entry)
                    report(verdict)
                    yield verdict
        finally:
            self._end_run(run, line)

    def close(self) -> None:
        """Cancel the submissions in progress, and remove the grader's own sandboxes. Idempotent."""
        with self._lock:
            self._is_closed = True
            threads, self._threads = self._threads, None
            for run in self._runs:
                run.is_cancelled = True
        for connection in self._connections:
            connection.abort()
        if self._owns_pool:
            self.pool.close()
        if threads is not None:
            # Do not wait for a thread that is waiting for a slot of the caller's pool: it returns the slot once it gets it.
            threads.shutdown(wait=self._owns_pool, cancel_futures=True)
        with contextlib.suppress(queue.Empty):
            while True:
                self._idle.get_nowait().close()

    def __enter__(self) -> Grader:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Grader provider={self.pool.config.provider} workers={self.workers}>"

    def _entry(self, submission: tuple[Task, str], *, run: CancellationToken, known: _KnownVerdicts | None) -> _Entry:
        """Begin to grade a submission, unless the verdict of an equal one is known or in progress."""
        pair: Any = submission
        if not (isinstance(pair, tuple | list) and len(pair) == 2):
            message = f"Expected pairs of a task and its submission, got {submission!r:.200}"
            raise ConfigurationError(message)
        task, code = pair
        begin = partial(self._submit, task, code, run)
        if known is None or not isinstance(task, Task) or not isinstance(code, str) or _refuse(code):
            return _Entry(task=task, code=code, graded=begin(), is_repeat=False)
        return known.entry(task, code, begin)

    def _submit(self, task: Task, code: str, run: CancellationToken) -> Future[Verdict]:
        with self._lock:
            if self._threads is None:
                raise PoolClosedError
            return self._threads.submit(in_current_context(self._grade), task, code, run)

    def _verdict(self, entry: _Entry) -> Verdict:
        """Return the verdict on a submission, which may be that on an equal one, but for infrastructure errors."""
        if not entry.is_repeat:
            return entry.graded.result()
        with contextlib.suppress(Exception):
            entry.graded.result()
        if _is_lost(entry.graded):
            return self._grade(entry.task, entry.code, self._single)
        return replace(entry.graded.result(), is_repeat=True)

    def _grade(self, task: Task, code: str, run: CancellationToken) -> Verdict:
        if not isinstance(task, Task):
            message = f"Expected a Task, such as load_suite('basics')['basics/add_up'], got {task!r:.200}"
            raise ConfigurationError(message)
        if not isinstance(code, str):
            message = f"Expected the submission for task {task.id!r} to be a str, got {type(code).__name__}"
            raise ConfigurationError(message)
        if self._limits is not None:
            task = task.with_limits(self._limits)
        if problem := _refuse(code):
            return Verdict(task_id=task.id, outcome=VerdictOutcome.ERROR, cases=not_run(task), message=problem)
        program = task.submission(code)
        if self._is_closed:
            raise PoolClosedError
        connection = self._idle.get()
        try:
            return connection.grade(task, program, run)
        finally:
            if self.pool.is_contended:
                connection.close()
            self._idle.put(connection)
            if self._is_closed:
                connection.close()

    def _leave_idle_slots(self) -> None:
        """Return the slots of idle connections, so that a retry need not wait for them."""
        idle: list[GradingConnection] = []
        with contextlib.suppress(queue.Empty):
            while True:
                idle.append(self._idle.get_nowait())
        for connection in idle:
            connection.close()
            self._idle.put(connection)

    def _begin_run(self) -> CancellationToken:
        run = CancellationToken()
        self._begin()
        with self._lock:
            self._runs.add(run)
        return run

    def _begin(self) -> None:
        """Start the threads, if they have not been started."""
        with self._lock:
            if self._is_closed:
                raise PoolClosedError
            if self._threads is None:
                self._threads = ThreadPoolExecutor(self.workers, thread_name_prefix="coding_gym_grader")

    def _end_run(self, run: CancellationToken, line: OrderedGradingQueue) -> None:
        run.is_cancelled = True
        with self._lock:
            self._runs.discard(run)
        if line.cancel():
            for connection in self._connections:
                connection.abort(run)


def _refuse(code: str) -> str | None:
    """Return why the code cannot be sent; None if it can."""
    try:
        size = len(code.encode())
    except UnicodeEncodeError as error:
        return f"the submission is not Unicode: a lone surrogate at {error.start}"
    if size > _MAX_CODE_BYTES:
        return f"expected a submission of at most {_MAX_CODE_BYTES:,} bytes, got {size:,}"
    return None


def _check_limits(limits: object) -> None:
    if limits is not None and not isinstance(limits, GradingLimits):
        message = f"Expected limits to be a GradingLimits or None, got {limits!r:.200}"
        raise ConfigurationError(message)
