"""Server session: one isolated interpreter that runs one episode at a time."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
import uuid
from collections.abc import Callable, Iterator

import msgspec

from coding_gym_server.ipc.async_channel import ChannelClosedError
from coding_gym_server.ipc.channel import close_all
from coding_gym_server.ipc.messages import Execute
from coding_gym_server.ipc.snapshot_messages import Resume
from coding_gym_server.ipc.text import truncate_middle
from coding_gym_server.protocol import (
    INFRASTRUCTURE_EXIT_CODE,
    Metadata,
    ObservationData,
    Outcome,
    ResetOptions,
    Screen,
    ScreenRequestOptions,
    SessionState,
    StepAction,
)
from coding_gym_server.protocol.backends import check_backend
from coding_gym_server.server.measurements import Measurements
from coding_gym_server.server.sessions.defaults import SessionDefaults
from coding_gym_server.server.sessions.doors import SessionDoors
from coding_gym_server.server.sessions.episode_options import EpisodeOptions
from coding_gym_server.server.sessions.responses import infrastructure_failure, response, unfinished
from coding_gym_server.server.sessions.result_collector import ResultCollector
from coding_gym_server.server.sessions.session_screen import SessionScreen
from coding_gym_server.server.sessions.snapshots import Snapshot, SnapshotStore
from coding_gym_server.server.sessions.step_runner import StepCapture, StepRunner, StepView
from coding_gym_server.server.supervisor import branching
from coding_gym_server.server.supervisor.cell_run import CompletedCell
from coding_gym_server.server.supervisor.display_handle import DisplayFactory, ScreenUnavailableError, check_inputs
from coding_gym_server.server.supervisor.executor import Executor
from coding_gym_server.server.supervisor.executor_pool import ExecutorPool
from coding_gym_server.server.supervisor.executor_spec import ExecutorSpec
from coding_gym_server.server.supervisor.frozen_worker import SnapshotRefusedError
from coding_gym_server.server.supervisor.shared_files import SharedFiles
from coding_gym_server.server.supervisor.watchdog import TimeLimits
from coding_gym_server.server.supervisor.worker_handle import Event
from coding_gym_server.server.supervisor.zygote_handle import ForkError
from coding_gym_server.server.threads import in_thread
from coding_gym_server.worker.backends.registry import check_installed
from coding_gym_server.workspace.files import write_files

__all__ = ["INFRASTRUCTURE_ERRORS", "EpisodeLostError", "OnlyForkError", "ServerSession"]

INFRASTRUCTURE_ERRORS = (ForkError, ChannelClosedError, TimeoutError)
"""Infrastructure errors: the sandbox failed to run a cell."""

_ALWAYS_INSTALLED = "python"
_ROOT_DIED = "the session's root process died"


class EpisodeLostError(RuntimeError):
    """The episode that a request refers to was lost by a failure of the sandbox.

    Args:
        reason: What failed.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"The episode was lost ({reason}), and its processes, files and variables with it: reset the session, or run code "
            "in it, to begin another one"
        )


class OnlyForkError(RuntimeError):
    """A session beyond the session limit would begin its own episode."""

    def __init__(self) -> None:
        super().__init__("A fork cannot begin its own episode in a sandbox at its session limit: open another session")


