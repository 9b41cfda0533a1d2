"""Run a cell and coordinate screen capture, idle detection and input injection."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import msgspec

from coding_gym_server.ipc.messages import Execute
from coding_gym_server.protocol import Capture, Frame, IdleState, OnIdle, Outcome, Pixels
from coding_gym_server.server.sessions.idle_handler import IdleHandler
from coding_gym_server.server.sessions.step_view import StepView
from coding_gym_server.server.supervisor.cell_run import CompletedCell
from coding_gym_server.server.supervisor.display_handle import DisplayHandle
from coding_gym_server.server.supervisor.executor import Executor
from coding_gym_server.server.supervisor.watchdog import TimeLimits
from coding_gym_server.server.supervisor.worker_handle import Event

__all__ = ["StepCapture", "StepRunner", "StepView"]

_STABLE_TIMEOUT = 1.0
"""Maximum number of seconds to wait for a stable screen after the program has ended or input was injected."""

_MIN_WALL = 0.01


class StepCapture(msgspec.Struct, frozen=True, kw_only=True):
    """Outcome of a step with its screen capture.

    Attributes:
        completion: Outcome of the cell; None if no cell was run, or it is still running.
        picture: The screenshot, if one was requested and there is something to see.
        is_new: Whether the screen changed in the step.
        frames: Frames of the video.
        idle: How a program that waited for events or drew without end was handled, None if there was none.
        is_running: Whether the cell has been left running.
    """

    completion: CompletedCell | None
    picture: Pixels | None = None
    is_new: bool = False
    frames: list[Frame] = []
    idle: IdleState | None = None
    is_running: bool = False


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
        self, cell: Execute | None, limits: TimeLimits, view: StepView, *, on_event: Callable[[Event], None] | None = None
    ) -> StepCapture:
        """Run a cell, or continue one that was left running; then inject the input events.

        Args:
            cell: The cell; None to continue a running one, or to inject input only.
            limits: Time limits of the whole step.
            view: Screen options.
            on_event: Called with each output and result as it arrives.

        Raises:
            InvalidScreenRequestError: If a key does not exist.
            ForkError: If the worker died and no new one can be forked.
            ChannelClosedError: If the root died.
        """
        screen, executor = self._screen, self._executor
        if screen is None:
            assert cell is not None
            return StepCapture(completion=await executor.execute(cell, limits, on_event=on_event))
        idle_handler = IdleHandler(executor, screen, view)
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

    async def close_program(self, limits: TimeLimits) -> CompletedCell | None:
        """End a cell that was left running: close its windows, then interrupt it; return its outcome.

        Args:
            limits: Time limits.
        """
        assert self._screen is not None
        idle_handler = IdleHandler(self._executor, self._screen, StepView())
        self._screen.observer = idle_handler
        try:
            return await self._close(idle_handler, limits, None)
        finally:
            self._screen.observer = None
            idle_handler.stop()

    async def _close(
        self, idle_handler: IdleHandler, limits: TimeLimits, on_event: Callable[[Event], None] | None
    ) -> CompletedCell | None:
        idle_handler.start_closing()
        return await self._executor.resume(limits, on_event=on_event)

    async def _run_and_inject(
        self, cell: Execute | None, limits: TimeLimits, idle_handler: IdleHandler, on_event: Callable[[Event], None] | None
    ) -> CompletedCell | None:
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

    async def _inject(
        self, view: StepView, limits: TimeLimits, on_event: Callable[[Event], None] | None
    ) -> CompletedCell | None:
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

    async def _capture(self, completion: CompletedCell | None, view: StepView, idle_handler: IdleHandler) -> StepCapture:
        """Capture the final screenshot of the step, and its video."""
        assert self._screen is not None
        is_over = completion is not None and completion.outcome is not Outcome.TIMEOUT
        state = await self._screen.capture_final(view.capture, settle=_STABLE_TIMEOUT if is_over and not view.inputs else 0.0)
        picture = idle_handler.picture(state)
        if picture is None and view.capture is Capture.ALWAYS:
            picture = self._screen.black()
        if completion is not None and completion.exit_code and idle_handler.idle_state == "animating":
            # Without an explanation, it looks like a failure of the program.
            completion = completion.explained(
                f"[still drawing after {view.max_watch:g} s, so its windows were closed]\n", self._executor.max_output_chars
            )
        return StepCapture(
            completion=completion,
            picture=picture,
            is_new=state is not None and state.is_new,
            frames=state.frames if state is not None else [],
            idle=idle_handler.idle_state,
            is_running=self._executor.is_running,
        )


def _limits_until(deadline: float, limits: TimeLimits) -> TimeLimits:
    return msgspec.structs.replace(limits, wall=max(deadline - time.monotonic(), _MIN_WALL))
