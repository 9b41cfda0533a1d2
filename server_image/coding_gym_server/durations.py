"""``DurationHistogram``: a histogram of durations, which client and server count for their metrics."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

__all__ = ["STEP_BOUNDS", "WAIT_BOUNDS", "DurationHistogram"]

STEP_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Upper bounds for what code takes, in seconds: from an assignment to a long computation."""

WAIT_BOUNDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
"""Upper bounds for waits and starts, in seconds."""


class DurationHistogram:
    """Numbers of durations within bounds. Not thread-safe.

    It is counted without ``prometheus_client``, whose import would delay each start of a sandbox.

    Args:
        bounds: Upper bounds of the buckets in seconds, ascending; durations above the last are counted, too.

    Attributes:
        total: Sum of the durations, in seconds.
    """

    def __init__(self, bounds: Sequence[float] = STEP_BOUNDS) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, seconds: float) -> None:
        """Count a duration."""
        self._counts[bisect_left(self._bounds, seconds)] += 1
        self.total += seconds

    @property
    def count(self) -> int:
        """Number of durations."""
        return sum(self._counts)

    @property
    def buckets(self) -> list[tuple[str, float]]:
        """The buckets as Prometheus has them: upper bound, or ``+Inf``, and number of durations within it."""
        found, within = [], 0
        for bound, count in zip((*map(str, self._bounds), "+Inf"), self._counts, strict=True):
            within += count
            found.append((bound, float(within)))
        return found

    def copy(self) -> DurationHistogram:
        """Return a histogram of the same durations."""
        copied = DurationHistogram(self._bounds)
        copied._counts, copied.total = [*self._counts], self.total
        return copied
