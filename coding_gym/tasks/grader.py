"""``Grader``: submissions in, verdicts out."""

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
from typing import Any

from coding_gym.config import SandboxConfig, sandbox_config
from coding_gym.errors import ConfigurationError, PoolClosedError
from coding_gym.pool import SandboxPool, make_slot, resolve_config
from coding_gym.settings import check_count
from coding_gym.tasks.grading_place import GradingPlace, Run, not_run
from coding_gym.tasks.grading_progress import show_progress
from coding_gym.tasks.grading_queue import GradingQueue
from coding_gym.tasks.task import Task
from coding_gym.tasks.verdict import Verdict
from coding_gym_server.grading.messages import VerdictOutcome
from coding_gym_server.protocol import MAX_FRAME_BYTES

__all__ = ["Grader"]

_WORKERS_PER_CORE = 2
"""The server grades little more than one a core at a time; the next one is on its way."""

_MAX_EPISODES = 10_000
"""Submissions after which a sandbox of the grader's own is replaced."""

_MOST_CODE_BYTES = MAX_FRAME_BYTES // 2


class Grader:
    """Grades submissions in sandboxes, many at a time. Use it as a context manager, or call ``close``.

    Whatever a submission is or does, it gets a verdict. After a fault of ours, such as a sandbox that died, it is tried again;
    if that does not help, the outcome is ``infrastructure``, which is no zero: such a verdict has no score.

    Its methods may be called from any thread.

    Args:
        pool: Where the sandboxes come from; places that are taken are kept until ``close``. The grader has a sandbox of its own
            if None.
        config: That sandbox, as a ``SandboxConfig`` or a mapping of its fields. It has all cores unless ``cpu`` says otherwise.
        workers: How many submissions are graded at a time; two a core if None. No more than a pool has places.
        retries: How often to try a submission again after a fault of ours.
        sandbox_options: Fields of ``SandboxConfig``, instead of ``config``: ``provider="local"``, ``mem="1g"`` ...

    Raises:
        ConfigurationError: A setting cannot be.

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
        **sandbox_options: Any,
    ) -> None:
        cores = len(os.sched_getaffinity(0))
        wanted = cores * _WORKERS_PER_CORE if workers is None else workers
        check_count("workers", wanted, 1)
        check_count("retries", retries, 0)
        self._owns_pool = pool is None
        if pool is None:
            if config is None:
                sandbox_options = {"cpu": cores, **sandbox_options}
            own = sandbox_config(config, sandbox_options)
            pool = SandboxPool(config=replace(own, sessions=max(own.sessions, wanted)), max_episodes=_MAX_EPISODES)
        resolve_config(pool, None if self._owns_pool else config, {} if self._owns_pool else sandbox_options)
        self.pool = pool
        self.workers = min(wanted, pool.size * pool.config.sessions)
        self._places = [GradingPlace(make_slot(pool, pool.config), retries=retries) for _ in range(self.workers)]
        # Last in, first out: those in use are connected, and the others may never need to be.
        self._idle: queue.LifoQueue[GradingPlace] = queue.LifoQueue()
        for place in self._places:
            self._idle.put(place)
        self._lock = threading.Lock()
        self._threads: ThreadPoolExecutor | None = None
        self._single = Run()
        self._runs = {self._single}
        self._is_closed = False

    def start(self) -> None:
        """Start the sandboxes and wait until they are ready; harmless when they are.

        Raises:
            ProviderError: One cannot be had.
        """
        self.pool.start()

    def grade(self, task: Task, code: str) -> Verdict:
        """Grade a submission, waiting for a place if all are in use.

        Args:
            task: The task.
            code: A whole program, or a completion of what ``task.prefix`` begins.

        Raises:
            ConfigurationError: The task cannot be graded, whatever the submission; or ``code`` is no str.
            ProviderError: There are no sandboxes to be had here.
        """
        return self._grade(task, code, self._single)

    def grade_many(self, submissions: Iterable[tuple[Task, str]], *, progress: bool = False) -> Iterator[Verdict]:
        """Grade submissions, as many at a time as there are workers; yields the verdicts in their order, each when it is due.

        There may be no end of submissions: they are taken as they are needed, a bounded number ahead of the verdicts. To close
        the iterator, or to leave it behind, cancels what is under way.

        Args:
            submissions: Pairs of a task and code. They are taken in the thread that takes the verdicts.
            progress: Whether to show a progress bar on stderr.

        Raises:
            ConfigurationError: A task cannot be graded, whatever the submission; or code is no str.
            ProviderError: There are no sandboxes to be had here.
        """
        total = len(submissions) if isinstance(submissions, Sized) else None
        run = self._begin_run()
        line = GradingQueue(iter(submissions), partial(self._submit, run=run), workers=self.workers)
        try:
            with show_progress(total, shown=progress) as tell:
                for verdict in line.results():
                    tell(verdict)
                    yield verdict
        finally:
            self._end_run(run, line)

    def close(self) -> None:
        """Cancel what is under way, and remove the sandbox of the grader's own; harmless when closed already."""
        with self._lock:
            self._is_closed = True
            threads, self._threads = self._threads, None
            for run in self._runs:
                run.is_cancelled = True
        for place in self._places:
            place.abort()
        if self._owns_pool:
            self.pool.close()
        if threads is not None:
            # One that waits for a place of somebody else's pool is not waited for: it gives back what it gets.
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

    def _submit(self, submission: tuple[Task, str], *, run: Run) -> Future[Verdict]:
        task, code = submission
        with self._lock:
            if self._threads is None:
                raise PoolClosedError
            return self._threads.submit(self._grade, task, code, run)

    def _grade(self, task: Task, code: str, run: Run) -> Verdict:
        if not isinstance(code, str):
            message = f"Expected the submission for task {task.id!r} to be a str, got {type(code).__name__}"
            raise ConfigurationError(message)
        if problem := _refuse(code):
            return Verdict(task_id=task.id, outcome=VerdictOutcome.ERROR, cases=not_run(task), message=problem)
        program = task.submission(code)
        if self._is_closed:
            raise PoolClosedError
        place = self._idle.get()
        try:
            return Verdict.of(task.id, place.grade(task, program, run))
        finally:
            self._idle.put(place)
            if self._is_closed:
                place.close()

    def _begin_run(self) -> Run:
        run = Run()
        with self._lock:
            if self._is_closed:
                raise PoolClosedError
            if self._threads is None:
                self._threads = ThreadPoolExecutor(self.workers, thread_name_prefix="coding_gym_grader")
            self._runs.add(run)
        return run

    def _end_run(self, run: Run, line: GradingQueue[tuple[Task, str], Verdict]) -> None:
        run.is_cancelled = True
        with self._lock:
            self._runs.discard(run)
        if line.cancel():
            for place in self._places:
                place.abort(run)


def _refuse(code: str) -> str | None:
    """Say why a text cannot be sent; None if it can."""
    try:
        size = len(code.encode())
    except UnicodeEncodeError as error:
        return f"the submission is not Unicode: a lone surrogate at {error.start}"
    if size > _MOST_CODE_BYTES:
        return f"the submission has {size:,} bytes; {_MOST_CODE_BYTES:,} are the most"
    return None
