"""Sessions: what one connection has, an episode at a time."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec import UNSET

from coding_gym_server.backends import JUPYTER_PREFIX, check_backend, check_installed
from coding_gym_server.display import screen as display
from coding_gym_server.display.screen import NoScreenError, ScreenRefusedError, Screens, check_inputs
from coding_gym_server.gathering import Gathering
from coding_gym_server.interpreter.files import write_files
from coding_gym_server.protocol import (
    DEFAULT_SCREEN,
    INFRASTRUCTURE_EXIT_CODE,
    Capture,
    Metadata,
    Observation,
    ObservationData,
    OnIdle,
    Outcome,
    Rectangle,
    ResetOptions,
    Screen,
    SessionState,
    StepAction,
)
from coding_gym_server.rewards import Score, score
from coding_gym_server.stage import Seen, Stage, View
from coding_gym_server.workers import workspace
from coding_gym_server.workers.capture import cut_middle
from coding_gym_server.workers.link import LinkClosedError
from coding_gym_server.workers.messages import Configure, Execute
from coding_gym_server.workers.unit import Completion, Kind, Unit
from coding_gym_server.workers.units import Units
from coding_gym_server.workers.watchdog import Limits
from coding_gym_server.workers.worker_end import DEFAULT_MAX_OUTPUT_CHARS, Event
from coding_gym_server.workers.zygote_process import ForkError

__all__ = ["FAULTS", "CapacityError", "Session", "SessionDefaults", "Sessions"]


FAULTS = (ForkError, LinkClosedError, TimeoutError)
"""What a sandbox that fails to run a cell raises."""

_FOREVER_SECONDS = 1e8


class CapacityError(RuntimeError):
    """The sandbox has as many sessions as it may have.

    Attributes:
        active: The number of sessions now.
        limit: The most there may be.
    """

    def __init__(self, active: int, limit: int) -> None:
        super().__init__(
            f"Server at capacity: {active}/{limit} sessions active. Close one, start another sandbox, or raise --max-sessions."
        )
        self.active = active
        self.limit = limit


@dataclass(frozen=True, kw_only=True)
class SessionDefaults:
    """What a session has unless a reset says otherwise.

    Attributes:
        step_timeout: Wall-clock limit of a step in seconds.
        cpu_timeout: CPU-time limit of a step in seconds, None for no limit.
        max_output_chars: The most code points of stdout, and of stderr, in an observation.
        backend: What executes the cells.
        rewards: What the reward of a step is the sum of, names of ``protocol.REWARDS``.
    """

    step_timeout: float = 30.0
    cpu_timeout: float | None = None
    max_output_chars: int = DEFAULT_MAX_OUTPUT_CHARS
    backend: str = "python"
    rewards: tuple[str, ...] = ()


class Session:
    """One isolated interpreter and the episode that runs in it. Its methods must not run at the same time.

    Args:
        units: Where its processes come from.
        screens: Where its screen comes from.
        defaults: What applies unless a reset says otherwise.
        shared: A directory that it has in common with other sessions; None if it has only its own.
    """

    def __init__(self, units: Units, screens: Screens, defaults: SessionDefaults, *, shared: Path | None = None) -> None:
        self._units = units
        self._screens = screens
        self._screen: display.Screen | None = None
        self._defaults = defaults
        self._shared = shared
        self._directory = shared
        self._unit: Unit | None = None
        self._options = ResetOptions()
        self.state = SessionState()

    async def reset(self, options: ResetOptions, *, directory: Path | None = None) -> ObservationData:
        """Begin an episode: a new interpreter in an empty workspace.

        Args:
            options: What is asked for.
            directory: The working directory, in the shared one; that itself if None.

        Raises:
            UnknownBackendError: There is no such backend.
            FilesError: One of the files cannot be written.
            NoScreenError: There can be no screen here.
            ForkError: There are no processes, memory or disk left, or the backend cannot be loaded.
            LinkClosedError: The zygote died.
        """
        backend = options.backend or self._defaults.backend
        check_backend(backend)
        if backend.startswith(JUPYTER_PREFIX):
            await asyncio.to_thread(check_installed, backend)
        self._options = options
        self._directory = directory or self._shared
        self.state = SessionState(episode_id=options.episode_id or str(uuid.uuid4()))
        await self._begin()
        return _observation("", "", 0, Metadata(outcome=Outcome.OK, state_lost=False))

    async def step(self, action: StepAction) -> ObservationData:
        """Run code, and do what hands are to do; before any reset, an episode begins by itself.

        Whatever happens to the code, and to the processes that run it, is an observation.

        Raises:
            NoScreenError: Hands are to do something, and there is no screen.
            ScreenRefusedError: There is no such key.
        """
        if action.inputs:
            # Before anything is run: bad input costs nothing.
            check_inputs(action.inputs)
        gathering = Gathering(show_value=self._options.show_value) if self._options.results else None
        try:
            before = await self._end_program(action)
            seen = await self._run(self._cell(action, rich=gathering is not None), action, on_event=gathering)
        except FAULTS as error:
            return self._fail(error)
        worth = self._score(action.code)
        completion = seen.completion or self._unfinished(seen)
        metadata = Metadata(
            outcome=completion.outcome,
            state_lost=completion.state_lost,
            safety_violation=worth.safety_violation,
            idle=seen.idle,
        )
        if gathering is None:
            stdout, stderr = completion.stdout, completion.stderr
        else:
            metadata.results = gathering.results
            stdout, stderr = gathering.stdout(self._max_output_chars), gathering.stderr(completion, self._max_output_chars)
        if before is not None:
            stdout, stderr = (
                cut_middle(first + second, self._max_output_chars)
                for first, second in ((before.stdout, stdout), (before.stderr, stderr))
            )
            metadata.state_lost |= before.state_lost
        data = _observation(stdout, stderr, completion.exit_code, metadata, reward=worth.reward)
        data.observation.screenshot, data.observation.frames = seen.picture, seen.frames
        return data

    async def execute(self, cell: Execute, limits: Limits, *, on_event: Callable[[Event], None] | None = None) -> Seen:
        """Run a cell to its end, and look at the screen; before any reset, an episode begins by itself.

        Args:
            cell: The cell.
            limits: Its time.
            on_event: Called with what it shows as it comes.

        Raises:
            FAULTS: The sandbox failed to run it; what comes next begins with a new interpreter.
        """
        return await self._play(cell, limits, View(capture=Capture.AUTO), on_event=on_event)

    async def look(self, region: Rectangle | int | None) -> Screen:
        """Return what is on the screen now.

        Args:
            region: A rectangle, or a window by its id; the whole screen if None.

        Raises:
            NoScreenError: There is none.
            ScreenRefusedError: There is no such window.
        """
        if self._screen is None:
            message = "this session has no screen: reset it with a screen"
            raise NoScreenError(message)
        shown = await self._screen.show(region)
        running = self._unit is not None and self._unit.is_running
        if shown is not None:
            return Screen(windows=shown.windows, running=running, screenshot=shown.picture)
        if isinstance(region, int):
            message = f"no window {region} can be seen; there are no windows"
            raise ScreenRefusedError(message)
        return Screen(windows=[], running=running, screenshot=self._screen.black(region))

    def _cell(self, action: StepAction, *, rich: bool) -> Execute | None:
        """Return the cell of an action; None if there is none, or a program that runs is to go on."""
        is_running = self._unit is not None and self._unit.is_running
        if not action.code.strip() and (is_running or action.inputs):
            return None
        return Execute(action.code, rich=rich)

    async def _end_program(self, action: StepAction) -> Completion | None:
        """End a program that was left running, if there is code to be run in its place."""
        if self._unit is None or not self._unit.is_running or not action.code.strip():
            return None
        return await Stage(self._unit, self._screen).close_program(self._limits(action))

    async def _run(self, cell: Execute | None, action: StepAction, *, on_event: Callable[[Event], None] | None) -> Seen:
        wanted = action.capture_screenshot
        capture = self._options.capture or Capture.NEVER
        view = View(
            capture=capture if wanted is None else Capture.ALWAYS if wanted else Capture.NEVER,
            on_idle=action.on_idle or self._options.on_idle or OnIdle.CLOSE,
            frame_rate=self._options.frame_rate,
            inputs=action.inputs,
            settle=action.settle_s,
        )
        return await self._play(cell, self._limits(action), view, on_event=on_event)

    async def _play(
        self, cell: Execute | None, limits: Limits, view: View, *, on_event: Callable[[Event], None] | None
    ) -> Seen:
        try:
            if self._unit is None:
                await self._begin()
            assert self._unit is not None
            if view.inputs and self._screen is None:
                message = "there is no screen to touch: reset the session with a screen"
                raise NoScreenError(message)
            seen = await Stage(self._unit, self._screen).run(cell, limits, view, on_event=on_event)
        except FAULTS:
            self.close()
            raise
        self.state.step_count += 1
        self.state.last_exit_code = seen.completion.exit_code if seen.completion is not None else 0
        return seen

    def _unfinished(self, seen: Seen) -> Completion:
        """Return how a step ended in which no cell did."""
        assert self._unit is not None
        stdout, stderr = self._unit.take_output()
        return Completion(
            outcome=Outcome.RUNNING if seen.idle == "returned" else Outcome.OK,
            exit_code=0,
            state_lost=False,
            stdout=stdout,
            stderr=stderr,
            note="",
            raised=None,
        )

    def interrupt(self) -> None:
        """Interrupt the step that is running, as Ctrl-C does; harmless if there is none."""
        if self._unit is not None:
            self._unit.interrupt()

    def abort(self, reason: str) -> None:
        """Kill all that runs, at once; the variables are lost.

        Args:
            reason: For whoever waits for the result.
        """
        if self._unit is not None:
            self._unit.overrun(reason)

    def close(self) -> None:
        """End the session and everything that it started; harmless when closed already."""
        self._close_screen()
        if self._unit is not None:
            self._units.release(self._unit)
            self._unit = None

    def _close_screen(self) -> None:
        if self._screen is not None:
            self._screen.close()
            self._screen = None

    def _open_screen(self) -> None:
        wanted, window_manager = self._options.screen, self._options.window_manager
        if wanted is UNSET:
            # Where there can be none, there is none.
            with contextlib.suppress(NoScreenError):
                self._screen = self._screens.open(DEFAULT_SCREEN, window_manager=window_manager)
        elif wanted is not None:
            self._screen = self._screens.open(wanted, window_manager=window_manager)

    async def _begin(self) -> None:
        self._close_screen()
        used, self._unit = self._unit, None
        kind = Kind(backend=self._options.backend or self._defaults.backend, shared=self._shared)
        if used is not None and used.kind != kind:
            self._units.release(used)
            used = None
        unit = await (self._units.acquire(kind) if used is None else self._units.renew(used))
        try:
            await self._set_up(unit)
        except BaseException:
            self._close_screen()
            self._units.release(unit)
            raise
        self._unit = unit

    async def _set_up(self, unit: Unit) -> None:
        if self._options.files:
            # Nothing has run in it yet, so nobody sees half of them.
            await asyncio.to_thread(write_files, unit.workspace / workspace.WORK, self._options.files)
        self._open_screen()
        seed = self._options.seed
        configuration = Configure(
            seed=None if seed is None else f"{seed:x}",
            show_value=self._options.show_value,
            directory=None if self._directory is None else str(self._directory),
            display=None if self._screen is None else self._screen.name,
            display_cookie=b"" if self._screen is None else self._screen.cookie,
        )
        if self._screen is not None:
            unit.on_interrupted = self._screen.wake
        unit.configure(configuration, max_output_chars=self._max_output_chars)

    @property
    def _max_output_chars(self) -> int:
        return self._options.max_output_chars or self._defaults.max_output_chars

    def _limits(self, action: StepAction) -> Limits:
        return Limits(
            wall=min(action.timeout_s or self._options.step_timeout or self._defaults.step_timeout, _FOREVER_SECONDS),
            cpu=self._options.cpu_timeout or self._defaults.cpu_timeout,
        )

    def _score(self, code: str) -> Score:
        names = self._defaults.rewards if self._options.rewards is None else self._options.rewards
        return score(code, names) if names else Score()

    def _fail(self, error: Exception) -> ObservationData:
        """Report a fault of ours."""
        self.state.step_count += 1
        self.state.last_exit_code = INFRASTRUCTURE_EXIT_CODE
        message = f"the sandbox failed to run this step: {str(error) or type(error).__name__}\n"
        metadata = Metadata(outcome=Outcome.INFRASTRUCTURE, state_lost=True, truncated=True)
        return _observation("", message, INFRASTRUCTURE_EXIT_CODE, metadata)


class Sessions:
    """The sessions of a sandbox, of which there may be so many and no more.

    Args:
        units: Where their processes come from.
        screens: Where their screens come from.
        defaults: What applies unless a reset says otherwise.
        limit: The most sessions at a time.
    """

    def __init__(self, units: Units, screens: Screens, defaults: SessionDefaults, *, limit: int) -> None:
        self._units = units
        self._screens = screens
        self._defaults = defaults
        self._limit = limit
        self._active: set[Session] = set()

    def open(self, *, shared: Path | None = None) -> Session:
        """Open a session; it has no process before its first reset or step.

        Args:
            shared: A directory that it is to have in common with others.

        Raises:
            CapacityError: There are as many as there may be.
        """
        if len(self._active) >= self._limit:
            raise CapacityError(len(self._active), self._limit)
        session = Session(self._units, self._screens, self._defaults, shared=shared)
        self._active.add(session)
        return session

    def close(self, session: Session) -> None:
        """Close a session and free its place at once."""
        self._active.discard(session)
        session.close()


def _observation(stdout: str, stderr: str, exit_code: int, metadata: Metadata, *, reward: float = 0.0) -> ObservationData:
    observation = Observation(stdout=stdout, stderr=stderr, exit_code=exit_code, metadata=metadata)
    # Results may be large: once is enough.
    brief = msgspec.structs.replace(metadata, results=[]) if metadata.results else metadata
    return ObservationData(observation=observation, reward=reward, done=False, metadata=brief)
