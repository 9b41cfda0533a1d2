"""Deduplicate concurrent calls for the same key (single flight)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Generic, TypeVar

__all__ = ["SingleFlight"]

T = TypeVar("T")


class SingleFlight(Generic[T]):
    """Runs concurrent calls for the same key once, and shares the outcome, including failures, among the threads.

    A pool with a wrong package name would otherwise fail once per sandbox, and each failure may take pip half a minute.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._in_progress: dict[Hashable, Future[T]] = {}

    def __call__(self, key: Hashable, work: Callable[[], T]) -> T:
        """Return the result of ``work``, or of the call for the same key that is already in progress in another thread."""
        with self._lock:
            others = self._in_progress.get(key)
            future = self._in_progress.setdefault(key, Future())
        if others is not None:
            return others.result()
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)
            raise
        finally:
            with self._lock:
                del self._in_progress[key]
        return future.result()
