"""Run a cell and coordinate screen capture, idle detection and input injection."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

from coding_gym_server.display.messages import Idle, ScreenState, WatchScreen
from coding_gym_server.ipc.messages import Execute
from coding_gym_server.linux.wait_state import cpu_seconds
from coding_gym_server.protocol import Capture, Frame, InputEvent, OnIdle, Outcome, Pixels
from coding_gym_server.server.supervisor.cell_run import CellOutcome
from coding_gym_server.server.supervisor.display_handle import DisplayHandle
from coding_gym_server.server.supervisor.executor import Executor
from coding_gym_server.server.supervisor.watchdog import Limits
from coding_gym_server.server.supervisor.worker_handle import Event

__all__ = ["StepCapture", "StepRunner", "StepView"]

_STABLE_TIMEOUT = 1.0
"""Maximum number of seconds to wait for a stable screen after the program has ended or input was injected."""

_TIMER_TIMEOUT = 2.0
"""Maximum number of seconds to wait for the timers of an idle program, which may end it."""

_POLL_WAKEUPS = 5
_POLL_SECONDS = 0.15
_POLL_MAX_CPU = 0.3
"""Programs that wake up at least this often in this time, with less than this fraction of a core, only poll for events."""

_BLINK_REPETITIONS = 2
_CHECK_INTERVAL = 0.003
_WAITING_CHECKS = 3
_CLOSE_TIMEOUT = 1.5
_MIN_WALL = 0.01


@dataclass(frozen=True, kw_only=True)
class StepView:
    """Screen options of a step.

    Attributes:
        capture: When to capture a screenshot.
        on_idle: How to handle a program that waits for events.
        frame_rate: Frames per second of the video, None for no video.
        inputs: Input events to inject once the cell has ended or waits for events.
        settle: Maximum number of seconds to wait for a stable screen after the input; and, with ``OnIdle.RETURN``, to wait for
            a program that never becomes idle. None for the defaults.
    """

    capture: Capture = Capture.NEVER
    on_idle: OnIdle = OnIdle.CLOSE
    frame_rate: float | None = None
    inputs: list[InputEvent] = field(default_factory=list)
    settle: float | None = None


@dataclass(frozen=True, kw_only=True)
class StepCapture:
    """Outcome of a step with its screen capture.

    Attributes:
        completion: Outcome of the cell; None if no cell was run, or it is still running.
        picture: The screenshot, if one was requested and there is something to see.
        is_new: Whether the screen changed in the step.
        frames: Frames of the video.
        idle: How a program that waited for events was handled, None if there was none.
    """

    completion: CellOutcome | None
    picture: Pixels | None = None
    is_new: bool = False
    frames: list[Frame] = field(default_factory=list)
    idle: Literal["returned", "closed"] | None = None


class StepRunner:
    """Run steps in an executor with an optional screen.

    Args:
        executor: Runs the cells.
        screen: The session's display, or None.
    """

    def __init__(self, executor: Executor, screen: DisplayHandle | None) -> None:
        self._executor = executor
        self._screen = screen

    async def run(
        self, cell: Execute | None, limits: Limits, view: StepView, *, on_event: Callable[[Event], None] | None = None
    ) -> StepCapture:
        """Run a cell, or continue one that was left running; then inject the input events.

        Args:
            cell: The cell; None to continue a running one, or to inject input only.
            limits: Time limits of the whole step.
            view: Screen options.
            on_event: Called with each output and result as it arrives.

        Raises:
            ScreenRefusedError: If a key does not exist.
            ForkError: If the worker died and no new one can be forked.
            ChannelClosedError: If the root died.
        """
        screen, executor = self._screen, self._executor
        if screen is None:
            assert cell is not None
            return StepCapture(completion=await executor.execute(cell, limits, on_event=on_event))
        idle_handler = _IdleHandler(executor, screen, view)
        screen.observer = idle_handler
        completion = None
        try:
            if view.inputs:
                completion = await self._run_and_inject(cell, limits, idle_handler, on_event)
            elif cell is not None:
                completion = await executor.execute(cell, limits, on_event=on_event)
            elif executor.is_running:
                completion = await executor.resume(limits, on_event=on_event)
        finally:
            screen.observer = None
            idle_handler.stop()
        if screen.is_started:
            return await self._capture(completion, view, idle_handler)
        return StepCapture(completion=completion, picture=screen.black() if view.capture is Capture.ALWAYS else None)

    async def close_program(self, limits: Limits) -> CellOutcome | None:
        """End a cell that was left running: close its windows, then interrupt it; return its outcome.

        Args:
            limits: Time limits.
        """
        assert self._screen is not None
        idle_handler = _IdleHandler(self._executor, self._screen, StepView())
        try:
            return await self._close(idle_handler, limits, None)
        finally:
            idle_handler.stop()

    async def _close(
        self, idle_handler: _IdleHandler, limits: Limits, on_event: Callable[[Event], None] | None
    ) -> CellOutcome | None:
        idle_handler.start_closing()
        return await self._executor.resume(limits, on_event=on_event)

    async def _run_and_inject(
        self, cell: Execute | None, limits: Limits, idle_handler: _IdleHandler, on_event: Callable[[Event], None] | None
    ) -> CellOutcome | None:
        view, executor = idle_handler.view, self._executor
        deadline = time.monotonic() + limits.wall
        completion = None
        if cell is not None:
            idle_handler.policy = OnIdle.RETURN
            completion = await executor.execute(cell, limits, on_event=on_event)
        idle_handler.policy = None
        completion = await self._inject(view, _limits_until(deadline, limits), on_event) or completion
        if executor.is_running and view.on_idle is OnIdle.CLOSE:
            completion = await self._close(idle_handler, _limits_until(deadline, limits), on_event)
        return completion

    async def _inject(self, view: StepView, limits: Limits, on_event: Callable[[Event], None] | None) -> CellOutcome | None:
        """Inject input and wait for its effect on the screen, while a cell that was left running continues."""
        assert self._screen is not None
        injection = asyncio.create_task(self._inject_and_settle(self._screen, view, limits.wall))
        completion = None
        try:
            if self._executor.is_running:
                injection.add_done_callback(lambda _: self._executor.pause())
                completion = await self._executor.resume(limits, on_event=on_event)
            await injection
        finally:
            injection.cancel()
        return completion

    async def _inject_and_settle(self, screen: DisplayHandle, view: StepView, timeout: float) -> None:
        await screen.inject(view.inputs, timeout=timeout)
        settle = _STABLE_TIMEOUT if view.settle is None else view.settle
        await screen.capture_final(Capture.AUTO, settle=min(settle, timeout), keep_watching=True)

    async def _capture(self, completion: CellOutcome | None, view: StepView, idle_handler: _IdleHandler) -> StepCapture:
        """Capture the final screenshot of the step, and its video."""
        assert self._screen is not None
        is_over = completion is not None and completion.outcome is not Outcome.TIMEOUT
        state = await self._screen.capture_final(view.capture, settle=_STABLE_TIMEOUT if is_over and not view.inputs else 0.0)
        picture = state.picture if state is not None else None
        idle_state = idle_handler.screen_state
        if idle_state is not None and not idle_state.is_blank and (state is None or not state.is_live):
            # Captured before the windows were closed, since some programs clear them first.
            picture = idle_state.picture
        if picture is None and view.capture is Capture.ALWAYS:
            picture = self._screen.black()
        idle: Literal["returned", "closed"] | None = "closed" if idle_handler.has_closed else None
        return StepCapture(
            completion=completion,
            picture=picture,
            is_new=state is not None and state.is_new,
            frames=state.frames if state is not None else [],
            idle="returned" if self._executor.is_running else idle,
        )


class _IdleHandler:
    """Handle programs that wait for events.

    Args:
        executor: Runs the cell.
        screen: The session's display.
        view: Screen options of the step.

    Attributes:
        policy: How to handle idle programs; None ignores them.
        screen_state: Screen at the time when the last program became idle.
        has_closed: Whether windows were closed.
    """

    def __init__(self, executor: Executor, screen: DisplayHandle, view: StepView) -> None:
        self._executor = executor
        self._screen = screen
        self.view = view
        self.policy: OnIdle | None = view.on_idle
        self._task: asyncio.Task[None] | None = None
        self._pictures: list[Pixels] = []
        self.screen_state: ScreenState | None = None
        self.has_closed = False

    def watch(self) -> WatchScreen:
        """Return the request that configures the display for the step."""
        view = self.view
        patience = view.settle if view.on_idle is OnIdle.RETURN else None
        return WatchScreen(worker=self._executor.worker.pid, frame_rate=view.frame_rate, patience=patience)

    def on_idle(self, idle: Idle) -> None:
        """Handle the notification that all programs wait for events."""
        if not self.has_closed or not idle.is_lasting:
            self.stop()
            self._task = asyncio.create_task(self._handle(idle))

    def start_closing(self) -> None:
        """Close the windows, whether programs are idle or not."""
        self.stop()
        self._task = asyncio.create_task(self._close())

    def stop(self) -> None:
        """Cancel the handling of idle programs."""
        if self._task is not None:
            self._task.cancel()

    async def _handle(self, idle: Idle) -> None:
        if not self._executor.is_running or self.policy is None:
            return
        if self.policy is OnIdle.RETURN:
            self._executor.pause()
            return
        is_blinking = False
        if not idle.is_lasting or self.screen_state is None:
            self.screen_state = await self._screen.capture_final(self.view.capture, settle=0.0, keep_watching=True)
            is_blinking = self._is_blinking(self.screen_state)
        if not is_blinking:
            await self._wait_for_timers(idle)
        await self._close()

    def _is_blinking(self, state: ScreenState | None) -> bool:
        """Return whether the screen has returned to a previous state twice, such as with a blinking cursor."""
        if state is None or state.picture is None:
            return False
        self._pictures.append(state.picture)
        return self._pictures.count(state.picture) > _BLINK_REPETITIONS

    async def _wait_for_timers(self, idle: Idle) -> None:
        """Wait until all programs wait without a timeout or only poll for events, or the time for timers is over."""
        begin = first_wakeup = time.monotonic()
        used = used_before = cpu_seconds(idle.programs)
        checks = wakeups = 0
        while checks < _WAITING_CHECKS:
            await asyncio.sleep(_CHECK_INTERVAL)
            now, used_now = time.monotonic(), cpu_seconds(idle.programs)
            has_slept, used = used_now == used, used_now
            # A program that waits for the response to a request looks the same, but not for several checks.
            checks = checks + 1 if has_slept and await self._executor.are_waiting(idle.programs) else 0
            if not idle.is_lasting:
                continue
            if not has_slept:
                wakeups += 1
                if wakeups == 1:
                    first_wakeup, used_before = now, used_now
            polled = now - first_wakeup
            if wakeups >= _POLL_WAKEUPS and polled >= _POLL_SECONDS and used_now - used_before < _POLL_MAX_CPU * polled:
                return
            if now >= begin + _TIMER_TIMEOUT:
                return

    async def _close(self) -> None:
        self.has_closed = True
        await self._screen.close_windows()
        await asyncio.sleep(_CLOSE_TIMEOUT)
        self._executor.interrupt()


def _limits_until(deadline: float, limits: Limits) -> Limits:
    return replace(limits, wall=max(deadline - time.monotonic(), _MIN_WALL))
