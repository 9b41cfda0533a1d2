"""A cell together with the screen that it draws on: watched while it runs, looked at when it ends, touched in between."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

from coding_gym_server.display.messages import Idle, Scene, Watch
from coding_gym_server.display.screen import Screen
from coding_gym_server.protocol import Capture, Frame, InputEvent, OnIdle, Outcome, Pixels
from coding_gym_server.workers.messages import Execute
from coding_gym_server.workers.unit import Completion, Unit
from coding_gym_server.workers.waiting import cpu_seconds, waits_without_limit
from coding_gym_server.workers.watchdog import Limits
from coding_gym_server.workers.worker_end import Event

__all__ = ["Seen", "Stage", "View"]

_SETTLED_WITHIN = 1.0
"""The most seconds that a screen may take to settle when its program has ended, or has been touched."""

_TIMERS_DONE_WITHIN = 2.0
"""Seconds for a program that waits for events, but also for a time to come: what happens then may be the end of it."""

_WAKES = 5
_POLLED_SECONDS = 0.15
_AT_WORK = 0.3
"""Programs that wake up so often in that time, and use less than that part of a core, look for events, and find none."""

_BLINKS = 2
_LOOK_SECONDS = 0.003
_LOOKS_AT_WAIT = 3
_CLOSED_WITHIN = 1.5
_LEAST_WALL = 0.01


@dataclass(frozen=True, kw_only=True)
class View:
    """How a step is seen.

    Attributes:
        capture: When there is to be a picture.
        on_idle: What becomes of a program that waits for events.
        frame_rate: Frames a second of the video; none if None.
        inputs: What hands do once the cell has ended, or waits for events.
        settle: The most seconds to wait for the screen to settle after that; and, if programs are to be left running, how long
            to watch one that never comes to rest.
    """

    capture: Capture = Capture.NEVER
    on_idle: OnIdle = OnIdle.CLOSE
    frame_rate: float | None = None
    inputs: list[InputEvent] = field(default_factory=list)
    settle: float | None = None


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What a step showed.

    Attributes:
        completion: How the cell ended; None if none was run, or it goes on.
        picture: The screen, if it is wanted and there is something to see.
        is_new: Whether something was drawn.
        frames: The video.
        idle: What became of a program that waited for events.
    """

    completion: Completion | None
    picture: Pixels | None = None
    is_new: bool = False
    frames: list[Frame] = field(default_factory=list)
    idle: Literal["returned", "closed"] | None = None


class Stage:
    """A unit and its screen.

    Args:
        unit: Runs the cells.
        screen: Where they draw; None if there is no screen.
    """

    def __init__(self, unit: Unit, screen: Screen | None) -> None:
        self._unit = unit
        self._screen = screen

    async def run(
        self, cell: Execute | None, limits: Limits, view: View, *, on_event: Callable[[Event], None] | None = None
    ) -> Seen:
        """Run a cell, or let one that was left running go on; then do what hands are to do.

        Args:
            cell: The cell; None to go on, or if nothing is to be run.
            limits: The time that all has together.
            view: How it is seen.
            on_event: Called with what the cell shows as it comes.

        Raises:
            ScreenRefusedError: There is no such key.
            ForkError: The worker died and no new one could be forked.
            LinkClosedError: The root died.
        """
        screen, unit = self._screen, self._unit
        if screen is None:
            assert cell is not None
            return Seen(completion=await unit.execute(cell, limits, on_event=on_event))
        usher = _Usher(unit, screen, view)
        screen.audience = usher
        completion = None
        try:
            if view.inputs:
                completion = await self._run_and_touch(cell, limits, usher, on_event)
            elif cell is not None:
                completion = await unit.execute(cell, limits, on_event=on_event)
            elif unit.is_running:
                completion = await unit.resume(limits, on_event=on_event)
        finally:
            screen.audience = None
            usher.stop()
        if screen.is_started:
            return await self._look(completion, view, usher)
        return Seen(completion=completion, picture=screen.black() if view.capture is Capture.ALWAYS else None)

    async def close_program(self, limits: Limits) -> Completion | None:
        """End a cell that was left running, politely, then firmly; returns how it ended."""
        assert self._screen is not None
        usher = _Usher(self._unit, self._screen, View())
        try:
            return await self._close(usher, limits, None)
        finally:
            usher.stop()

    async def _close(self, usher: _Usher, limits: Limits, on_event: Callable[[Event], None] | None) -> Completion | None:
        usher.begin_to_close()
        return await self._unit.resume(limits, on_event=on_event)

    async def _run_and_touch(
        self, cell: Execute | None, limits: Limits, usher: _Usher, on_event: Callable[[Event], None] | None
    ) -> Completion | None:
        view, unit = usher.view, self._unit
        deadline = time.monotonic() + limits.wall
        completion = None
        if cell is not None:
            usher.on_idle = OnIdle.RETURN
            completion = await unit.execute(cell, limits, on_event=on_event)
        usher.on_idle = None
        completion = await self._touch(view, _until(deadline, limits), on_event) or completion
        if unit.is_running and view.on_idle is OnIdle.CLOSE:
            completion = await self._close(usher, _until(deadline, limits), on_event)
        return completion

    async def _touch(self, view: View, limits: Limits, on_event: Callable[[Event], None] | None) -> Completion | None:
        """Do what hands do, and wait until its effect is to be seen; meanwhile a cell that was left running goes on."""
        assert self._screen is not None
        acting = asyncio.create_task(self._act(self._screen, view, limits.wall))
        completion = None
        try:
            if self._unit.is_running:
                acting.add_done_callback(lambda _: self._unit.pause())
                completion = await self._unit.resume(limits, on_event=on_event)
            await acting
        finally:
            acting.cancel()
        return completion

    async def _act(self, screen: Screen, view: View, within: float) -> None:
        await screen.perform(view.inputs, within=within)
        settle = _SETTLED_WITHIN if view.settle is None else view.settle
        await screen.take(Capture.AUTO, settle=min(settle, within), keep_watching=True)

    async def _look(self, completion: Completion | None, view: View, usher: _Usher) -> Seen:
        """Take the last picture of the step, and its video."""
        assert self._screen is not None
        is_over = completion is not None and completion.outcome is not Outcome.TIMEOUT
        scene = await self._screen.take(view.capture, settle=_SETTLED_WITHIN if is_over and not view.inputs else 0.0)
        picture = scene.picture if scene is not None else None
        if usher.scene is not None and not usher.scene.is_blank and (scene is None or not scene.is_live):
            # From before its windows were closed: some programs clear them first.
            picture = usher.scene.picture
        if picture is None and view.capture is Capture.ALWAYS:
            picture = self._screen.black()
        idle: Literal["returned", "closed"] | None = "closed" if usher.has_closed else None
        return Seen(
            completion=completion,
            picture=picture,
            is_new=scene is not None and scene.is_new,
            frames=scene.frames if scene is not None else [],
            idle="returned" if self._unit.is_running else idle,
        )


