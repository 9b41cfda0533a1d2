"""Cache of canary pools, which the submissions to a task share."""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from weakref import WeakValueDictionary

import msgspec

from coding_gym_server.protocol.grading import Submission
from coding_gym_server.server.grading.faithful.canary_pool import CanaryPool

__all__ = ["PoolCache"]

_MAX_POOLS = 512

_encoder = msgspec.msgpack.Encoder(order="deterministic")


class PoolCache:
    """Least recently used canary pools by task. Concurrent requests for one task share its validation."""

    def __init__(self) -> None:
        self._pools: OrderedDict[bytes, CanaryPool] = OrderedDict()
        self._locks: WeakValueDictionary[bytes, asyncio.Lock] = WeakValueDictionary()

    async def get(self, submission: Submission, build: Callable[[], Awaitable[CanaryPool]]) -> CanaryPool:
        """Return the pool of a submission's task; the first of several concurrent callers builds it.

        If that fails, or its caller is canceled, the next one tries.
        """
        key = _key(submission)
        lock = self._locks.setdefault(key, asyncio.Lock())
        async with lock:
            pool = self._pools.get(key)
            if pool is None:
                pool = self._pools[key] = await build()
                if len(self._pools) > _MAX_POOLS:
                    self._pools.popitem(last=False)
            else:
                self._pools.move_to_end(key)
            return pool


def _key(submission: Submission) -> bytes:
    task = (submission.tests, submission.reference, submission.files, submission.entry_point, submission.limits)
    return hashlib.sha256(_encoder.encode(task)).digest()
