"""``Grader``: grades submissions and returns verdicts."""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections.abc import Iterable, Iterator, Mapping, Sized
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, Unpack

from coding_gym._validation import check_count, parameter_names
from coding_gym.errors import ConfigurationError, PoolClosedError
from coding_gym.sandbox.config import SandboxConfig, SandboxKwargs, sandbox_config
from coding_gym.sandbox.pool import SandboxPool, managed_sandbox, resolve_config
from coding_gym.tasks.grading.connection import CancellationToken, GradingConnection, not_run
from coding_gym.tasks.grading.ordered_queue import OrderedGradingQueue
from coding_gym.tasks.grading.progress import show_progress
from coding_gym.tasks.task import Task
from coding_gym.tasks.verdict import Verdict
from coding_gym.tracing import in_current_context
from coding_gym_server.protocol import MAX_FRAME_BYTES
from coding_gym_server.protocol.grading import VerdictOutcome

__all__ = ["Grader"]

_WORKERS_PER_CORE = 2
"""The server grades about one submission per core at a time; the second is in transit."""

_MAX_EPISODES = 10_000
"""Number of submissions after which the grader's own sandbox is replaced."""

_MAX_CODE_BYTES = MAX_FRAME_BYTES // 2


class Grader:
    """Grades submissions in parallel in sandboxes. Use it as a context manager, or call ``close``.

    Every submission gets a verdict. After an infrastructure error, such as a sandbox crash, it is graded again; if the retries
    fail too, the outcome is ``infrastructure``, and the verdict has no score rather than a score of 0.

    All methods are thread-safe.

    Args:
        pool: Source of the sandboxes; session slots are kept until ``close``, or until a sandbox is lost. If None, the grader
            starts its own sandbox.
        config: Configuration of that sandbox, a ``SandboxConfig`` or a mapping of its fields. It has all cores unless ``cpu``
            is set.
        workers: Number of submissions graded in parallel; two per core if None. Limited to the number of slots of the pool.
        retries: Maximum number of retries of a submission after an infrastructure error.
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
        **sandbox_options: Unpack[SandboxKwargs],
    ) -> None:
        cores = len(os.sched_getaffinity(0))
        requested = cores * _WORKERS_PER_CORE if workers is None else workers
        check_count("workers", requested, 1)
        check_count("retries", retries, 0)
        self._owns_pool = pool is None
        if pool is None:
            if config is None:
                sandbox_options = {"cpu": cores, **sandbox_options}
            own = sandbox_config(config, sandbox_options, parameter_names(Grader))
            pool = SandboxPool(config=replace(own, sessions=max(own.sessions, requested)), max_episodes=_MAX_EPISODES)
        resolve_config(pool, None if self._owns_pool else config, {} if self._owns_pool else sandbox_options)
        self.pool = pool
        self.workers = min(requested, pool.capacity)
        slots = [managed_sandbox(pool, pool.config) for _ in range(self.workers)]
        self._connections = [GradingConnection(slot, retries=retries, on_loss=self._leave_idle_slots) for slot in slots]
        # LIFO: recently used connections are open already, and the others may never need to be opened.
        self._idle: queue.LifoQueue[GradingConnection] = queue.LifoQueue()
        for connection in self._connections:
            self._idle.put(connection)
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
        return self._grade(task, code, self._single)

    def grade_many(self, submissions: Iterable[tuple[Task, str]], *, progress: bool = False) -> Iterator[Verdict]:
        """Grade submissions in parallel; yields the verdicts in order, each as soon as it is available.

        The submissions may be an infinite iterable: they are consumed lazily, a bounded number ahead of the verdicts. Closing
        or abandoning the iterator cancels the submissions in progress.

        Args:
            submissions: Pairs of task and code, consumed in the thread that iterates over the verdicts.
            progress: Whether to show a progress bar on stderr.

        Raises:
            ConfigurationError: If a task cannot be graded, regardless of the submission, or code is not a str.
            ProviderError: If no sandbox is available.
        """
        total = len(submissions) if isinstance(submissions, Sized) else None
        run = self._begin_run()
        line = OrderedGradingQueue(iter(submissions), partial(self._submit, run=run), workers=self.workers)
        try:
            with show_progress(total, shown=progress) as report:
                for verdict in line.results():
                    report(verdict)
                    yield verdict
        finally:
            self._end_run(run, line)

    def close(self) -> None:
        """Cancel the submissions in progress, and remove the grader's own sandbox. Idempotent."""
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

    def _submit(self, submission: tuple[Task, str], *, run: CancellationToken) -> Future[Verdict]:
        pair: Any = submission
        if not (isinstance(pair, tuple | list) and len(pair) == 2):
            message = f"Expected pairs of a task and its submission, got {submission!r:.200}"
            raise ConfigurationError(message)
        task, code = submission
        with self._lock:
            if self._threads is None:
                raise PoolClosedError
            return self._threads.submit(in_current_context(self._grade), task, code, run)

    def _grade(self, task: Task, code: str, run: CancellationToken) -> Verdict:
        if not isinstance(task, Task):
            message = f"Expected a Task, such as load_suite('basics')['basics/add_up'], got {task!r:.200}"
            raise ConfigurationError(message)
        if not isinstance(code, str):
            message = f"Expected the submission for task {task.id!r} to be a str, got {type(code).__name__}"
            raise ConfigurationError(message)
        if problem := _refuse(code):
            return Verdict(task_id=task.id, outcome=VerdictOutcome.ERROR, cases=not_run(task), message=problem)
        program = task.submission(code)
        if self._is_closed:
            raise PoolClosedError
        connection = self._idle.get()
        try:
            return Verdict.of(task.id, connection.grade(task, program, run))
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
        with self._lock:
            if self._is_closed:
                raise PoolClosedError
            if self._threads is None:
                self._threads = ThreadPoolExecutor(self.workers, thread_name_prefix="coding_gym_grader")
            self._runs.add(run)
        return run

    def _end_run(self, run: CancellationToken, line: OrderedGradingQueue[tuple[Task, str], Verdict]) -> None:
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