class _Usher:
    """Sees to programs that wait for events.

    Args:
        unit: Runs the cell.
        screen: Where it draws.
        view: How the step is seen.

    Attributes:
        on_idle: What is to become of them; nothing if None.
        scene: What the screen showed when the last of them had come to rest.
        has_closed: Whether windows were closed.
    """

    def __init__(self, unit: Unit, screen: Screen, view: View) -> None:
        self._unit = unit
        self._screen = screen
        self.view = view
        self.on_idle: OnIdle | None = view.on_idle
        self._task: asyncio.Task[None] | None = None
        self._pictures: list[Pixels] = []
        self.scene: Scene | None = None
        self.has_closed = False

    def watch(self) -> Watch:
        """Return what the display is to look for in this step."""
        view = self.view
        patience = view.settle if view.on_idle is OnIdle.RETURN else None
        return Watch(worker=self._unit.worker_pid, frame_rate=view.frame_rate, patience=patience)

    def attend(self, idle: Idle) -> None:
        """All programs wait for events, once more."""
        if not self.has_closed or not idle.is_lasting:
            self.stop()
            self._task = asyncio.create_task(self._attend(idle))

    def begin_to_close(self) -> None:
        """Close the windows, whether programs wait or not."""
        self.stop()
        self._task = asyncio.create_task(self._close())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _attend(self, idle: Idle) -> None:
        if not self._unit.is_running or self.on_idle is None:
            return
        if self.on_idle is OnIdle.RETURN:
            self._unit.pause()
            return
        blinks = False
        if not idle.is_lasting or self.scene is None:
            self.scene = await self._screen.take(self.view.capture, settle=0.0, keep_watching=True)
            blinks = self._has_been_seen(self.scene)
        if not blinks:
            await self._until_nothing_is_to_come(idle)
        await self._close()

    def _has_been_seen(self, scene: Scene | None) -> bool:
        """Say whether the screen has come back to what it was before, twice: then something blinks, and that is all."""
        if scene is None or scene.picture is None:
            return False
        self._pictures.append(scene.picture)
        return self._pictures.count(scene.picture) > _BLINKS

    async def _until_nothing_is_to_come(self, idle: Idle) -> None:
        """Wait until programs would wait for ever, or look for events again and again, or have had time enough."""
        begin = first_wake = time.monotonic()
        used = used_before = cpu_seconds(idle.programs)
        looks = wakes = 0
        while looks < _LOOKS_AT_WAIT:
            await asyncio.sleep(_LOOK_SECONDS)
            now, used_now = time.monotonic(), cpu_seconds(idle.programs)
            has_slept, used = used_now == used, used_now
            # What waits for the answer to a request looks the same, but not for long.
            looks = looks + 1 if has_slept and all(map(waits_without_limit, idle.programs)) else 0
            if not idle.is_lasting:
                continue
            if not has_slept:
                wakes += 1
                if wakes == 1:
                    first_wake, used_before = now, used_now
            polled = now - first_wake
            if wakes >= _WAKES and polled >= _POLLED_SECONDS and used_now - used_before < _AT_WORK * polled:
                return
            if now >= begin + _TIMERS_DONE_WITHIN:
                return

    async def _close(self) -> None:
        self.has_closed = True
        await self._screen.close_windows()
        await asyncio.sleep(_CLOSED_WITHIN)
        self._unit.interrupt()


def _until(deadline: float, limits: Limits) -> Limits:
    return replace(limits, wall=max(deadline - time.monotonic(), _LEAST_WALL))
