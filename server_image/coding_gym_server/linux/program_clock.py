"""Clock that stands still while programs wait for a processor."""

from __future__ import annotations

import time
from collections.abc import Iterable

from coding_gym_server.linux import procfs

__all__ = ["ProgramClock"]

_SHORTEST_READING = 0.05
"""Seconds from one reading to the next: the kernel accounts for a wait, of milliseconds mostly, when it ends."""


class ProgramClock:
    """Clock that stands still while programs wait for a processor.

    A deadline on it holds on a busy machine: programs have the same time to react as on a quiet one. The kernel measures
    for how long each thread has been runnable without a processor (``/proc/PID/task/TID/schedstat``, see sched-stats in its
    documentation); where it does not, such as in gVisor, all time counts.

    Args:
        slowest: Fraction of all time that counts at least. The waits of several threads may add up to more than has passed, as
            with a program that has more busy threads than the machine has processors.
    """

    def __init__(self, *, slowest: float = 0.0) -> None:
        self._slowest = slowest
        self._began = self._last = time.monotonic()
        self._counted = 0.0
        self._seen: dict[int, int] = {}

    def read(self, pids: Iterable[int]) -> float:
        """Return the seconds since the clock was created in which the programs did not wait, 50 ms too few at most.

        Args:
            pids: Process ids of the programs. A thread that was not there at the last reading has begun since then.
        """
        now = time.monotonic()
        if now - self._last < _SHORTEST_READING:
            return self._counted
        waiting: dict[int, int] = {}
        for pid in pids:
            waiting |= procfs.waiting_times(pid)
        # A thread that has waited for less than when it was seen last is another one.
        seen = {thread: self._seen.get(thread, 0) for thread in waiting}
        waits = [(total - (seen[thread] if seen[thread] <= total else 0)) / 1e9 for thread, total in waiting.items()]
        elapsed = now - self._last
        self._counted += max(self._slowest * elapsed, elapsed - sum(waits))
        # What a thread has waited beyond that was counted earlier: the kernel had not accounted for it yet.
        earlier = (1 - self._slowest) * max(0.0, max(waits, default=0.0) - elapsed)
        self._counted = max(self._slowest * (now - self._began), self._counted - earlier)
        self._seen = waiting
        self._last = now
        return self._counted
