"""``CodingEnv-v0``: an agent writes code, a sandbox runs it, the agent sees the outcome."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar, Unpack

import gymnasium as gym
import numpy as np
from gymnasium.utils import EzPickle, seeding
from numpy.typing import NDArray

from coding_gym._validation import check_count
from coding_gym.client.session import SNAPSHOT_TIMEOUT
from coding_gym.doors.doors import Door, Doors
from coding_gym.envs.episode import (
    FIRST_RESET_TIMEOUT,
    RESET_TIMEOUT,
    SCREEN_TIMEOUT,
    EpisodeState,
    ExclusiveUse,
    Info,
    Obs,
    ObservationView,
    RecordedStep,
    ResetRetryPolicy,
    StepResult,
    Timing,
    infrastructure_failure,
    refuse_action,
)
from coding_gym.envs.human_window import HUMAN, HumanWindow
from coding_gym.envs.options import RENDER_MODES, CodingEnvKwargs, EnvOptions, split_options
from coding_gym.envs.screen_region import WIDGETS_AND_SCREEN, WIDGETS_ONLY, WINDOWS_ONLY, Region, screen_request
from coding_gym.envs.snapshot import ReplayReport, Snapshot, check_seed, check_snapshot
from coding_gym.errors import CapacityError, ConfigurationError, ProtocolError, SandboxStartError, TransportError
from coding_gym.media.frames import decode_pixels
from coding_gym.sandbox import ManagedSandbox, Sandbox
from coding_gym.sandbox.config import SandboxConfig
from coding_gym.sandbox.pool import SandboxPool, managed_sandbox, resolve_config
from coding_gym.telemetry import Group, SessionReporter
from coding_gym_server.protocol import (
    MAX_FORKS,
    Observation,
    ObservationData,
    ResetOptions,
    Screen,
    ScreenRequestOptions,
    Widget,
    Window,
)

if TYPE_CHECKING:
    from coding_gym.client.files import Files
    from coding_gym.client.processes import Command, Processes, ProcessResult, RunKwargs
    from coding_gym.client.session import Session
    from coding_gym.doors.targets import DoorTarget
    from coding_gym.media.marks import MarkedScreen

__all__ = ["CLOSED_DURING_RESET", "CodingEnv"]

CLOSED_DURING_RESET = "The environment was closed during the reset."

_MAX_REFUSALS = 20
"""Maximum number of refused requests that a step's stderr names."""

_MAX_FORK_SEED = 2**32
_T = TypeVar("_T")
_INTERRUPT_TIMEOUT = 30.0
"""Seconds within which an interrupted step is answered: the server kills what ignores the interrupt long before."""


