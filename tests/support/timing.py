"""Waiting, and the one judgement of time that tests make: at once, or only after the minute that a program sleeps."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TypeVar

__all__ = ["Stalls", "eventually", "promptly"]

_MUCH_EARLIER_THAN_A_MINUTE = 40.0
_TICK = 0.02

_Result = TypeVar("_Result")


class Stalls:
    """Context manager that measures for how long this machine keeps a ready thread waiting.

    Attributes:
        seconds: Total by which a thread that sleeps again and again woke up late.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._measure, daemon=True)

    def __enter__(self) -> Stalls:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join()

    def _measure(self) -> None:
        began = time.monotonic()
        while not self._ended.wait(_TICK):
            now = time.monotonic()
            self.seconds += max(0.0, now - began - _TICK)
            began = now


@contextlib.contextmanager
def promptly(*, after: float = 0.0) -> Iterator[None]:
    """Assert that a block ends at once, rather than after the minute that a program in it sleeps.

    The time that this machine was stalled meanwhile, as a second thread measures it, does not count. What sleeps must sleep
    for a minute or longer.

    Args:
        after: Seconds that the block has to take before, because it waits for a time limit.
    """
    began = time.monotonic()
    with Stalls() as stalls:
        yield
    took = time.monotonic() - began
    assert took >= after, f"ended after {took:.2f} s, expected a wait of {after} s first"
    late = took - after - stalls.seconds
    assert late < _MUCH_EARLIER_THAN_A_MINUTE, f"ended {late:.1f} s late; stalls of {stalls.seconds:.1f} s are not counted"


def eventually(condition: Callable[[], _Result], within: float = _MUCH_EARLIER_THAN_A_MINUTE) -> _Result:
    """Call a function again and again; return its first true result, or its last one.

    Args:
        condition: The function.
        within: Seconds after which it is not called again; by default, a program that sleeps for a minute continues then.
            Stalls of this machine do not count.
    """
    began = time.monotonic()
    with Stalls() as stalls:
        while not (result := condition()) and time.monotonic() - began - stalls.seconds <= within:
            time.sleep(0.01)
    return result
