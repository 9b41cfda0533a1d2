"""Server session: one isolated interpreter that runs one episode at a time."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import uuid
from collections.abc import Callable, Iterator

from msgspec import UNSET

from coding_gym_server.ipc.async_channel import ChannelClosedError
from coding_gym_server.ipc.messages import Configure, Execute
from coding_gym_server.ipc.text import truncate_middle
from coding_gym_server.protocol import (
    DEFAULT_SCREEN,
    INFRASTRUCTURE_EXIT_CODE,
    Capture,
    Metadata,
    ObservationData,
    OnIdle,
    Outcome,
    Rectangle,
    ResetOptions,
    Screen,
    SessionState,
    StepAction,
)
from coding_gym_server.server.sessions.defaults import SessionDefaults
from coding_gym_server.server.sessions.lost_episode import EpisodeLostError
from coding_gym_server.server.sessions.openenv_rewards import Score, score
from coding_gym_server.server.sessions.responses import infrastructure_failure, response
from coding_gym_server.server.sessions.result_collector import ResultCollector
from coding_gym_server.server.sessions.step_runner import StepCapture, StepRunner, StepView
from coding_gym_server.server.supervisor.cell_run import CellOutcome
from coding_gym_server.server.supervisor.display_handle import (
    DisplayFactory,
    DisplayHandle,
    NoScreenError,
    ScreenRefusedError,
    check_inputs,
)
from coding_gym_server.server.supervisor.executor import Executor
from coding_gym_server.server.supervisor.executor_pool import ExecutorPool
from coding_gym_server.server.supervisor.executor_spec import ExecutorSpec
from coding_gym_server.server.supervisor.shared_files import SharedFiles
from coding_gym_server.server.supervisor.watchdog import Limits
from coding_gym_server.server.supervisor.worker_handle import Event
from coding_gym_server.server.supervisor.zygote_handle import ForkError
from coding_gym_server.worker.backends.registry import check_backend, check_installed
from coding_gym_server.workspace.session_directory import SessionDirectory

__all__ = ["INFRASTRUCTURE_ERRORS", "ServerSession"]

INFRASTRUCTURE_ERRORS = (ForkError, ChannelClosedError, TimeoutError)
"""Infrastructure errors: the sandbox failed to run a cell."""

_MAX_WALL_SECONDS = 1e8
_ALWAYS_INSTALLED = "python"
_ROOT_DIED = "the session's root process died"


class ServerSession:
    """One isolated interpreter and its current episode.

    Coroutines must not be called concurrently, except for ``executor_beside_steps``.

    Args:
        executors: Pool from which executors are acquired.
        screens: Factory of displays.
        defaults: Defaults for reset options.
        shared: Files shared with other sessions, None for only the session's own workspace.

    Attributes:
        id: Id by which HTTP requests address the session; a secret.
        state: State of the current episode.
    """

    def __init__(
        self, executors: ExecutorPool, screens: DisplayFactory, defaults: SessionDefaults, *, shared: SharedFiles | None = None
    ) -> None:
        self._executors = executors
        self._screens = screens
        self._screen: DisplayHandle | None = None
        self._defaults = defaults
        self._shared = shared
        self._directory: str | None = None
        self._executor: Executor | None = None
        self._loss: str | None = None
        self._is_stepping = False
        self._interrupt_due = False
        self._options = ResetOptions()
        self._beginning = asyncio.Lock()
        self._has_ended = False
        self.id = secrets.token_hex(16)
        self.state = SessionState()

    async def reset(self, options: ResetOptions, *, directory: str | None = None) -> ObservationData:
        """Start an episode with a new interpreter in an empty workspace.

        Args:
            options: Options of the episode.
            directory: Path by which the session accesses its working directory. Defaults to that of its own workspace.

        Raises:
            UnknownBackendError: If the backend does not exist or is not installed.
            FilesError: If a file cannot be written.
            NoScreenError: If the screen or the window manager is not available.
            ForkError: If the process limit, memory or disk is exhausted, or the backend fails to load.
            ChannelClosedError: If the zygote died.
        """
        backend = options.backend or self._defaults.backend
        check_backend(backend)
        if backend not in (_ALWAYS_INSTALLED, self._defaults.backend):
            # The default backend was checked when the server started.
            await asyncio.to_thread(check_installed, backend)
        self._options = options
        self._directory = directory
        self.state = SessionState(episode_id=options.episode_id or str(uuid.uuid4()))
        async with self._beginning:
            await self._begin()
        return response("", "", 0, Metadata(outcome=Outcome.OK, state_lost=False))

    async def step(self, action: StepAction) -> ObservationData:
        """Run code and inject input events. Starts an episode if there was no reset yet.

        Failures of the code and infrastructure errors are reported in the observation.

        Args:
            action: The code, the input events and options of the step.

        Raises:
            NoScreenError: If there are input events but no screen.
            ScreenRefusedError: If a key does not exist.
        """
        if action.inputs:
            # Validate input before any code runs.
            check_inputs(action.inputs)
        collector = ResultCollector(show_value=self._options.show_value) if self._options.results else None
        try:
            with self._stepping():
                previous = await self._end_program(action)
                captured = await self._run_action(self._cell(action, rich=collector is not None), action, on_event=collector)
        except INFRASTRUCTURE_ERRORS as error:
            return self._fail(error)
        code_score = self._score(action.code)
        completion = captured.completion or self._unfinished(captured)
        metadata = Metadata(
            outcome=completion.outcome,
            state_lost=completion.state_lost,
            safety_violation=code_score.safety_violation,
            idle=captured.idle,
        )
        if collector is None:
            stdout, stderr = completion.stdout, completion.stderr
        else:
            metadata.results = collector.results
            stdout, stderr = collector.stdout(self._max_output_chars), collector.stderr(completion, self._max_output_chars)
        if previous is not None:
            stdout, stderr = (
                truncate_middle(first + second, self._max_output_chars)
                for first, second in ((previous.stdout, stdout), (previous.stderr, stderr))
            )
            metadata.state_lost |= previous.state_lost
        data = response(stdout, stderr, completion.exit_code, metadata, reward=code_score.reward)
        data.observation.screenshot, data.observation.frames = captured.picture, captured.frames
        return data

    async def execute(self, cell: Execute, limits: Limits, *, on_event: Callable[[Event], None] | None = None) -> StepCapture:
        """Run a cell to its end and capture the screen. Starts an episode if there was no reset yet.

        Args:
            cell: The cell.
            limits: Time limits.
            on_event: Called with each output and result as it arrives.

        Raises:
            INFRASTRUCTURE_ERRORS: If the sandbox fails to run the cell. The next call starts a new interpreter.
        """
        with self._stepping():
            return await self._run_step(cell, limits, StepView(capture=Capture.AUTO), on_event=on_event)

    async def capture_screen(self, region: Rectangle | int | None) -> Screen:
        """Return the current screen.

        Args:
            region: A rectangle or the id of a window; None for the whole screen.

        Raises:
            NoScreenError: If the session has no screen.
            ScreenRefusedError: If the window does not exist.
        """
        if self._screen is None:
            message = "this session has no screen; reset it with a screen"
            raise NoScreenError(message)
        current = await self._screen.capture_now(region)
        running = self._executor is not None and self._executor.is_running
        if current is not None:
            return Screen(windows=current.windows, running=running, screenshot=current.picture)
        if isinstance(region, int):
            message = f"no window {region}: there are no windows on the screen"
            raise ScreenRefusedError(message)
        return Screen(windows=[], running=running, screenshot=self._screen.black(region))

    def _cell(self, action: StepAction, *, rich: bool) -> Execute | None:
        """Return the cell of an action, or None to continue a running program or to inject input only."""
        is_running = self._executor is not None and self._executor.is_running
        if not action.code.strip() and (is_running or action.inputs):
            return None
        return Execute(action.code, rich=rich)

    async def _end_program(self, action: StepAction) -> CellOutcome | None:
        """End a program that was left running if the action has code; return its outcome."""
        if self._executor is None or not self._executor.is_running or not action.code.strip():
            return None
        return await StepRunner(self._executor, self._screen).close_program(self._limits(action))

    async def _run_action(
        self, cell: Execute | None, action: StepAction, *, on_event: Callable[[Event], None] | None
    ) -> StepCapture:
        requested = action.capture_screenshot
        default = self._options.capture or Capture.NEVER
        view = StepView(
            capture=default if requested is None else Capture.ALWAYS if requested else Capture.NEVER,
            on_idle=action.on_idle or self._options.on_idle or OnIdle.CLOSE,
            frame_rate=self._options.frame_rate,
            inputs=action.inputs,
            settle=action.settle_s,
        )
        return await self._run_step(cell, self._limits(action), view, on_event=on_event)

    async def _run_step(
        self, cell: Execute | None, limits: Limits, view: StepView, *, on_event: Callable[[Event], None] | None
    ) -> StepCapture:
        try:
            executor = await self._current_executor()
            if self._interrupt_due:
                executor.interrupt()
            if view.inputs and self._screen is None:
                message = "input events require a screen; reset the session with a screen"
                raise NoScreenError(message)
            captured = await StepRunner(executor, self._screen).run(cell, limits, view, on_event=on_event)
        except INFRASTRUCTURE_ERRORS as error:
            self._loss = str(error) or type(error).__name__
            self.close(f"the sandbox failed to run a step: {self._loss}")
            raise
        self.state.step_count += 1
        self.state.last_exit_code = captured.completion.exit_code if captured.completion is not None else 0
        return captured

    def _unfinished(self, captured: StepCapture) -> CellOutcome:
        """Return the outcome of a step in which no cell ended."""
        assert self._executor is not None
        stdout, stderr = self._executor.take_output()
        return CellOutcome(
            outcome=Outcome.RUNNING if captured.idle == "returned" else Outcome.OK,
            exit_code=0,
            state_lost=False,
            stdout=stdout,
            stderr=stderr,
            note="",
            raised=None,
        )

    def interrupt(self) -> None:
        """Interrupt the running step as Ctrl-C does, also one that still waits for its interpreter.

        Has no effect if no step is running.
        """
        if not self._is_stepping:
            return
        self._interrupt_due = True
        if self._executor is not None:
            self._executor.interrupt()

    @contextlib.contextmanager
    def _stepping(self) -> Iterator[None]:
        self._is_stepping, self._interrupt_due = True, False
        try:
            yield
        finally:
            self._is_stepping = False

    def abort(self, reason: str) -> None:
        """Kill all processes of the session immediately; the variables are lost.

        Args:
            reason: Explanation in the result of the running step.
        """
        if self._executor is not None:
            self._executor.kill_with_reason(reason)

    async def executor_beside_steps(self) -> Executor:
        """Return the executor of the episode, for its processes and files; starts an episode if there was no reset yet.

        Raises:
            EpisodeLostError: If the episode was lost; only a reset or a step begins another one.
            INFRASTRUCTURE_ERRORS: If no executor can be started, or the session has ended.
        """
        async with self._beginning:
            loss = _ROOT_DIED if self._executor is not None and self._executor.is_broken else self._loss
        if loss is not None:
            raise EpisodeLostError(loss)
        return await self._current_executor()

    async def _current_executor(self) -> Executor:
        """Return the executor of the episode; starts one if there is none."""
        async with self._beginning:
            if self._executor is None:
                await self._begin()
            if self._has_ended:
                self.close()
                raise ChannelClosedError
            assert self._executor is not None
            return self._executor

    def end(self) -> None:
        """End the session for good. Idempotent."""
        self._has_ended = True
        self.close()

    def close(self, reason: str = "the session was closed") -> None:
        """End the episode and all its processes, which report the reason; the next call starts another one. Idempotent."""
        self._close_screen()
        if self._executor is not None:
            self._executor.processes.expect_end(reason)
            self._executors.release(self._executor)
            self._executor = None

    def _close_screen(self) -> None:
        if self._screen is not None:
            self._screen.close()
            self._screen = None

    def _open_screen(self, directory: SessionDirectory) -> None:
        size, window_manager = self._options.screen, self._options.window_manager
        if size is UNSET and not window_manager:
            # The default screen is optional.
            with contextlib.suppress(NoScreenError, OSError):
                self._screen = self._screens.open(directory, DEFAULT_SCREEN, window_manager=False)
        elif size is not None:
            chosen = DEFAULT_SCREEN if size is UNSET else size
            self._screen = self._screens.open(directory, chosen, window_manager=window_manager)

    async def _begin(self) -> None:
        self._close_screen()
        used, self._executor = self._executor, None
        if used is not None:
            used.processes.expect_end("the session was reset")
        spec = ExecutorSpec(backend=self._options.backend or self._defaults.backend, shared=self._shared)
        if used is not None and used.spec != spec:
            self._executors.release(used)
            used = None
        executor = await (self._executors.acquire(spec) if used is None else self._executors.renew(used))
        try:
            await self._set_up(executor)
        except BaseException:
            self._close_screen()
            self._executors.release(executor)
            raise
        self._executor, self._loss = executor, None

    async def _set_up(self, executor: Executor) -> None:
        if self._options.files:
            # No code has run in the workspace yet, so none observes partially written files.
            await asyncio.to_thread(executor.directory.write, self._options.files)
        self._open_screen(executor.directory)
        seed = self._options.seed
        configuration = Configure(
            seed=None if seed is None else f"{seed:x}",
            show_value=self._options.show_value,
            directory=self._directory,
            display=None if self._screen is None else self._screen.name,
            display_cookie=b"" if self._screen is None else self._screen.cookie,
        )
        if self._screen is not None:
            executor.on_interrupted = self._screen.wake
        executor.configure(configuration, max_output_chars=self._max_output_chars)

    @property
    def _max_output_chars(self) -> int:
        return self._options.max_output_chars or self._defaults.max_output_chars

    def _limits(self, action: StepAction) -> Limits:
        return Limits(
            wall=min(action.timeout_s or self._options.step_timeout or self._defaults.step_timeout, _MAX_WALL_SECONDS),
            cpu=self._options.cpu_timeout or self._defaults.cpu_timeout,
        )

    def _score(self, code: str) -> Score:
        names = self._defaults.rewards if self._options.rewards is None else self._options.rewards
        return score(code, names) if names else Score()

    def _fail(self, error: Exception) -> ObservationData:
        """Report an infrastructure error."""
        self.state.step_count += 1
        self.state.last_exit_code = INFRASTRUCTURE_EXIT_CODE
        return infrastructure_failure(error)