class CodingEnv(gym.Env[Obs, str], EzPickle):
    """Runs each action, a piece of Python, in one persistent interpreter in a sandbox.

    The sandbox starts at the first ``reset`` and is removed at ``close``. Everything that the code does is an observation, even
    a crash of the interpreter. Only an infrastructure error, a failure of the sandbox itself, ends the episode, with
    ``truncated=True`` and ``info["outcome"] == "infrastructure"``, and the next ``reset`` starts a new sandbox.

    Action:
        ``CodeText(max_code_chars)``: source text.

    Observation:
        A dict of ``stdout`` and ``stderr`` (``CodeText``, cut in the middle at ``max_output_chars``), ``exit_code``
        (``Discrete(256)``: 0 ok, 1 exception, n of ``sys.exit(n)``, 124 timeout, 128 + signal) and ``screenshot`` (uint8, shape
        (height, width, 3), read-only, the screen once it is stable, black without windows).

    Reward:
        Always 0: wrap the environment to define one.

    Info:
        ``outcome`` (``ok``, ``error``, ``running``, ``timeout``, ``memory``, ``killed`` or ``infrastructure``), ``state_lost``
        (whether the namespace is gone), and ``idle`` after a program that waited for events (``closed`` or ``returned``) or
        drew without end (``animating``).

    Args:
        pool: Pool to lease a sandbox from until ``close``; the environment starts its own sandbox if None.
        config: The sandbox, as a ``SandboxConfig`` or a mapping of its fields.
        options: Fields of ``EnvOptions`` (``screen=``, ``step_timeout=``, ``backend=`` ...) and, instead of ``config`` and
            ``pool``, of ``SandboxConfig`` (``provider=``, ``mem=`` ...).

    Raises:
        ConfigurationError: If an option is unknown or invalid.

    Example:
        >>> env = gym.make("CodingEnv-v0", provider="auto", step_timeout=5)
        >>> observation, info = env.reset(seed=1)  # doctest: +SKIP
        >>> observation, *_ = env.step("print('hello')")  # doctest: +SKIP
    """

    metadata = {  # noqa: RUF012 - as Gymnasium declares it
        "render_modes": RENDER_MODES,
        "render_fps": 4,
    }

    sessions_per_env: ClassVar[int] = 1
    """Number of slots of a pool that an environment occupies."""

    _clones_by_replay: ClassVar[bool] = False
    """Whether its state cannot be copied, whatever it does."""

    # EzPickle declares no types.
    _ezpickle_args: tuple[Any, ...]
    _ezpickle_kwargs: dict[str, Any]

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        # In __new__, so that pickling records the arguments of a subclass as they were passed.
        self = super().__new__(cls)
        EzPickle.__init__(self, *args, **kwargs)
        return self

    def __init__(
        self,
        *,
        pool: SandboxPool | None = None,
        config: SandboxConfig | Mapping[str, Any] | None = None,
        **options: Unpack[CodingEnvKwargs],
    ) -> None:
        own, sandbox_options = split_options(options, type(self), CodingEnv)
        env_options = EnvOptions(**own)
        self.render_mode = env_options.render_mode
        # Vector environments before Gymnasium 1.4 add their own to it.
        self.metadata = {**self.metadata}
        self._episode = self._make_episode(env_options)
        self.action_space = self._episode.action_space
        self.observation_space = self._episode.observation_space
        self.config = resolve_config(pool, config, sandbox_options, backend=env_options.backend)
        self._pool = pool
        self._slot: ManagedSandbox | None = None
        self._doors = Doors(env_options.all_doors)
        self._owns_slot = True
        self._shared_slot: ManagedSandbox | None = None
        self._session: Session | None = None
        self._reset_timeout = FIRST_RESET_TIMEOUT
        self._failure: str | None = None
        self._is_fork = False
        self._egress_count = 0
        self._canceled: threading.Event | None = None
        self.exclusive_use = ExclusiveUse()
        self._window = HumanWindow(self._episode.env_id) if self.render_mode == HUMAN else None

    def _make_episode(self, options: EnvOptions) -> EpisodeState:
        return EpisodeState(options)

    @property
    def settings(self) -> EnvOptions:
        """The environment's options, except the sandbox configuration."""
        return self._episode.settings

    @property
    def reset_options(self) -> tuple[str, ...]:
        """Names of the options of ``reset``."""
        return self._episode.RESET_OPTIONS

    @property
    def step_timeout(self) -> float:
        """Wall-clock limit of a step in seconds; a new value applies from the next ``reset`` on."""
        return self.settings.step_timeout

    @step_timeout.setter
    def step_timeout(self, seconds: float) -> None:
        self._episode.settings = replace(self.settings, step_timeout=seconds)

    @property
    def reporter(self) -> SessionReporter:
        """Reports to the observer, if there is one."""
        return self._episode.reports.watched

    @property
    def sandbox(self) -> Sandbox | None:
        """The sandbox, None before the first ``reset`` and after ``close``."""
        return self._slot.sandbox if self._slot is not None else None

    @property
    def last_timing(self) -> Timing | None:
        """Duration of the last reset or step, None before the first."""
        return self._episode.last_timing

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Obs, Info]:
        """Begin an episode: a new interpreter in an empty workspace.

        Args:
            seed: Seeds ``random`` and ``numpy.random`` of the interpreter. By default it is drawn from ``np_random``, so that
                runs that are seeded once are reproducible.
            options: ``episode_id``: the id of the episode in the server's state. ``files``: the initial files,
                a mapping of paths to str or bytes. ``image``: the image of the sandbox, as in ``SandboxConfig``; another
                sandbox is started, or leased, if the present one has another image.

        Raises:
            ConfigurationError: If an option is invalid, or the sandbox cannot fulfill one.
            ProviderError: If no sandbox is available; with a pool, within its timeout.
            CapacityError: If the server has no free session.
            ConcurrentUseError: If another thread is in a call of this environment.
            gymnasium.error.ClosedEnvironmentError: If the environment is closed.
        """
        with self.exclusive_use:
            self.begin_reset(seed=seed, options=options)
            obs, info = self.finish_reset()
            self._show()
        return obs, info

    def step(self, action: str) -> StepResult:
        """Run ``action``.

        Raises:
            InvalidActionError: If it is not in the action space; nothing is run.
            ConcurrentUseError: If another thread is in a call of this environment.
            gymnasium.error.ResetNeeded: If ``reset`` was not called before.
            gymnasium.error.ClosedEnvironmentError: If the environment is closed.
        """
        with self.exclusive_use:
            self.check_action(action)
            self.begin_step(action)
            obs, reward, terminated, truncated, info = self.finish_step()
            self._show()
        return obs, reward, terminated, truncated, info

    def render(self) -> str | NDArray[np.uint8] | None:
        """Render the episode in ``render_mode``: its transcript, an image of the screen or of the transcript, or None.

        With ``human``, it shows the image in a window and returns None, as each ``reset`` and ``step`` do.
        """
        rendered = self._episode.render()
        if self._window is None:
            return rendered
        assert isinstance(rendered, np.ndarray)
        self._window.show(rendered)
        return None

    def show(self) -> ObservationView:
        """Return what notebooks show of the last observation: streams, exit code, screen. Observations are plain dicts.

        Raises:
            gymnasium.error.ResetNeeded: If there is none.
            gymnasium.error.ClosedEnvironmentError: If the environment is closed.
        """
        return self._episode.show()

    def windows(self) -> list[Window]:
        """Return the visible windows, the lowest first.

        Raises:
            ConfigurationError: If there is no screen.
            gymnasium.error.ResetNeeded: If ``reset`` was not called before.
            TransportError: If the session is lost.
        """
        return self._request_screen(WINDOWS_ONLY).windows

    def capture(self, region: Region = None) -> NDArray[np.uint8]:
        """Return the current screen: uint8, shape (height, width, 3).

        Args:
            region: A rectangle, as ``Rectangle`` or (x, y, width, height), black outside of the screen; or a window, as
                ``Window`` or its id; the whole screen if None.

        Raises:
            ConfigurationError: If there is no screen, or the region is invalid.
            ProtocolError: If the window does not exist.
            gymnasium.error.ResetNeeded: If ``reset`` was not called before.
            TransportError: If the session is lost.
        """
        return decode_pixels(self._request_screen(screen_request(region)).screenshot)

    def widgets(self) -> list[Widget]:
        """Return the visible widgets of graphical programs, in tree order: a parent precedes its children.

        Tk, Qt and GTK report their widgets if they run in the interpreter itself. Windows of other programs are single widgets.
        A program that is busy for more than two seconds reports none.

        Raises:
            ConfigurationError: If there is no screen.
            gymnasium.error.ResetNeeded: If ``reset`` was not called before.
            TransportError: If the session is lost.
        """
        return self._request_screen(WIDGETS_ONLY).widgets

    def marked_screen(self) -> MarkedScreen:
        """Return the current screen with numbered boxes around the widgets that can be used; see ``mark_widgets``.

        Raises:
            ConfigurationError: If there is no screen.
            gymnasium.error.ResetNeeded: If ``reset`` was not called before.
            TransportError: If the session is lost.
        """
        screen = self._request_screen(WIDGETS_AND_SCREEN)
        from coding_gym.media.marks import mark_widgets

        return mark_widgets(decode_pixels(screen.screenshot), screen.widgets)

    @property
    def processes(self) -> Processes:
        """The processes that run beside the interpreter; they end with the episode.

        Raises:
            gymnasium.error.ResetNeeded: If ``reset`` was not called before.
            TransportError: If the session is lost.
        """
        return self._open_session().http.processes

    @property
    def files(self) -> Files:
        """The files of the working directory.

        Raises:
            gymnasium.error.ResetNeeded: If ``reset`` was not called before.
            TransportError: If the session is lost.
        """
        return self._open_session().http.files

    @property
    def doors(self) -> Doors:
        """The ports of the session that lead to the trainer's side, with what has passed through them."""
        return self._doors

    def open_door(self, port: int, target: DoorTarget) -> Door:
        """Open a further port of the session that leads to the trainer's side, in this episode and those after it.

        Args:
            port: The port.
            target: Where it leads to; see ``EnvOptions.doors``. A door that is open already leads there from now on.

        Raises:
            ConfigurationError: If an argument is invalid, or the session cannot have the door.
            ConcurrentUseError: If another thread is in a call of this environment.
            gymnasium.error.ClosedEnvironmentError: If the environment is closed.
            TransportError: If the session is lost.
            ProtocolError: If the server refuses.
        """
        with self.exclusive_use:
            self._episode.check_open()
            if self.has_lost_session:
                message = "the session is gone"
                raise TransportError(message)
            with self._doors.adding(port, target) as door:
                if self._session is not None:
                    self._doors.connect(self._session.address, self._session.id)
                    self._session.http.open_door(port)
        return door

    def exec(self, command: Command, **options: Unpack[RunKwargs]) -> ProcessResult:
        """Run a process to its end, beside the interpreter and in its directory; see ``Processes.run``.

        Args:
            command: A program and its arguments, or a command for the shell.
            options: ``stdin=``, ``cwd=``, ``env=``, ``timeout=``, ``user=``, ``max_output_bytes=``, ``keep=``.

        Raises:
            ConfigurationError: If an argument is invalid.
            gymnasium.error.ResetNeeded: If ``reset`` was not called before.
            TransportError: If the session is lost.
            ProtocolError: If the server refuses.
        """
        return self.processes.run(command, **options)

    def clone_state(self, *, replay: bool | None = None) -> Snapshot:
        """Return a snapshot of the episode, which continues unchanged: the interpreter's state and the session's files.

        Args:
            replay: Whether to take only a record of the episode, which ``restore_state`` replays: for states that cannot be
                copied, and for every backend. It does not involve the sandbox. By default, False; True in a
                ``CodingShellEnv``.

        Raises:
            SnapshotError: If a copy would not be faithful; ``reasons`` says why: threads, child processes, sockets ...
            ConcurrentUseError: If another thread is in a call of this environment.
            gymnasium.error.ResetNeeded: If ``reset`` was not called before.
            gymnasium.error.ClosedEnvironmentError: If the environment is closed.
            TransportError: If the session is lost.
        """
        with self.exclusive_use:
            if self._clones_by_replay if replay is None else replay:
                return self._record()
            session = self._open_session()
            with self._failing_with_connection():
                return Snapshot(session, session.clone(), self._episode.save())

    def restore_state(
        self, snapshot: Snapshot, *, seed: int | None = None, replay: bool = False, release: bool = False
    ) -> tuple[Obs, Info]:
        """Continue from a snapshot of this environment or another one in its sandbox. It can be restored any number of times.

        Args:
            snapshot: The snapshot.
            seed: Seeds ``random`` and ``numpy.random`` of the interpreter, which otherwise continue from their state.
            replay: Whether to begin a new episode with the same seed, options and files, and to run the recorded actions again,
                which works in any sandbox, for any backend, and when the snapshot is lost. A snapshot that is only a record is
                always replayed.
            release: Whether to release the snapshot, which then continues itself instead of a copy: the fastest way back.

        Returns:
            An observation without output, and the info. After a replay, ``info["replay"]`` has the number of ``steps``, and
            the ``differences`` of their outputs: dicts of ``step``, ``field``, ``expected`` and ``found``.

        Raises:
            SnapshotError: If the snapshot is lost, was released, or is one that only ``replay`` can restore.
            ConfigurationError: If there are both a seed and a replay.
            TransportError: If the session is lost.
        """
        check_snapshot(snapshot)
        with self.exclusive_use:
            self._episode.check_open()
            if self._must_replay(snapshot, seed=seed, replay=replay):
                obs, info = self._replay(snapshot, release=release)
            else:
                session = self._open_session()
                with self._failing_with_connection():
                    session.ask_restore(snapshot.id, seed=seed, release=release)
                    data = session.wait(timeout=SNAPSHOT_TIMEOUT)
                obs, info = self._finish_restore(snapshot, data, release=release)
        return obs, info

    def fork(self, n: int, seeds: Sequence[int | None] | None = None) -> list[Self]:
        """Return environments that continue from the present state, each in its own session; this one continues, too.

        They run in the same sandbox, which exists until the last of them is closed. Their files have the same paths, but a fork
        can neither access the files nor signal the processes of another session. A ``reset`` of one starts another sandbox.

        Args:
            n: Number of environments, 1 to 64.
            seeds: A seed of ``random`` and ``numpy.random`` of the interpreter for each of them, or None for one whose
                generators continue from their state. By default distinct seeds are drawn from ``np_random``.

        Raises:
            SnapshotError: If a copy would not be faithful, or the sandbox permits no further fork; ``reasons`` says why.
            ConfigurationError: If the number of environments or of seeds is invalid.
            ConcurrentUseError: If another thread is in a call of this environment.
            gymnasium.error.ResetNeeded: If ``reset`` was not called before.
            gymnasium.error.ClosedEnvironmentError: If the environment is closed.
            TransportError: If the session is lost.

        Example:
            >>> children = env.unwrapped.fork(4)  # doctest: +SKIP
            >>> results = [child.step("print(random.random())") for child in children]  # doctest: +SKIP
        """
        with self.exclusive_use:
            self._episode.check_begun()
            chosen = self._choose_seeds(n, seeds)
            if self._clones_by_replay:
                return self._fork_by_replay(n, seeds or ())
            return self._fork_by_copy(n, chosen)

    def _show(self) -> None:
        if self._window is not None:
            self.render()

    def close(self) -> None:
        """End the session and remove the sandbox, or return it to the pool, unless forks still use it. Idempotent.

        All other methods then raise ``gymnasium.error.ClosedEnvironmentError``.
        """
        self._episode.close()
        if self._window is not None:
            self._window.close()
        self._leave_sandbox()

    def _leave_sandbox(self) -> None:
        self._drop_session()
        if self._slot is not None and self._owns_slot:
            self._slot.close()
        self._slot, self._is_fork = None, False

    def __del__(self) -> None:
        # A partially constructed object lacks attributes; an interpreter that shuts down lacks modules. Not close(): EzPickle
        # gives an unpickled environment the attributes of a temporary one.
        with contextlib.suppress(Exception):
            self._leave_sandbox()

    # The two halves of reset and step: a vector environment begins all of them before it waits for the first.

    def use_slot(self, slot: ManagedSandbox) -> None:
        """Run in a sandbox that the caller owns, in episodes with its image; ``close`` does not remove it."""
        self._slot, self._owns_slot, self._shared_slot = slot, False, slot
        self._episode.reports_loss = slot.may_lose_servers

    @property
    def uses_shared_slot(self) -> bool:
        """Whether it runs in the sandbox that ``use_slot`` was called with."""
        return self._slot is not None and self._slot is self._shared_slot

    # For calls in a thread that another one ends: asynchronous environments.

    def begin_unless_begun(self) -> tuple[Obs, Info] | bool:
        """Begin an episode with the default options; return True if there is one already."""
        self._episode.check_open()
        return True if self._session is not None else self.reset()

    def begin_cancelable(self, begin: Callable[[], _T], canceled: threading.Event) -> _T:
        """Begin an episode, and leave the sandbox if that fails or is canceled, unless there was an episode before.

        Args:
            begin: Begins it.
            canceled: Is set if that is no longer wanted; see ``stop_waiting``.

        Raises:
            SandboxStartError: If it is while the environment waits for a sandbox.
        """
        had_session = self._session is not None
        self._canceled = canceled
        is_wanted = False
        try:
            result = begin()
            is_wanted = not canceled.is_set()
            return result
        except CancelledError:
            raise SandboxStartError(CLOSED_DURING_RESET) from None
        finally:
            self._canceled = None
            if not is_wanted and not (had_session and self._session is not None):
                self._leave_sandbox()

    def stop_waiting(self) -> None:
        """Let a ``reset`` fail that waits for a slot of a pool in another thread."""
        slot = self._slot
        if slot is not None:
            slot.stop_waiting()

    def refuse_use(self) -> None:
        """Refuse all calls but ``close`` from now on."""
        self._episode.close()

    def place(self, group: Group, index: int) -> None:
        """Set the place in a vector environment, for reports."""
        self._episode.reports.place(group, index)

    def check_reset(self, options: dict[str, Any] | None = None) -> None:
        """Raise if ``reset`` would refuse these options.

        Raises:
            ConfigurationError: If one is invalid.
            gymnasium.error.ClosedEnvironmentError: If the environment is closed.
        """
        self._episode.check_reset(options)
        self._check_image((options or {}).get("image"))

    def check_action(self, action: object) -> None:
        """Raise if ``action`` cannot be run.

        Raises:
            InvalidActionError: If it is not in the action space.
            gymnasium.error.ResetNeeded: If ``reset`` was not called before.
        """
        self._episode.check_action(action)

    def begin_reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Request a new episode, starting a sandbox if necessary. After a refused option, the last episode continues."""
        self.check_reset(options)
        gym.Env.reset(self, seed=seed)
        self._failure = None
        self._doors.begin_episode()
        self._episode.egress, self._egress_count = [], 0
        request = self._episode.begin(seed=seed, np_random=self.np_random, options=options)
        request.doors = sorted(self._doors)
        try:
            self._request_episode(request)
        except BaseException as error:
            self._episode.reports.failed(error)
            raise

    def finish_reset(self) -> tuple[Obs, Info]:
        """Wait for the response to ``begin_reset``."""
        try:
            return self._wait_for_reset()
        except BaseException as error:
            self._episode.reports.failed(error)
            raise

    def _wait_for_reset(self) -> tuple[Obs, Info]:
        attempts = ResetRetryPolicy()
        while True:
            try:
                assert self._session is not None
                return self._episode.finish_begin(self._session.wait(timeout=self._reset_timeout))
            except (CapacityError, TransportError, ProtocolError) as error:
                self._drop_session()
                if not (isinstance(error, CapacityError) and self._slot is not None and self._slot.leave_full()):
                    time.sleep(attempts.pause_after(error))
            except BaseException:
                self._drop_session()
                raise
            self._reconnect()

    def begin_step(self, action: str) -> None:
        """Send ``action``, which has passed ``check_action``."""
        request = self._episode.begin_step(action)
        if self._session is None:
            self._failure = self._failure or "the session is gone"
            return
        self._doors.step = self._episode.step_count + 1
        try:
            self._doors.connect(self._session.address, self._session.id)
            self._session.ask_step(request)
        except TransportError as error:
            self._fail(error)

    def finish_step(self, canceled: threading.Event | None = None) -> StepResult:
        """Wait for the response to ``begin_step``.

        Args:
            canceled: Set once nobody wants the response any more: the step then ends as after Ctrl-C.
        """
        try:
            response = self._wait_for_step()
            if canceled is not None and canceled.is_set():
                raise asyncio.CancelledError
            self._add_egress(response.observation)
            return self._episode.finish_step(response)
        except BaseException as error:
            self._episode.reports.failed(error)
            raise

    def _add_egress(self, observation: Observation) -> None:
        """Add to a step what its programs have asked the network's proxy for: refusals to stderr, all to the info."""
        network = self.settings.network
        if network is None:
            return
        log = self._doors[network.port].log
        exchanges, self._egress_count = log.since(self._egress_count), log.total
        self._episode.egress = [
            {"method": exchange.method, "target": exchange.path, "refused": exchange.refusal} for exchange in exchanges
        ]
        for exchange in exchanges[:_MAX_REFUSALS]:
            if exchange.refusal is not None:
                start = "" if not observation.stderr or observation.stderr.endswith("\n") else "\n"
                observation.stderr += f"{start}[egress: {exchange.refusal}]\n"

    @property
    def has_lost_session(self) -> bool:
        """Whether there is a session whose connection has ended, as after the death of its sandbox."""
        return self._session is not None and self._session.is_lost

    @property
    def has_failed(self) -> bool:
        """Whether the episode has ended with outcome ``infrastructure``, and none has begun since."""
        return self._failure is not None

    def lost_step(self) -> StepResult:
        """Return the result of a step in a lost sandbox, without an action."""
        self._drop_session()
        self._failure = self._failure or "the session is gone"
        self.begin_step("")
        return self.finish_step()

    def abort(self) -> None:
        """End the session from another thread: a step in progress ends with outcome ``infrastructure``, a reset is repeated."""
        session = self._session
        if session is not None:
            session.abort()

    def interrupt(self) -> None:
        """Interrupt the running step as Ctrl-C does, from any thread: it ends, and keeps the variables if the code stops.

        Has no effect if no step is running.
        """
        session = self._session
        if session is not None:
            with contextlib.suppress(TransportError):
                session.interrupt()

    def _wait_for_step(self) -> ObservationData:
        if self._session is not None:
            try:
                return self._session.wait(timeout=self._episode.response_timeout)
            except (TransportError, ProtocolError) as error:
                refuse_action(error)
                self._fail(error)
            except BaseException:
                self._finish_interrupted()
                raise
        return infrastructure_failure(self._failure or "the session is gone")

    def _finish_interrupted(self) -> None:
        """Interrupt the step in the sandbox, too, and take its response, which keeps the variables."""
        self.interrupt()
        try:
            if self._session is not None:
                self._session.wait(timeout=_INTERRUPT_TIMEOUT)
        except ProtocolError:
            # It answers, as to an invalid action.
            return
        except BaseException as error:
            self._fail(error)
            if not isinstance(error, TransportError):
                raise

    def _request_episode(self, request: ResetOptions) -> None:
        """Request an episode, of the session if there is one, which keeps its snapshots."""
        if self._slot is not None and (self._is_fork or self._slot.config.image != self._wanted_config().image):
            if self._pool is not None and not self._owns_slot:
                # Another environment may lease the place until there is an episode with this image again.
                self._slot.close()
            self._leave_sandbox()
        if self._session is not None and self._slot is not None and self._slot.begin_episode():
            with contextlib.suppress(TransportError):
                self._doors.connect(self._session.address, self._session.id)
                self._session.ask_reset(request)
                self._reset_timeout = RESET_TIMEOUT
                return
        self._reconnect()

    def _reconnect(self) -> None:
        """Open a session, in a new sandbox if necessary, and request the episode."""
        self._drop_session()
        if self._slot is None:
            config, shared = self._wanted_config(), self._shared_slot
            if shared is not None and shared.config.image == config.image:
                self.use_slot(shared)
            else:
                self._slot, self._owns_slot = managed_sandbox(self._pool, config), True
                self._episode.reports_loss = self._slot.may_lose_servers
        assert self._slot is not None
        self.reporter.waiting()
        self._session = self._slot.connect(canceled=self._canceled)
        self.reporter.resetting()
        self._doors.connect(self._session.address, self._session.id)
        assert self._episode.options is not None
        self._session.ask_reset(self._episode.options)
        self._reset_timeout = FIRST_RESET_TIMEOUT

    def _wanted_config(self) -> SandboxConfig:
        """Return the configuration of the sandbox for this episode."""
        if self._episode.image is None:
            return self.config
        config = replace(self.config, image=self._episode.image)
        if self._pool is not None or self._shared_slot is None:
            return config
        # The sandbox is not shared with other environments of a vector.
        return replace(config, sessions=self.sessions_per_env)

    def _check_image(self, image: Any) -> None:
        """Raise if an episode cannot have an image.

        Raises:
            ConfigurationError: If the provider has no images.
        """
        if image is not None and self._pool is not None:
            self._pool.check_image(image)
        elif image is not None:
            replace(self.config, image=image)

    def _fail(self, error: BaseException) -> None:
        self._failure = str(error) or type(error).__name__
        self._drop_session()

    def _drop_session(self) -> None:
        self._doors.disconnect()
        if self._session is not None:
            self._session.close()
            self._session = None

    def _open_session(self) -> Session:
        self._episode.check_begun()
        if self._session is None:
            raise TransportError(self._failure or "the session is gone")
        return self._session

    def _request_screen(self, options: ScreenRequestOptions) -> Screen:
        self._episode.check_screen_available()
        with self.exclusive_use:
            session = self._open_session()
            try:
                return session.request_screen(options, timeout=SCREEN_TIMEOUT)
            except TransportError as error:
                self._fail(error)
                raise

    # Snapshots and forks.

    @contextlib.contextmanager
    def _failing_with_connection(self) -> Iterator[None]:
        """Give up the session if its connection fails."""
        try:
            yield
        except TransportError as error:
            self._fail(error)
            raise

    def _record(self) -> Snapshot:
        """Return a snapshot that is only a record of the episode."""
        self._episode.check_begun()
        return Snapshot.of_record(self._episode.save())

    def _must_replay(self, snapshot: Snapshot, *, seed: int | None, replay: bool) -> bool:
        """Return whether a snapshot must be replayed.

        Raises:
            SnapshotError: If it was released, and ``replay`` is False.
            ConfigurationError: If there are both a seed and a replay.
        """
        if not replay:
            snapshot.check_usable()
            if not snapshot.is_record:
                return False
        check_seed(seed)
        return True

    def _load(self, episode: Mapping[str, Any]) -> None:
        """Continue from a saved state of the episode."""
        self._episode.load(episode)

    def _finish_restore(self, snapshot: Snapshot, data: ObservationData, *, release: bool) -> tuple[Obs, Info]:
        """Continue from a snapshot that the session has restored; return the observation and the info for its response."""
        if release:
            snapshot.consume()
        self._load(snapshot.episode)
        return self._episode.finish_begin(data)

    def _begin_replay(self, snapshot: Snapshot) -> tuple[ResetOptions, list[RecordedStep]]:
        """Go back to the beginning of a snapshot's episode; return the request for it, and the steps to run then."""
        self._episode.load({**snapshot.episode, "_history": [], "_turns": []})
        assert self._episode.options is not None
        return self._episode.options, snapshot.episode["_history"]

    def _finish_replay(self, snapshot: Snapshot, report: ReplayReport, info: Info, *, release: bool) -> None:
        """Continue from a snapshot whose steps have been run, and add the report to the info."""
        self._load(snapshot.episode)
        info["replay"] = report.as_info()
        if release:
            snapshot.release()

    def _choose_seeds(self, n: int, seeds: Sequence[int | None] | None) -> list[int | None]:
        """Return the seed of each fork, None for one whose generators continue from their state.

        Args:
            n: Number of forks.
            seeds: The seeds, or None to draw distinct ones from ``np_random``.

        Raises:
            ConfigurationError: If the number of forks or of seeds is invalid.
        """
        if check_count("n", n, 1) > MAX_FORKS:
            message = f"Expected at most {MAX_FORKS} forks, got {n}"
            raise ConfigurationError(message)
        if seeds is None:
            drawn = self.np_random.choice(_MAX_FORK_SEED, size=n, replace=False, shuffle=False)
            return [int(seed) for seed in drawn]
        found: object = seeds
        if not isinstance(found, Sequence) or len(found) != n:
            message = f"Expected {n} seeds, one for each fork, got {seeds!r:.200}"
            raise ConfigurationError(message)
        return list(seeds)

    def _finish_fork_of(self, origin: Self, data: ObservationData, seed: int | None) -> None:
        """Take over the state of another environment, which the session has restored."""
        self._load(origin._episode.save())
        self._episode.finish_begin(data)
        self.np_random = copy.deepcopy(origin.np_random) if seed is None else seeding.np_random(seed)[0]

    def _fork_by_copy(self, n: int, chosen: Sequence[int | None]) -> list[Self]:
        session = self._open_session()
        with self._failing_with_connection():
            tickets = session.fork(n)
        forks: list[Self] = []
        try:
            for ticket, seed in zip(tickets, chosen, strict=True):
                fork = self._make_alike()
                forks.append(fork)
                fork._begin_fork(self, ticket, seed)
            for fork, seed in zip(forks, chosen, strict=True):
                assert fork._session is not None
                fork._finish_fork_of(self, fork._session.wait(timeout=SNAPSHOT_TIMEOUT), seed)
        except BaseException:
            for fork in forks:
                fork.close()
            for ticket in tickets:
                session.release(ticket)
            raise
        return forks

    def _fork_by_replay(self, n: int, seeds: Sequence[int | None]) -> list[Self]:
        for seed in seeds:
            check_seed(seed)
        snapshot = self.clone_state()
        forks: list[Self] = []
        try:
            for _ in range(n):
                forks.append(self._make_alike())
                forks[-1].restore_state(snapshot)
        except BaseException:
            for fork in forks:
                fork.close()
            raise
        return forks

    def _make_alike(self) -> Self:
        """Return an environment with the same options, before its first reset."""
        alike = type(self)(*self._ezpickle_args, **self._ezpickle_kwargs)
        alike.spec = self.spec
        return alike

    def _begin_fork(self, origin: Self, ticket: str, seed: int | None) -> None:
        """Request the state of another environment."""
        assert origin._slot is not None
        assert origin._slot.sandbox is not None
        self._slot, self._owns_slot = origin._slot.share() if origin._owns_slot else origin._slot, origin._owns_slot
        self._is_fork = True
        self._session = origin._slot.sandbox.connect(fork_of=ticket)
        for port, target in origin.doors.targets.items():
            self._doors.add(port, target)
        self._doors.connect(self._session.address, self._session.id)
        self._session.ask_restore(ticket, seed=seed)

    def _replay(self, snapshot: Snapshot, *, release: bool) -> tuple[Obs, Info]:
        """Begin an episode, and run the actions of a snapshot's."""
        self._failure = None
        request, steps = self._begin_replay(snapshot)
        self._request_episode(request)
        obs, info = self.finish_reset()
        report = ReplayReport()
        for recorded in steps:
            assert self._session is not None
            self._session.ask_step(recorded.request)
            report.add(recorded, self._wait_for_step().observation)
        self._finish_replay(snapshot, report, info, release=release)
        return obs, info
