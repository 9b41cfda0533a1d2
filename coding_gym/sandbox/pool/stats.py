"""Pool statistics."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["PoolStats"]


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
        started: Sandboxes that have started so far.
        recycled: Sandboxes that were replaced after their last episode.
        lost: Sandboxes that were replaced because they died.
        failed: Sandboxes that failed to start.
        episodes: Episodes that have begun so far.
    """

    sandboxes: int
    idle: int
    busy: int
    starting: int
    waiting: int
    waits: int
    wait_seconds: float
    started: int
    recycled: int
    lost: int
    failed: int
    episodes: int
