"""Ordered queue: many workers process submissions in parallel, and the verdicts keep their order."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Generic, TypeVar

__all__ = ["OrderedGradingQueue"]

_LOOK_AHEAD = 16
"""Maximum number of submissions per worker ahead of the verdict that is due: a slow one does not block the others."""

_QUEUED = 2
"""Number of submissions kept per worker, if available: the one being graded and the next."""

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class OrderedGradingQueue(Generic[_Item, _Result]):
    """Feeds items to workers as they become free, and yields the results in the order of the items.

    Args:
        source: The items; may be infinite.
        submit: Submits an item to a worker.
        workers: Number of workers.
    """

    def __init__(self, source: Iterator[_Item], submit: Callable[[_Item], Future[_Result]], *, workers: int) -> None:
        self._source = source
        self._submit = submit
        self._workers = workers
        self._waiting: deque[Future[_Result]] = deque()
        self._changed = threading.Condition()
        self._unfinished = 0
        self._is_exhausted = False

    def results(self) -> Iterator[_Result]:
        """Yield the results in order, each as soon as it is available."""
        while True:
            self._fill()
            if not self._waiting:
                return
            with self._changed:
                # Any item that completes frees a worker, not only the one that is due.
                self._changed.wait_for(lambda: self._is_due() or self._has_capacity())
            if self._is_due():
                yield self._waiting.popleft().result()

    def cancel(self) -> bool:
        """Cancel the items that have not started; returns whether any are still in progress."""
        for future in self._waiting:
            future.cancel()
        return self._unfinished > 0

    def _fill(self) -> None:
        while self._has_capacity():
            try:
                item = next(self._source)
            except StopIteration:
                self._is_exhausted = True
                return
            future = self._submit(item)
            with self._changed:
                self._unfinished += 1
            self._waiting.append(future)
            future.add_done_callback(self._ended)

    def _has_capacity(self) -> bool:
        if self._is_exhausted or len(self._waiting) >= self._workers * _LOOK_AHEAD:
            return False
        # A result that is due is not delayed by fetching items, unless a worker is idle.
        return self._unfinished < self._workers * (1 if self._is_due() else _QUEUED)

    def _is_due(self) -> bool:
        return bool(self._waiting) and self._waiting[0].done()

    def _ended(self, future: Future[_Result]) -> None:
        with self._changed:
            self._unfinished -= 1
            self._changed.notify_all()
