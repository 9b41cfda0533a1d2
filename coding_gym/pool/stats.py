"""The figures of a pool."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["PoolStats"]


@dataclass(frozen=True, kw_only=True)
class PoolStats:
    """The figures of a pool. Places, of which a sandbox has ``sessions``, unless they say otherwise.

    Attributes:
        idle: Places that wait to be taken.
        busy: Places that are taken.
        starting: Places of sandboxes that are coming up.
        waiting: Callers that wait for a place now.
        waits: Callers that had to wait until now.
        wait_seconds: How long they waited, together.
        started: Sandboxes that came up until now.
        recycled: Sandboxes that were replaced after their last episode.
        lost: Sandboxes that were replaced because they died.
        failed: Sandboxes that did not come up.
        episodes: Episodes that began until now.
    """

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
