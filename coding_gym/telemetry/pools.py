"""Pools of the process, whose statistics can be read at any time."""

from __future__ import annotations

import itertools
import weakref
from typing import Any, Protocol

__all__ = ["ObservedPool", "observed_pools", "report_pool"]


class ObservedPool(Protocol):
    """A pool of sandboxes, as observers use it."""

    @property
    def stats(self) -> Any:
        """Current statistics, see ``coding_gym.sandbox.pool.PoolStats``."""

    @property
    def is_usable(self) -> bool:
        """Whether it is open, and belongs to this process."""


_numbers = itertools.count()
_pools: weakref.WeakValueDictionary[int, ObservedPool] = weakref.WeakValueDictionary()


def report_pool(pool: ObservedPool) -> None:
    """Remember a pool as long as it exists. Observers read its statistics when they need them."""
    _pools[next(_numbers)] = pool


def observed_pools() -> list[ObservedPool]:
    """Return the open pools of this process, the oldest first, and not those of one that it was forked from."""
    return [pool for pool in list(_pools.values()) if pool.is_usable]
