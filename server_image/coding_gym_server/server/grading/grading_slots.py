"""Slots of submissions and programs that run at the same time, and how long a request waits to be run."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

from coding_gym_server.durations import WAIT_BOUNDS, DurationHistogram

__all__ = ["GradingSlots", "OverloadedError", "StartDeadline"]

_LEAST_SECONDS = 1.0


class OverloadedError(RuntimeError):
    """The sandbox runs as many submissions and programs as it can, or is too slow to start more."""

    def __init__(self, waited: float, missing: str = "place became free") -> None:
        super().__init__(f"The sandbox is overloaded: no {missing} within {waited:g} s. Send fewer programs at a time.")


class StartDeadline:
    """Time until which a program must have been started; all that precedes shares it.

    Args:
        seconds: Number of seconds from now on; None for no limit.
    """

    def __init__(self, seconds: float | None = None) -> None:
        self.seconds = seconds
        self._at = None if seconds is None else time.monotonic() + seconds

    @property
    def left(self) -> float | None:
        """Number of seconds that are left, not negative; None for no limit."""
        return None if self._at is None else max(0.0, self._at - time.monotonic())

    def within(self, seconds: float) -> float:
        """Return the number of seconds for a last step, which has a minimum, so that a request is not refused in vain.

        Args:
            seconds: Its usual limit.
        """
        return seconds if self.left is None else min(max(self.left, _LEAST_SECONDS), seconds)

    def overloaded(self, missing: str = "place became free") -> OverloadedError:
        """Return the error of a request that has waited for so long.

        Args:
            missing: What it has waited for.
        """
        return OverloadedError(self.seconds or 0.0, missing)


class GradingSlots:
    """Slots of submissions and programs.

    Args:
        count: Number of slots.

    Attributes:
        count: Number of slots.
        waiting: Number of requests that wait for one.
        waits: How long requests have waited until they got one.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self.waiting = 0
        self.waits = DurationHistogram(WAIT_BOUNDS)
        self._free = asyncio.Semaphore(count)
        self._several = asyncio.Lock()

    @contextlib.asynccontextmanager
    async def take(self, deadline: StartDeadline, count: int = 1) -> AsyncIterator[contextlib.ExitStack]:
        """Wait for slots; yield what releases them when it is closed: at the end of the block, unless ``pop_all`` passes it on.

        Args:
            deadline: Until when to wait.
            count: Number of slots; of a single one, that one.

        Raises:
            OverloadedError: If none becomes free.
        """
        began = time.perf_counter()
        self.waiting += 1
        with contextlib.ExitStack() as slot:
            try:
                # Of several requests for several slots, one at a time holds a part of them.
                async with self._several if count > 1 else contextlib.nullcontext():
                    for _ in range(min(count, self.count)):
                        async with asyncio.timeout(deadline.left if self._free.locked() else None):
                            await self._free.acquire()
                        slot.callback(self._free.release)
            except TimeoutError:
                raise deadline.overloaded() from None
            finally:
                self.waiting -= 1
            self.waits.add(time.perf_counter() - began)
            yield slot
