"""Submissions on their way through many workers, and their verdicts in order."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Generic, TypeVar

__all__ = ["GradingQueue"]

_LOOK_AHEAD = 16
"""How many submissions a worker may be ahead of the verdict that is due: one that takes long holds up no others."""

_QUEUED = 2
"""How many submissions there are for a worker, if there are any: one that it grades, and one that it finds then."""

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class GradingQueue(Generic[_Item, _Result]):
    """Takes items as workers want them, and gives the results in the order of the items.

    Args:
        source: The items; there may be no end of them.
        submit: Has a worker do its work on an item.
        workers: How many work at a time.
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
        """Yield the results, each when it is due."""
        while True:
            self._take()
            if not self._waiting:
                return
            with self._changed:
                # Whichever item it is that ends, its worker wants another.
                self._changed.wait_for(lambda: self._is_due() or self._wants_more())
            if self._is_due():
                yield self._waiting.popleft().result()

    def cancel(self) -> bool:
        """Drop what has not begun; says whether something has, and has not ended."""
        for future in self._waiting:
            future.cancel()
        return self._unfinished > 0

    def _take(self) -> None:
        while self._wants_more():
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

    def _wants_more(self) -> bool:
        if self._is_exhausted or len(self._waiting) >= self._workers * _LOOK_AHEAD:
            return False
        # A result that is due does not wait for items, unless a worker does.
        return self._unfinished < self._workers * (1 if self._is_due() else _QUEUED)

    def _is_due(self) -> bool:
        return bool(self._waiting) and self._waiting[0].done()

    def _ended(self, future: Future[_Result]) -> None:
        with self._changed:
            self._unfinished -= 1
            self._changed.notify_all()
