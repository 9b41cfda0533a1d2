"""``CodingEnv-v0``: an agent writes code, a sandbox runs it, the agent sees the outcome."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Self, Unpack

import gymnasium as gym
import numpy as np
from gymnasium.utils import EzPickle
from numpy.typing import NDArray

from coding_gym.envs.branching_access import BranchingAccess
from coding_gym.envs.episode import (
    FIRST_RESET_TIMEOUT,
    RESET_TIMEOUT,
    EpisodeState,
    Info,
    Obs,
    StepResult,
    Timing,
    infrastructure_failure,
    own_screenshot,
    refuse_action,
)
from coding_gym.envs.exclusive_use import ExclusiveUse
from coding_gym.envs.human_window import HUMAN, HumanWindow
from coding_gym.envs.options import RENDER_MODES, CodingEnvKwargs, EnvOptions, split_options
from coding_gym.envs.reset_retry import ResetRetryPolicy
from coding_gym.errors import CapacityError, ProtocolError, TransportError
from coding_gym.sandbox import ManagedSandbox, Sandbox
from coding_gym.sandbox.config import SandboxConfig
from coding_gym.sandbox.pool import SandboxPool, managed_sandbox, resolve_config
from coding_gym.telemetry import Group, SessionReporter
from coding_gym_server.protocol import ObservationData, ResetOptions

if TYPE_CHECKING:
    from coding_gym.client.session import Session

__all__ = ["CodingEnv"]


class CodingEnv(BranchingAccess, gym.Env[Obs, str], EzPickle):
    """Runs each action, a piece of Python, in one persistent interpreter in a sandbox.

    The sandbox starts at the first ``reset`` and is removed at ``close``. Everything that the code does is an observation, even
    a crash of the interpreter. Only an infrastructure error, a failure of the sandbox itself, ends the episode, with
    ``truncated=True`` and ``info["outcome"] == "infrastructure"``, and the next ``reset`` starts a new sandbox.

    Action:
        ``CodeText(max_code_chars)``: source text.

    Observation:
        A dict of ``stdout`` and ``stderr`` (``CodeText``, cut in the middle at ``max_output_chars``), ``exit_code``
        (``Discrete(256)``: 0 ok, 1 exception, n of ``sys.exit(n)``, 124 timeout, 128 + signal) and ``screenshot`` (uint8, shape
        (height, width, 3), the screen once it is stable, black without windows).

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
        self._episode = self._make_episode(env_options)
        self.action_space = self._episode.action_space
        self.observation_space = self._episode.observation_space
        self.config = resolve_config(pool, config, sandbox_options, backend=env_options.backend)
        self._pool = pool
        self._slot: ManagedSandbox | None = None
        self._owns_slot = True
        self._session: Session | None = None
        self._reset_timeout = FIRST_RESET_TIMEOUT
        self._failure: str | None = None
        self._shares_black = False
        self._is_fork = False
        self._exclusive_use = ExclusiveUse()
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
        """Reports to the observer, if there is one; see ``coding_gym.watch``."""
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
                a mapping of paths to str or bytes.

        Raises:
            ConfigurationError: If an option is invalid, or the sandbox cannot fulfill one.
            ProviderError: If no sandbox is available; with a pool, within its timeout.
            CapacityError: If the server has no free session.
            ConcurrentUseError: If another thread is in a call of this environment.
            gymnasium.error.ClosedEnvironmentError: If the environment is closed.
        """
        with self._exclusive_use:
            self.begin_reset(seed=seed, options=options)
            obs, info = self.finish_reset()
            self._show()
        return self._screenshot_for_caller(obs), info

    def step(self, action: str) -> StepResult:
        """Run ``action``.

        Raises:
            InvalidActionError: If it is not in the action space; nothing is run.
            ConcurrentUseError: If another thread is in a call of this environment.
            gymnasium.error.ResetNeeded: If ``reset`` was not called before.
            gymnasium.error.ClosedEnvironmentError: If the environment is closed.
        """
        with self._exclusive_use:
            self.check_action(action)
            self.begin_step(action)
            obs, reward, terminated, truncated, info = self.finish_step()
            self._show()
        return self._screenshot_for_caller(obs), reward, terminated, truncated, info

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
        """Run in a sandbox that the caller owns; ``close`` does not remove it."""
        self._slot, self._owns_slot = slot, False
        self._episode.reports_loss = slot.may_lose_servers

    def place(self, group: Group, index: int) -> None:
        """Set the place in a vector environment, for reports."""
        self._episode.reports.place(group, index)

    def share_black_screenshots(self) -> None:
        """Let ``reset`` and ``step`` return one read-only array whenever the screen is black.

        For callers that store many observations and modify none: they recognize it without comparing pixels.
        """
        self._shares_black = True

    def check_reset(self, options: dict[str, Any] | None = None) -> None:
        """Raise if ``reset`` would refuse these options.

        Raises:
            ConfigurationError: If one is invalid.
            gymnasium.error.ClosedEnvironmentError: If the environment is closed.
        """
        self._episode.check_reset(options)

    def check_action(self, action: object) -> None:
        """Raise if ``action`` cannot be run.

        Raises:
            InvalidActionError: If it is not in the action space.
            gymnasium.error.ResetNeeded: If ``reset`` was not called before.
        """
        self._episode.check_action(action)

    def begin_reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Request a new episode, starting a sandbox if necessary. After a refused option, the last episode goes on."""
        self._episode.check_reset(options)
        gym.Env.reset(self, seed=seed)
        self._failure = None
        request = self._episode.begin(seed=seed, np_random=self.np_random, options=options)
        try:
            self._request_episode(request)
        except BaseException as error:
            self._episode.reports.failed(error)
            raise

    def finish_reset(self) -> tuple[Obs, Info]:
        """Wait for the response to ``begin_reset``; a black screenshot is shared and read-only."""
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
        try:
            self._session.ask_step(request)
        except TransportError as error:
            self._fail(error)

    def finish_step(self) -> StepResult:
        """Wait for the response to ``begin_step``; a black screenshot is shared and read-only."""
        try:
            return self._episode.finish_step(self._wait_for_step())
        except BaseException as error:
            self._episode.reports.failed(error)
            raise

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

    def _screenshot_for_caller(self, obs: Obs) -> Obs:
        return obs if self._shares_black else own_screenshot(obs)

    def _wait_for_step(self) -> ObservationData:
        if self._session is not None:
            try:
                return self._session.wait(timeout=self._episode.response_timeout)
            except (TransportError, ProtocolError) as error:
                refuse_action(error)
                self._fail(error)
            except BaseException:
                # Interrupted: the response would be mistaken for that of a later request.
                self._drop_session()
                raise
        return infrastructure_failure(self._failure or "the session is gone")

    def _request_episode(self, request: ResetOptions) -> None:
        """Request an episode, of the session if there is one, which keeps its snapshots."""
        if self._is_fork:
            self._leave_sandbox()
        if self._session is not None and self._slot is not None and self._slot.begin_episode():
            with contextlib.suppress(TransportError):
                self._session.ask_reset(request)
                self._reset_timeout = RESET_TIMEOUT
                return
        self._reconnect()

    def _reconnect(self) -> None:
        """Open a session, in a new sandbox if necessary, and request the episode."""
        self._drop_session()
        if self._slot is None:
            self._slot, self._owns_slot = managed_sandbox(self._pool, self.config), True
            self._episode.reports_loss = self._slot.may_lose_servers
        self.reporter.waiting()
        self._session = self._slot.connect()
        self.reporter.resetting()
        assert self._episode.options is not None
        self._session.ask_reset(self._episode.options)
        self._reset_timeout = FIRST_RESET_TIMEOUT

    def _fail(self, error: Exception) -> None:
        self._failure = str(error)
        self._drop_session()

    def _drop_session(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None
