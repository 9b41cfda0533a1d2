"""Pools of the process, whose statistics can be read at any time."""

from __future__ import annotations

import weakref
from typing import Any, Protocol

__all__ = ["ObservedPool", "observed_pools", "report_pool"]


class ObservedPool(Protocol):
    """A pool of sandboxes, as observers use it."""

    @property
    def stats(self) -> Any:
        """Current statistics, see ``coding_gym.sandbox.pool.stats.PoolStats``."""

    @property
    def is_usable(self) -> bool:
        """Whether it is open, and belongs to this process."""


_pools: weakref.WeakSet[ObservedPool] = weakref.WeakSet()


def report_pool(pool: ObservedPool) -> None:
    """Remember a pool as long as it exists. Observers read its statistics when they need them."""
    _pools.add(pool)


def observed_pools() -> list[ObservedPool]:
    """Return the open pools of this process, and not those of one that it was forked from."""
    return [pool for pool in list(_pools) if pool.is_usable]