class ServerSession:
    """One isolated interpreter and its current episode.

    Coroutines other than ``executor_beside_steps`` are called with ``turn`` held.

    Args:
        executors: Pool from which executors are acquired.
        screens: Factory of displays.
        defaults: Defaults for reset options.
        snapshots: Snapshots of all sessions.
        measurements: Counts resets and steps, unless they are refused before they begin.
        shared: Files shared with other sessions, None for only the session's own workspace.
        is_fork: Whether it may only continue from snapshots.

    Attributes:
        id: Id by which HTTP requests address the session; a secret.
        screen: Display of the current episode, whose picture may be taken at any time.
        doors: Ports of the current episode that lead to the client.
        state: State of the current episode.
        on_episode_ended: Called when an episode ends, or continues from a snapshot, before its files are gone.
        turn: To be held by what must not run concurrently.
    """

    def __init__(
        self,
        executors: ExecutorPool,
        screens: DisplayFactory,
        defaults: SessionDefaults,
        snapshots: SnapshotStore,
        measurements: Measurements,
        *,
        shared: SharedFiles | None = None,
        is_fork: bool = False,
    ) -> None:
        self._is_fork = is_fork
        self._executors = executors
        self._snapshots = snapshots
        self._measurements = measurements
        self.screen = SessionScreen(screens)
        self.doors = SessionDoors(measurements, are_private=defaults.private_network)
        self._defaults = defaults
        self.on_episode_ended: Callable[[], None] = lambda: None
        self._shared = shared
        self._directory: str | None = None
        self._executor: Executor | None = None
        self._loss: str | None = None
        self._is_stepping = self._interrupt_due = self._has_ended = False
        self._options = EpisodeOptions(ResetOptions(), defaults)
        self._beginning = asyncio.Lock()
        self.turn = asyncio.Lock()
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
            ScreenUnavailableError: If the screen or the window manager is not available.
            DoorsError: If the session cannot have the doors.
            OnlyForkError: If the session may only continue from snapshots.
            ForkError: If the process limit, memory or disk is exhausted, or the backend fails to load.
            ChannelClosedError: If the zygote died.
        """
        began = time.perf_counter()
        chosen = EpisodeOptions(options, self._defaults)
        backend = chosen.backend
        check_backend(backend)
        if backend not in (_ALWAYS_INSTALLED, self._defaults.backend):
            # The default backend was checked when the server started.
            await in_thread(check_installed, backend)
        self._options = chosen
        self._directory = directory
        self.state = SessionState(episode_id=options.episode_id or str(uuid.uuid4()))
        try:
            async with self._beginning:
                await self._begin()
        except INFRASTRUCTURE_ERRORS:
            self._measurements.resets[backend, Outcome.INFRASTRUCTURE] += 1
            raise
        self._measurements.resets[backend, Outcome.OK] += 1
        self._measurements.reset_times[backend].add(time.perf_counter() - began)
        return response("", "", 0, Metadata(outcome=Outcome.OK, state_lost=False))

    async def step(self, action: StepAction, *, on_event: Callable[[Event], None] | None = None) -> ObservationData:
        """Run code and inject input events. Starts an episode if there was no reset yet.

        Failures of the code and infrastructure errors are reported in the observation.

        Args:
            action: The code, the input events and options of the step.
            on_event: Called with each output and result as it arrives.

        Raises:
            ScreenUnavailableError: If there are input events but no screen.
            InvalidScreenRequestError: If a key does not exist.
        """
        began = time.perf_counter()
        # Validate input before any code runs.
        check_inputs(action.inputs)
        rich, show_value = self._options.requested.results, self._options.requested.show_value
        collector = ResultCollector(show_value=show_value, also=on_event) if rich or on_event is not None else None
        try:
            with self._stepping():
                previous = await self._end_program(action)
                cell, limits = self._cell(action, rich=rich), self._options.limits(action)
                self.screen.forget_widgets()
                captured = await self._run_step(cell, limits, self._options.view(action, limits), on_event=collector)
        except INFRASTRUCTURE_ERRORS as error:
            self.state.step_count += 1
            self.state.last_exit_code = INFRASTRUCTURE_EXIT_CODE
            self._count_step(Outcome.INFRASTRUCTURE, began)
            return infrastructure_failure(error)
        code_score = self._options.score(action.code)
        completion = captured.completion
        if completion is None:
            assert self._executor is not None
            completion = unfinished(self._executor, is_running=captured.is_running)
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
            limit = self._options.max_output_chars
            stdout, stderr = collector.stdout(limit), collector.stderr(completion, limit)
        if previous is not None:
            stdout, stderr = (
                truncate_middle(first + second, self._options.max_output_chars)
                for first, second in ((previous.stdout, stdout), (previous.stderr, stderr))
            )
            metadata.state_lost |= previous.state_lost
        data = response(stdout, stderr, completion.exit_code, metadata, reward=code_score.reward)
        data.observation.screenshot, data.observation.frames = captured.picture, captured.frames
        data.observation.widgets = await self.screen.take_widgets(self._executor)
        self._count_step(metadata.outcome, began)
        return data

    async def execute(
        self, cell: Execute, limits: TimeLimits, *, on_event: Callable[[Event], None] | None = None
    ) -> StepCapture:
        """Run a cell to its end and capture the screen. Starts an episode if there was no reset yet.

        Args:
            cell: The cell.
            limits: Time limits.
            on_event: Called with each output and result as it arrives.

        Raises:
            INFRASTRUCTURE_ERRORS: If the sandbox fails to run the cell. The next call starts a new interpreter.
        """
        began = time.perf_counter()
        try:
            with self._stepping():
                captured = await self._run_step(cell, limits, StepView.of_cell(limits.wall), on_event=on_event)
        except INFRASTRUCTURE_ERRORS:
            self._count_step(Outcome.INFRASTRUCTURE, began)
            raise
        self._count_step(Outcome.RUNNING if captured.completion is None else captured.completion.outcome, began)
        return captured

    def _count_step(self, outcome: Outcome, began: float) -> None:
        self._measurements.count_step(self._options.backend, outcome, time.perf_counter() - began)

    async def capture_screen(self, options: ScreenRequestOptions) -> Screen:
        """Return the current screen; see ``SessionScreen.capture``."""
        return await self.screen.capture(options, self._executor)

    def _cell(self, action: StepAction, *, rich: bool) -> Execute | None:
        """Return the cell of an action, or None to continue a running program or to inject input only."""
        is_running = self._executor is not None and self._executor.is_running
        if not action.code.strip() and (is_running or action.inputs):
            return None
        return Execute(action.code, rich=rich)

    async def _end_program(self, action: StepAction) -> CompletedCell | None:
        """End a program that was left running if the action has code; return its outcome."""
        if self._executor is None or not self._executor.is_running or not action.code.strip():
            return None
        return await StepRunner(self._executor, self.screen.display).close_program(self._options.limits(action))

    async def _run_step(
        self, cell: Execute | None, limits: TimeLimits, view: StepView, *, on_event: Callable[[Event], None] | None
    ) -> StepCapture:
        executor = None
        try:
            executor = await self._current_executor()
            if self._interrupt_due:
                executor.interrupt()
            if view.inputs and self.screen.display is None:
                message = "input events require a screen; reset the session with a screen"
                raise ScreenUnavailableError(message)
            captured = await StepRunner(executor, self.screen.display).run(cell, limits, view, on_event=on_event)
        except INFRASTRUCTURE_ERRORS as error:
            if self._executor is executor:
                self._loss = str(error) or type(error).__name__
                self.close(f"the sandbox failed to run a step: {self._loss}")
            raise
        self.state.step_count += 1
        self.state.last_exit_code = captured.completion.exit_code if captured.completion is not None else 0
        return captured

    async def clone(self) -> Snapshot:
        """Return a snapshot of the episode, which continues unchanged.

        Raises:
            SnapshotRefusedError: If a copy would not be faithful, or the limit of the sandbox has been reached.
            INFRASTRUCTURE_ERRORS: If the session's root died.
        """
        snapshot = await self._freeze()
        self._snapshots.add(snapshot)
        return snapshot

    async def fork(self, count: int) -> list[str]:
        """Return ``count`` one-time snapshot ids; see ``clone``."""
        return self._snapshots.add_once(await self._freeze(), count)

    async def _freeze(self) -> Snapshot:
        async with self._beginning:
            if self._executor is None:
                raise SnapshotRefusedError(["no episode has begun" if self._loss is None else f"it was lost: {self._loss}"])
            self._snapshots.check(self._executor.spec)
            frozen = await branching.freeze(self._executor)
            return Snapshot(self.id, self._executor, frozen, options=self._options, state=self.state, directory=self._directory)

    async def restore(self, identifier: str, *, seed: int | None, release: bool = False) -> ObservationData:
        """Continue from a snapshot of any session of the server.

        Args:
            identifier: Id of the snapshot.
            seed: Seed of the random number generators; None leaves them in their state.
            release: Whether the snapshot ends.

        Raises:
            SnapshotRefusedError: If it is lost or cannot be forked, or cannot be restored after all, which ends the episode.
            INFRASTRUCTURE_ERRORS: If the session's root died.
        """
        snapshot = self._snapshots.get(identifier)
        async with self._snapshots.used(identifier, release=release) as is_last, self._beginning:
            self.on_episode_ended()
            self._executor, namespaces = await self._snapshots.exchange(self._executor, snapshot)
            try:
                await self._thaw(self._executor, snapshot, seed, *namespaces, keep=not is_last)
            except BaseException as error:
                self._loss = f"a snapshot could not be restored: {error}"
                self.close(self._loss)
                raise
            finally:
                close_all(namespaces)
        return response("", "", 0, Metadata(outcome=Outcome.OK, state_lost=False))

    async def _thaw(self, executor: Executor, snapshot: Snapshot, seed: int | None, *namespaces: int, keep: bool) -> None:
        self._options, self._directory, self._loss = snapshot.options, snapshot.directory, None
        self.screen.close()
        self.screen.open(executor, self._options.requested)
        self.doors.close()
        settings = Resume(None if seed is None else f"{seed:x}", self.screen.name, self.screen.cookie)
        if namespaces:
            await branching.thaw_fork(executor, snapshot.frozen, namespaces, settings, keep=keep)
        else:
            await branching.thaw(executor, snapshot.frozen, settings, keep=keep)
        await self.doors.open(executor, self._options.requested.doors)
        self.state = msgspec.structs.replace(snapshot.state)

    def release(self, identifiers: list[str]) -> None:
        """End snapshots; ids of others are ignored."""
        self._snapshots.release(identifiers)

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
        if self._executor is not None:
            self._executor.forget_interrupt()
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
            self._executor.kill_with_reason(reason, limit_exceeded=False)

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

    async def open_door(self, port: int) -> None:
        """Open a port of the present episode that leads to the client, beside steps; its snapshots have it, too.

        Raises:
            DoorsError: If the session cannot have it.
            EpisodeLostError: As ``executor_beside_steps``.
            INFRASTRUCTURE_ERRORS: As ``executor_beside_steps``.
        """
        await self.doors.open(await self.executor_beside_steps(), [port])
        requested = self._options.requested
        if port not in requested.doors:
            requested = msgspec.structs.replace(requested, doors=[*requested.doors, port])
            self._options = EpisodeOptions(requested, self._defaults)

    async def _current_executor(self) -> Executor:
        """Return the executor of the episode; starts one if there is none."""
        if self._executor is not None and not self._has_ended and not self._beginning.locked():
            return self._executor
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
        self._snapshots.release_all_of(self.id)
        self.close()

    def close(self, reason: str = "the session was closed") -> None:
        """End the episode and all its processes, which report the reason; the next call starts another one. Idempotent."""
        self.screen.close()
        self.doors.close()
        if self._executor is not None:
            self._leave(self._executor, reason)
            self._executors.release(self._executor)
            self._executor = None

    def _leave(self, executor: Executor, reason: str) -> None:
        executor.abandon(reason)
        self.on_episode_ended()

    async def _begin(self) -> None:
        if self._is_fork:
            raise OnlyForkError
        self.screen.close()
        self.doors.close()
        used, self._executor = self._executor, None
        if used is not None:
            self._leave(used, "the session was reset")
        spec = ExecutorSpec(backend=self._options.backend, shared=self._shared, may_be_root=self._defaults.root)
        executor = await self._executors.exchange(used, spec)
        try:
            await self._set_up(executor)
        except BaseException:
            self.screen.close()
            self.doors.close()
            self._executors.release(executor)
            raise
        self._executor, self._loss = executor, None

    async def _set_up(self, executor: Executor) -> None:
        if self._options.requested.files:
            # No code has run in the workspace yet, so none observes partially written files.
            async with executor.files() as workspace:
                await executor.lease.run(write_files, workspace, self._options.requested.files)
        await self.doors.open(executor, self._options.requested.doors)
        self.screen.open(executor, self._options.requested)
        configuration = self._options.configuration(self._directory, self.screen.name, self.screen.cookie)
        executor.configure(configuration, max_output_chars=self._options.max_output_chars)
