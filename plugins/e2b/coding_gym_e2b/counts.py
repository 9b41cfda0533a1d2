"""Counters of the gateway, for its metrics."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Iterator, Sequence

from coding_gym_e2b.failures import ApiError
from coding_gym_server.durations import WAIT_BOUNDS, DurationHistogram

__all__ = ["GatewayCounts"]


class GatewayCounts:
    """Numbers of E2B sandboxes since the start of the gateway.

    Attributes:
        created: Those that were made, by what they were made of: ``template``, ``snapshot`` or ``fork``.
        ended: Those that have ended, by reason: ``killed``, ``expired`` or ``lost``.
        refused: Those that were not made, by the status of the response: ``429`` if all places are taken.
        create_times: How long it took to make one of a template or a snapshot.
    """

    def __init__(self) -> None:
        self.created = Counter({"template": 0, "snapshot": 0, "fork": 0})
        self.ended = Counter({"killed": 0, "expired": 0, "lost": 0})
        self.refused = Counter({"429": 0, "503": 0})
        self.create_times = DurationHistogram(WAIT_BOUNDS)

    @contextlib.contextmanager
    def creating(self, origin: str) -> Iterator[None]:
        """Count a sandbox that is made in the block, or why it is not."""
        began = time.monotonic()
        try:
            yield
        except ApiError as error:
            self.refused[str(error.status)] += 1
            raise
        self.created[origin] += 1
        self.create_times.add(time.monotonic() - began)

    def count_forks(self, forks: Sequence[object]) -> None:
        """Count sandboxes that were forked, or the errors in their place."""
        for fork in forks:
            if isinstance(fork, ApiError):
                self.refused[str(fork.status)] += 1
            else:
                self.created["fork"] += 1
