"""StepWatchdog that interrupts a step at its limits or on request."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable

import msgspec

from coding_gym_server.ipc.async_channel import AsyncChannel, ChannelClosedError
from coding_gym_server.ipc.messages import CpuTime, CpuTimeUsed, FromProcess, InterruptWorker
from coding_gym_server.linux.procfs import descendants
from coding_gym_server.linux.program_clock import ProgramClock

__all__ = ["StepWatchdog", "TimeLimits"]

_INTERRUPT_GRACE = 0.5
"""Seconds from SIGINT until an unfinished step is given up; ``subprocess`` alone takes 0.25 s to react."""

_SLOWEST = 0.1
"""Fraction of that grace that counts at least, if processes wait for a processor."""

_SIGNAL_TIMEOUT = 2.0
"""Maximum number of seconds until the root has sent the signal."""

_MIN_CPU_CHECK = 0.01
_CHECK_SECONDS = 0.05
_MAX_CHECKS = 3
"""Checks until a step is given up: a server that has been delayed reads only after the first that the step has ended."""


class TimeLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Time limits of a step.

    Attributes:
        wall: Wall-clock limit in seconds.
        cpu: CPU-time limit in seconds over all processes of the session but those that clients started, None for no limit.
    """

    wall: float
    cpu: float | None = None


class StepWatchdog:
    """Watch one step: send SIGINT when a limit is reached, and give the step up after a grace period.

    Args:
        root: Channel to the session root, which sends signals and measures CPU time.
        slot: Number of the session's slot.
        limits: Time limits of the step.
        worker: Process ID of the worker, None if unknown.
        on_given_up: Called when the step has not ended within the grace period after an interrupt.
        on_interrupted: Called when an interrupt has been sent.

    Attributes:
        expired: Whether a limit was reached.
    """

    def __init__(
        self,
        root: AsyncChannel[FromProcess],
        slot: int,
        limits: TimeLimits,
        *,
        worker: int | None,
        on_given_up: Callable[[], None],
        on_interrupted: Callable[[], None],
    ) -> None:
        self.expired = False
        self._root = root
        self._slot = slot
        self._limits = limits
        self._worker = worker
        self._on_given_up = on_given_up
        self._on_interrupted = on_interrupted
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._cpu_task: asyncio.Task[None] | None = None
        self._interrupt: asyncio.Future[FromProcess] | None = None

    async def start(self) -> None:
        """Start watching.

        Raises:
            ChannelClosedError: If the root died.
        """
        self._timer = self._loop.call_later(self._limits.wall, self._expire)
        if self._limits.cpu is not None:
            self._cpu_task = self._loop.create_task(self._watch_cpu(self._limits.cpu, await self._cpu_time()))

    def interrupt(self, *, is_closing: bool = False) -> None:
        """Send SIGINT, and give the step up after the grace period. Later calls repeat the signal within that period.

        Args:
            is_closing: Whether windows are being closed, see ``InterruptWorker``.
        """
        if self._interrupt is not None:
            if self._interrupt.done():
                request = InterruptWorker(self._slot, is_closing, is_repeated=True)
                self._send_signal(request, lambda _: self._on_interrupted())
            return
        if self._timer is not None:
            self._timer.cancel()
        self._end_grace_in(_SIGNAL_TIMEOUT + _INTERRUPT_GRACE)
        self._send_signal(InterruptWorker(self._slot, is_closing), self._begin_grace)

    async def stop(self) -> None:
        """Stop watching. On return, no interrupt for this step is pending."""
        if self._timer is not None:
            self._timer.cancel()
        if self._cpu_task is not None:
            self._cpu_task.cancel()
        if self._interrupt is not None:
            with contextlib.suppress(ChannelClosedError):
                await self._interrupt

    def _send_signal(self, request: InterruptWorker, on_sent: Callable[[asyncio.Future[FromProcess]], None]) -> None:
        with contextlib.suppress(ChannelClosedError):
            self._root.send(request)
            self._interrupt = self._root.expect()
            self._interrupt.add_done_callback(on_sent)

    def _begin_grace(self, _: asyncio.Future[FromProcess]) -> None:
        """Start the grace period once the signal has been sent, unless the step has ended."""
        self._on_interrupted()
        if self._timer is not None and not self._timer.cancelled():
            self._timer.cancel()
            self._end_grace_in(_INTERRUPT_GRACE)

    def _end_grace_in(self, seconds: float) -> None:
        clock = ProgramClock(slowest=_SLOWEST)
        self._timer = self._loop.call_later(_CHECK_SECONDS, self._end_grace, clock, seconds, _MAX_CHECKS)

    def _end_grace(self, clock: ProgramClock, seconds: float, checks: int) -> None:
        """Give the step up, once its processes have had the grace period without waiting for a processor."""
        checks -= clock.read(self._processes()) >= seconds
        if checks:
            self._timer = self._loop.call_later(_CHECK_SECONDS, self._end_grace, clock, seconds, checks)
        else:
            self._on_given_up()

    def _processes(self) -> set[int]:
        """Return the worker, and its children: a shell or a kernel that executes the code in its place."""
        return set() if self._worker is None else {self._worker} | descendants(self._worker)

    def _expire(self) -> None:
        self.expired = True
        self.interrupt()

    async def _watch_cpu(self, budget: float, before: float) -> None:
        cores = os.cpu_count() or 1
        left = budget
        with contextlib.suppress(ChannelClosedError):
            while left > 0:
                # The budget cannot be exhausted sooner.
                await asyncio.sleep(max(left / cores, _MIN_CPU_CHECK))
                left = budget - (await self._cpu_time() - before)
            self._expire()

    async def _cpu_time(self) -> float:
        response = await self._root.call(CpuTime(self._slot))
        if not isinstance(response, CpuTimeUsed):
            # The session is a fork that is being ended.
            raise ChannelClosedError
        return response.seconds
