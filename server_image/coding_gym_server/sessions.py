"""Sessions: what one connection has, an episode at a time."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from coding_gym_server.backends import JUPYTER_PREFIX, check_backend, check_installed
from coding_gym_server.gathering import Gathering
from coding_gym_server.interpreter.files import Workspace
from coding_gym_server.protocol import (
    INFRASTRUCTURE_EXIT_CODE,
    FileContent,
    Metadata,
    Observation,
    ObservationData,
    Outcome,
    ResetOptions,
    SessionState,
    StepAction,
)
from coding_gym_server.rewards import Score, score
from coding_gym_server.workers import workspace
from coding_gym_server.workers.link import LinkClosedError
from coding_gym_server.workers.messages import Execute
from coding_gym_server.workers.unit import DEFAULT_MAX_OUTPUT_CHARS, Completion, Event, Kind, Unit
from coding_gym_server.workers.units import Units
from coding_gym_server.workers.watchdog import Limits
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
        defaults: What applies unless a reset says otherwise.
        shared: A directory that it has in common with other sessions; None if it has only its own.
    """

    def __init__(self, units: Units, defaults: SessionDefaults, *, shared: Path | None = None) -> None:
        self._units = units
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
        """Run code; before any reset, an episode begins by itself.

        Whatever happens to the code, and to the processes that run it, is an observation.
        """
        gathering = Gathering(show_value=self._options.show_value) if self._options.results else None
        try:
            cell = Execute(action.code, rich=gathering is not None)
            completion = await self.execute(cell, self._limits(action), on_event=gathering)
        except FAULTS as error:
            return self._fail(error)
        worth = self._score(action.code)
        metadata = Metadata(
            outcome=completion.outcome, state_lost=completion.state_lost, safety_violation=worth.safety_violation
        )
        if gathering is None:
            stdout, stderr = completion.stdout, completion.stderr
        else:
            metadata.results = gathering.results
            stdout, stderr = gathering.stdout(self._max_output_chars), gathering.stderr(completion, self._max_output_chars)
        return _observation(stdout, stderr, completion.exit_code, metadata, reward=worth.reward)

    async def execute(self, cell: Execute, limits: Limits, *, on_event: Callable[[Event], None] | None = None) -> Completion:
        """Run a cell; before any reset, an episode begins by itself.

        Args:
            cell: The cell.
            limits: Its time.
            on_event: Called with what it shows as it comes.

        Raises:
            FAULTS: The sandbox failed to run it; what comes next begins with a new interpreter.
        """
        try:
            if self._unit is None:
                await self._begin()
            assert self._unit is not None
            completion = await self._unit.execute(cell, limits, on_event=on_event)
        except FAULTS:
            self.close()
            raise
        self.state.step_count += 1
        self.state.last_exit_code = completion.exit_code
        return completion

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
        if self._unit is not None:
            self._units.release(self._unit)
            self._unit = None

    async def _begin(self) -> None:
        used, self._unit = self._unit, None
        kind = Kind(backend=self._options.backend or self._defaults.backend, shared=self._shared)
        if used is not None and used.kind != kind:
            self._units.release(used)
            used = None
        unit = await (self._units.acquire(kind) if used is None else self._units.renew(used))
        self._unit = unit
        if self._options.files:
            # Nothing has run in it yet, so nobody sees half of them.
            await asyncio.to_thread(_write_files, unit.workspace / workspace.WORK, self._options.files)
        unit.configure(
            seed=self._options.seed,
            show_value=self._options.show_value,
            max_output_chars=self._max_output_chars,
            directory=self._directory,
        )

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
        defaults: What applies unless a reset says otherwise.
        limit: The most sessions at a time.
    """

    def __init__(self, units: Units, defaults: SessionDefaults, *, limit: int) -> None:
        self._units = units
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
        session = Session(self._units, self._defaults, shared=shared)
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


def _write_files(directory: Path, files: Mapping[str, str | FileContent]) -> None:
    target = Workspace(directory, home=str(directory))
    for path, content in files.items():
        with contextlib.closing(target.upload(path)) as upload:
            upload.write(content.encode() if isinstance(content, str) else content.base64)
            upload.finish()
