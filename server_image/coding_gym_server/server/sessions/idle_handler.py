"""Handling of programs that wait for events, or never rest, during a step."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Literal

from coding_gym_server.display.messages import CLOSE_TIMEOUT, ClosingEnded, Idle, Notice, ScreenState, WatchScreen
from coding_gym_server.linux.procfs import descendants
from coding_gym_server.linux.program_clock import ProgramClock
from coding_gym_server.linux.wait_state import cpu_seconds
from coding_gym_server.protocol import IdleState, OnIdle, Pixels
from coding_gym_server.server.sessions.step_view import StepView
from coding_gym_server.server.supervisor.display_handle import DisplayHandle
from coding_gym_server.server.supervisor.executor import Executor

__all__ = ["IdleHandler"]

_TIMER_TIMEOUT = 2.0
"""Seconds without a change for which idle programs may wait for timers and threads, before they are closed."""

_BLINKING_PICTURES = 5
"""Number of consecutive pictures, of not more than two kinds, by which a blinking cursor is recognized."""

_REPETITIONS = 5
"""Number of consecutive equal pictures by which a program is recognized that repeats a question when it is closed."""

_CHECK_INTERVAL = 0.003
_TIMER_CHECK_INTERVAL = 0.02
_MAX_CHECK_SECONDS = 0.04
_LOOP_CHECK_INTERVAL = 0.1
_WAITING_CHECKS = 3
_SLOWEST = 0.25
_WAKE_SECONDS = 0.15
"""Seconds after an interrupt within which most programs react to it, if they need not wait for a processor."""


class IdleHandler:
    """Handle programs that wait for events, and programs that draw without end.

    The display process observes the programs, and sends notices; this class decides what follows from them.

    Args:
        executor: Runs the cell.
        screen: The session's display.
        view: Screen options of the step.

    Attributes:
        view: Screen options of the step.
        policy: How to handle idle programs; None ignores them.
    """

    def __init__(self, executor: Executor, screen: DisplayHandle, view: StepView) -> None:
        self._executor = executor
        self._screen = screen
        self.view = view
        self.policy: OnIdle | None = view.on_idle
        self._task: asyncio.Task[None] | None = None
        self._pictures: list[Pixels | None] = []
        self._screen_state: ScreenState | None = None
        self._has_closed = False
        self._are_closed = False
        self._is_animating = False
        self._is_closing = False
        self._is_interrupting = False

    def watch(self) -> WatchScreen:
        """Return the request that configures the display for the step."""
        view = self.view
        patience = view.settle if view.on_idle is OnIdle.RETURN else None
        return WatchScreen(
            worker=self._executor.worker.pid, frame_rate=view.frame_rate, patience=patience, max_watch=view.max_watch
        )

    def on_notice(self, notice: Notice) -> None:
        """Handle a notice of the display."""
        if self._is_interrupting:
            return
        if isinstance(notice, ClosingEnded):
            self._is_closing, self._are_closed = False, notice.are_closed
            if not notice.are_closed:
                self._start(self._interrupt())
        elif self.policy is not None and self._executor.is_running and not self._is_closing:
            self._start(self._handle_idle(notice) if isinstance(notice, Idle) else self._handle_animation())

    def start_closing(self) -> None:
        """Close the windows, whether programs are idle or not."""
        self.policy = None
        self._start(self._close_in_any_case())

    def stop(self) -> None:
        """Cancel the handling of programs."""
        if self._task is not None:
            self._task.cancel()

    def picture(self, final: ScreenState | None) -> Pixels | None:
        """Return the picture of the step.

        Once windows have been closed, it is that of the moment before, since programs clear windows or ask questions when they
        are closed; unless all windows have been closed, and the program has then shown others.

        Args:
            final: The screen at the end of the step.
        """
        state = self._screen_state
        has_new_windows = self._are_closed and final is not None and final.is_live
        if self._has_closed and state is not None and not state.is_blank and not has_new_windows:
            return state.picture
        return None if final is None else final.picture

    @property
    def idle_state(self) -> IdleState | None:
        """How programs were handled, None if they ended by themselves."""
        if not self._executor.is_running and not self._has_closed:
            return None
        if self._is_animating:
            return "animating"
        return "returned" if self._executor.is_running else "closed"

    def _start(self, coroutine: Coroutine[None, None, None]) -> None:
        self.stop()
        self._task = asyncio.create_task(coroutine)

    async def _handle_idle(self, idle: Idle) -> None:
        if not idle.has_windows:
            await self._handle_idle_without_windows(idle)
            return
        if self.policy is OnIdle.RETURN:
            self._executor.pause()
            return
        if not idle.is_lasting or self._screen_state is None:
            await self._take_picture()
            if self._has_closed and self._is_repeating():
                await self._interrupt()
                return
        if idle.is_lasting or not self._is_blinking():
            await self._wait_for_timers(idle)
        await self._close("unchanged")

    async def _handle_idle_without_windows(self, idle: Idle) -> None:
        """End an event loop in which nothing can happen: there is nothing to click, and no timer, thread or child that runs."""
        worker = self._executor.worker.pid
        if worker not in idle.programs:
            return
        waited, used = 0.0, -1.0
        while waited < CLOSE_TIMEOUT:
            await asyncio.sleep(_LOOP_CHECK_INTERVAL)
            programs = {worker, *descendants(worker)}
            used_now = cpu_seconds(programs)
            is_waiting = used_now == used and await self._executor.are_waiting(programs)
            waited, used = waited + _LOOP_CHECK_INTERVAL if is_waiting else 0.0, used_now
        if self.policy is OnIdle.RETURN:
            self._executor.pause()
            return
        self._has_closed = True
        await self._interrupt()

    async def _handle_animation(self) -> None:
        was_animating, self._is_animating = self._is_animating, True
        if self.policy is OnIdle.RETURN:
            self._executor.pause()
            return
        if was_animating:
            # Closing its windows has not ended it.
            await self._interrupt()
            return
        await self._take_picture()
        await self._close("now")

    async def _close(self, when: Literal["unchanged", "idle", "now"]) -> bool:
        has_begun = await self._screen.close_windows(when)
        self._is_closing = has_begun
        self._has_closed |= has_begun
        return has_begun

    async def _take_picture(self) -> None:
        self._are_closed = False
        self._screen_state = await self._screen.capture_final(self.view.capture, settle=0.0, keep_watching=True)
        if self._screen.before_close is not None:
            await self._screen.before_close()
        self._pictures.append(None if self._screen_state is None else self._screen_state.picture)

    def _is_blinking(self) -> bool:
        """Return whether the screen alternates between two pictures, such as with a blinking cursor."""
        recent = self._pictures[-_BLINKING_PICTURES:]
        return len(recent) == _BLINKING_PICTURES and recent[0] is not None and len(set(recent)) <= 2

    def _is_repeating(self) -> bool:
        """Return whether the program has shown the same again and again, although its windows were closed."""
        recent = self._pictures[-_REPETITIONS:]
        return len(recent) == _REPETITIONS and recent[0] is not None and len(set(recent)) == 1

    async def _wait_for_timers(self, idle: Idle) -> None:
        """Wait until all threads of the programs wait without a timeout, or the time for timers is over.

        Timers and sleeping threads may draw; a notice of the display then restarts the handling.
        """
        waited = 0.0
        used = cpu_seconds(idle.programs)
        checks = 0
        while checks < _WAITING_CHECKS and not (idle.is_lasting and waited >= _TIMER_TIMEOUT):
            began = time.monotonic()
            await asyncio.sleep(_TIMER_CHECK_INTERVAL if idle.is_lasting and not checks else _CHECK_INTERVAL)
            used_now = cpu_seconds(idle.programs)
            has_slept, used = used_now == used, used_now
            # A program that waits for the response to a request looks the same, but not for several checks.
            checks = checks + 1 if has_slept and await self._executor.are_waiting(idle.programs) else 0
            # Limited, because programs get no CPU time either while this process is not scheduled.
            waited += min(time.monotonic() - began, _MAX_CHECK_SECONDS)

    async def _interrupt(self) -> None:
        self._is_interrupting = True
        self._executor.end_loop()
        # The root responds to requests in their order: the signal has been sent.
        await self._executor.are_waiting(())
        # Programs that have handled later events have noticed it; but Qt's event loop notices interrupts only in handlers that
        # are written in Python.
        if self._is_animating or not await self._screen.close_windows("idle"):
            await self._give(_WAKE_SECONDS)
            if self._executor.is_running:
                await self._screen.close_windows("now")
        await self._give(_WAKE_SECONDS)
        if self._executor.is_running:
            # Tk's event loop continues if an interrupt is raised in a handler.
            self._executor.end_loop()

    async def _close_in_any_case(self) -> None:
        await self._take_picture()
        if not await self._close("idle"):
            await self._close("now")
        await self._give(2 * CLOSE_TIMEOUT)
        await self._interrupt()

    async def _give(self, seconds: float) -> None:
        """Wait while the cell runs, for a time in which its processes do not wait for a processor."""
        clock = ProgramClock(slowest=_SLOWEST)
        worker = self._executor.worker.pid
        while self._executor.is_running and clock.read({worker, *descendants(worker)}) < seconds:
            await asyncio.sleep(_TIMER_CHECK_INTERVAL)
