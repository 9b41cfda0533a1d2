"""Pool statistics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from coding_gym_server.durations import WAIT_BOUNDS, DurationHistogram

__all__ = ["PoolCounts", "PoolStats"]


@dataclass(frozen=True, kw_only=True)
class PoolStats:
    """Statistics of a pool.

    Attributes:
        sandboxes: Sandboxes that are ready; with ``base_urls``, servers that answer.
        idle: Idle slots.
        busy: Occupied slots.
        starting: Slots of sandboxes that are starting.
        waiting: Callers that wait for a slot.
        waits: Callers that have had to wait so far.
        wait_seconds: Their total waiting time.
        timeouts: Those of them that have got no slot in time.
        started: Sandboxes that have started so far.
        recycled: Sandboxes that were replaced after their last episode.
        lost: Sandboxes that were replaced because they died.
        failed: Sandboxes that failed to start.
        episodes: Episodes that have begun so far.
        wait_times: How long callers have waited that had to.
        start_times: How long sandboxes took to start; with ``base_urls``, connections to servers.
    """

    sandboxes: int
    idle: int
    busy: int
    starting: int
    waiting: int
    waits: int
    wait_seconds: float
    timeouts: int
    started: int
    recycled: int
    lost: int
    failed: int
    episodes: int
    wait_times: DurationHistogram
    start_times: DurationHistogram


class PoolCounts(dict[str, int]):
    """Counters of a pool, by the name of the statistic.

    Attributes:
        wait_times: How long callers have waited.
        start_times: How long sandboxes took to start.
    """

    def __init__(self) -> None:
        super().__init__(dict.fromkeys(("waits", "timeouts", "started", "recycled", "lost", "failed", "episodes"), 0))
        self.wait_times = DurationHistogram(WAIT_BOUNDS)
        self.start_times = DurationHistogram(WAIT_BOUNDS)

    def fields(self) -> dict[str, Any]:
        """Return the fields of ``PoolStats`` that are counted."""
        return {
            **self,
            "wait_seconds": self.wait_times.total,
            "wait_times": self.wait_times.copy(),
            "start_times": self.start_times.copy(),
        }
