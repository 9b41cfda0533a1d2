"""One attempt for all who want the same at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Generic, TypeVar

__all__ = ["Once"]

T = TypeVar("T")


class Once(Generic[T]):
    """Shares the outcome of what is under way, failures included, among the threads that ask for it.

    A pool that is told a wrong name asks as many times as it has sandboxes, and a failure may take pip half a minute.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._under_way: dict[Hashable, Future[T]] = {}

    def __call__(self, key: Hashable, work: Callable[[], T]) -> T:
        """Return what ``work`` returns, or what the same work for the same key does that another thread is at."""
        with self._lock:
            others = self._under_way.get(key)
            future = self._under_way.setdefault(key, Future())
        if others is not None:
            return others.result()
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)
            raise
        finally:
            with self._lock:
                del self._under_way[key]
        return future.result()
