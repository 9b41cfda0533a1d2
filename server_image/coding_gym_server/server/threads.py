"""Blocking work in threads, which never outlives the coroutine that waits for it, nor the episode whose files it accesses."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

from coding_gym_server.workspace.file_errors import EpisodeEndedError

__all__ = ["FileLease", "in_thread", "start_in_thread"]

_MAX_JOBS = 4
"""Maximum number of threads that work on the files of one episode."""

_own_threads = ThreadPoolExecutor(8, "server")
"""Threads of the server's own work, which clients cannot occupy."""

_client_threads = ThreadPoolExecutor(4 * _MAX_JOBS, "files")
"""Threads of the work on files that clients request."""

_log = logging.getLogger(__name__)

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


async def in_thread(work: Callable[_Arguments, _Result], *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
    """Call a function in a thread; return its result.

    If the task is canceled, a call that has not begun is dropped, and any other one is waited for.

    Args:
        work: The function.
        args: Its arguments.
        kwargs: Its keyword arguments.
    """
    return await _result(_own_threads.submit(work, *args, **kwargs))


def start_in_thread(work: Callable[[], object]) -> None:
    """Call a function in a thread, and let nobody wait for it."""

    def call() -> None:
        try:
            work()
        except Exception:  # noqa: BLE001 - reported
            _log.exception("work in a thread failed")

    _own_threads.submit(call)


class FileLease:
    """Permission to work on the files of an episode, until it ends."""

    def __init__(self) -> None:
        self._turns = asyncio.Semaphore(_MAX_JOBS)
        self._jobs: set[Future[Any]] = set()
        self._has_ended = False
        self._idle = asyncio.Event()
        self._idle.set()

    async def run(self, work: Callable[_Arguments, _Result], *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        """Call a function that accesses the files; see ``in_thread``.

        Raises:
            EpisodeEndedError: If the episode has ended before the call began.
        """
        async with self._turns:
            if self._has_ended:
                raise EpisodeEndedError
            job = _client_threads.submit(work, *args, **kwargs)
            self._jobs.add(job)
            self._idle.clear()
            try:
                return await _result(job)
            finally:
                self._jobs.remove(job)
                if not self._jobs:
                    self._idle.set()

    async def end(self) -> None:
        """Drop what has not begun, and wait for the rest. Idempotent."""
        self._has_ended = True
        for job in self._jobs:
            job.cancel()
        await self._idle.wait()


async def _result(job: Future[_Result]) -> _Result:
    """Return the result of a job, which has ended when this returns or raises."""
    done = asyncio.wrap_future(job)
    cancellation = None
    while not done.done():
        try:
            await asyncio.wait([done])
        except asyncio.CancelledError as error:
            cancellation = error
            job.cancel()
    if cancellation is None and not done.cancelled():
        return done.result()
    if cancellation is None:
        raise EpisodeEndedError
    if not done.cancelled():
        # Nobody else would retrieve it.
        done.exception()
    raise cancellation
