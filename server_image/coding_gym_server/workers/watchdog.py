"""Ends a step that outlives its limits, or that its client wants to end."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass

from coding_gym_server.workers.link import Link, LinkClosedError
from coding_gym_server.workers.messages import CpuTime, CpuTimeUsed, FromProcess, Interrupt

__all__ = ["Limits", "Watchdog"]

_INTERRUPT_GRACE = 0.5
"""Seconds that a step has to end after SIGINT before it is given up; ``subprocess`` alone takes a quarter of one."""

_SENT_WITHIN = 2.0
"""Seconds after which the root must have sent the signal."""

_MIN_CPU_CHECK = 0.01


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The limits of one step.

    Attributes:
        wall: Wall-clock limit in seconds.
        cpu: CPU-time limit in seconds over all processes of the session, None for no limit.
    """

    wall: float
    cpu: float | None = None


class Watchdog:
    """Watches one step: SIGINT when a limit is reached, and after a grace it gives the step up.

    Args:
        root: Whom to ask for the interrupt and for the CPU time.
        limits: The limits.
        on_given_up: Called when the step has not ended in spite of the interrupt.
        on_interrupted: Called when the interrupt has been sent.
    """

    def __init__(
        self,
        root: Link[FromProcess],
        limits: Limits,
        *,
        on_given_up: Callable[[], None],
        on_interrupted: Callable[[], None],
    ) -> None:
        self.expired = False
        self._root = root
        self._limits = limits
        self._on_given_up = on_given_up
        self._on_interrupted = on_interrupted
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._cpu_task: asyncio.Task[None] | None = None
        self._interrupt: asyncio.Future[FromProcess] | None = None

    async def start(self) -> None:
        """Begin to watch.

        Raises:
            LinkClosedError: The root died.
        """
        self._timer = self._loop.call_later(self._limits.wall, self._expire)
        if self._limits.cpu is not None:
            self._cpu_task = self._loop.create_task(self._watch_cpu(self._limits.cpu, await self._cpu_time()))

    def interrupt(self) -> None:
        """Send SIGINT, once, and give the step up if it has not ended soon."""
        if self._interrupt is not None:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(_SENT_WITHIN + _INTERRUPT_GRACE, self._on_given_up)
        with contextlib.suppress(LinkClosedError):
            self._root.send(Interrupt())
            self._interrupt = self._root.expect()
            self._interrupt.add_done_callback(self._begin_grace)

    async def stop(self) -> None:
        """The step has ended; when this returns, no interrupt can come any more that was meant for it."""
        if self._timer is not None:
            self._timer.cancel()
        if self._cpu_task is not None:
            self._cpu_task.cancel()
        if self._interrupt is not None:
            with contextlib.suppress(LinkClosedError):
                await self._interrupt

    def _begin_grace(self, _: asyncio.Future[FromProcess]) -> None:
        """The signal has been sent: from now on the step has its grace, if it has not ended yet."""
        self._on_interrupted()
        if self._timer is not None and not self._timer.cancelled():
            self._timer.cancel()
            self._timer = self._loop.call_later(_INTERRUPT_GRACE, self._on_given_up)

    def _expire(self) -> None:
        self.expired = True
        self.interrupt()

    async def _watch_cpu(self, budget: float, before: float) -> None:
        cores = os.cpu_count() or 1
        left = budget
        with contextlib.suppress(LinkClosedError):
            while left > 0:
                # It cannot be used up any sooner.
                await asyncio.sleep(max(left / cores, _MIN_CPU_CHECK))
                left = budget - (await self._cpu_time() - before)
            self._expire()

    async def _cpu_time(self) -> float:
        answer = await self._root.call(CpuTime())
        assert isinstance(answer, CpuTimeUsed)
        return answer.seconds
