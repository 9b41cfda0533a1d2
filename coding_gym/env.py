"""``CodingEnv-v0``: an agent writes code, a sandbox runs it, the agent sees what came of it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
from gymnasium.utils import EzPickle
from numpy.typing import NDArray

from coding_gym.config import SandboxConfig
from coding_gym.errors import CapacityError, ConfigurationError, InvalidActionError, ProtocolError, TransportError
from coding_gym.frames import black_frames, is_shared_black, shared_black
from coding_gym.providers import Sandbox, SandboxSlot
from coding_gym.rendering import DEFAULT_FRAME_SIZE, Turn, draw_transcript, format_transcript
from coding_gym.spaces import action_space, observation_space
from coding_gym_server.protocol import (
    INFRASTRUCTURE_EXIT_CODE,
    Metadata,
    Observation,
    ObservationData,
    Outcome,
    ResetOptions,
)

if TYPE_CHECKING:
    from coding_gym.client.session import Session

__all__ = ["CodingEnv", "Timing"]

_ANSWER_SLACK = 15.0
"""Seconds beyond the step's own limit after which a server that has not answered is taken for dead."""

_RESET_TIMEOUT = 60.0
_RESET_ATTEMPTS = 2
_PLACE_FREE_WITHIN = 2.0
_RETRY_SECONDS = 0.02
_MAX_DRAWN_SEED = 2**32
_MAX_SEED = 2**64

Obs = dict[str, Any]
Info = dict[str, Any]
StepResult = tuple[Obs, float, bool, bool, Info]


@dataclass(frozen=True)
class Timing:
    """How long the last reset or step took; not in ``info``, which is the same for the same seed and actions.

    Attributes:
        seconds: Wall-clock time from the request to its answer.
    """

    seconds: float


class CodingEnv(gym.Env[Obs, str], EzPickle):
    """Runs each action, a piece of Python, in one persistent interpreter in a sandbox.

    The sandbox starts at the first ``reset`` and goes at ``close``. Whatever the code does, a crash of the interpreter
    included, is an observation. Only faults of the sandbox itself are not: such a step ends the episode with
    ``truncated=True`` and ``info["outcome"] == "infrastructure"``, and the next ``reset`` starts a new sandbox.

    Action:
        ``CodeText(max_code_chars)``: source text.

    Observation:
        A dict of ``stdout`` and ``stderr`` (``CodeText``, cut in the middle at ``max_output_chars``), ``exit_code``
        (``Discrete(256)``: 0 ok, 1 exception, n of ``sys.exit(n)``, 124 timeout, 128 + signal) and ``screenshot`` (uint8, shape
        (height, width, 3), black while nothing was drawn).

    Reward:
        Always 0: wrap the environment to shape one.

    Info:
        ``outcome`` (``ok``, ``error``, ``timeout``, ``memory``, ``killed`` or ``infrastructure``) and ``state_lost`` (whether
        the namespace is gone).

    Args:
        render_mode: ``ansi`` (the transcript of the episode), ``rgb_array`` (the same as a picture of the screen's size) or
            None.
        screen: Width and height of the screenshot in pixels; None leaves it out of the observation.
        step_timeout: Wall-clock limit of a step in seconds.
        cpu_timeout: CPU-time limit of a step in seconds, summed over all its processes; None for no limit.
        max_output_chars: The most code points of stdout, and of stderr.
        max_code_chars: The most code points of an action.
        show_value: Whether the value of a last expression is shown, as a REPL does.
        config: The sandbox, as a ``SandboxConfig`` or a mapping of its fields.
        sandbox_options: Fields of ``SandboxConfig``, instead of ``config``: ``provider="local"``, ``mem="1g"`` ...

    Raises:
        ConfigurationError: A setting cannot be.

    Example:
        >>> env = gym.make("CodingEnv-v0", provider="auto", step_timeout=5)
        >>> observation, info = env.reset(seed=1)  # doctest: +SKIP
        >>> observation, *_ = env.step("print('hello')")  # doctest: +SKIP
    """

    metadata = {  # noqa: RUF012 - as Gymnasium declares it
        "render_modes": ["ansi", "rgb_array"],
        "render_fps": 4,
    }

    def __init__(
        self,
        *,
        render_mode: str | None = None,
        screen: tuple[int, int] | None = (640, 480),
        step_timeout: float = 30.0,
        cpu_timeout: float | None = None,
        max_output_chars: int = 16_384,
        max_code_chars: int = 100_000,
        show_value: bool = True,
        config: SandboxConfig | Mapping[str, Any] | None = None,
        **sandbox_options: Any,
    ) -> None:
        EzPickle.__init__(
            self,
            render_mode=render_mode,
            screen=screen,
            step_timeout=step_timeout,
            cpu_timeout=cpu_timeout,
            max_output_chars=max_output_chars,
            max_code_chars=max_code_chars,
            show_value=show_value,
            config=config,
            **sandbox_options,
        )
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            message = f"Expected render_mode= to be one of {self.metadata['render_modes']} or None, got {render_mode!r}"
            raise ConfigurationError(message)
        self.render_mode = render_mode
        self.screen = _check_screen(screen)
        self.step_timeout = _check_seconds("step_timeout", step_timeout)
        self.cpu_timeout = None if cpu_timeout is None else _check_seconds("cpu_timeout", cpu_timeout)
        self.max_output_chars = check_count("max_output_chars", max_output_chars, 256)
        self.show_value = show_value
        self.config = sandbox_config(config, sandbox_options)
        self.action_space = action_space(check_count("max_code_chars", max_code_chars, 1))
        self.observation_space = observation_space(self.max_output_chars, self.screen)
        self.last_timing: Timing | None = None
        self._slot: SandboxSlot | None = None
        self._owns_slot = True
        self._session: Session | None = None
        self._fault: str | None = None
        self._options: ResetOptions | None = None
        self._pending_code = ""
        self._asked_at = 0.0
        self._turns: list[Turn] = []

    @property
    def sandbox(self) -> Sandbox | None:
        """The sandbox, None before the first ``reset`` and after ``close``."""
        return self._slot.sandbox if self._slot is not None else None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Obs, Info]:
        """Begin an episode: a new interpreter in an empty workspace.

        Args:
            seed: Seeds ``random`` and ``numpy.random`` of the interpreter. Without one the seed of the episode is drawn from
                ``np_random``, so that a run that was seeded once repeats itself.
            options: ``episode_id``: the name of the episode in the server's state.

        Raises:
            ProviderError: A sandbox cannot be had.
            CapacityError: The server has no free session.
        """
        self.begin_reset(seed=seed, options=options)
        obs, info = self.finish_reset()
        return own_screenshot(obs), info

    def step(self, action: str) -> StepResult:
        """Run ``action``.

        Raises:
            InvalidActionError: It is not in the action space; nothing was run.
            gymnasium.error.ResetNeeded: There was no ``reset`` before.
        """
        self.check_action(action)
        self.begin_step(action)
        obs, reward, terminated, truncated, info = self.finish_step()
        return own_screenshot(obs), reward, terminated, truncated, info

    def render(self) -> str | NDArray[np.uint8] | None:
        """Return the episode as ``render_mode`` says: its transcript, a picture of it, or None."""
        if self.render_mode == "ansi":
            return format_transcript(self._turns)
        if self.render_mode == "rgb_array":
            return draw_transcript(self._turns, self.screen or DEFAULT_FRAME_SIZE)
        return None

    def close(self) -> None:
        """End the session and remove the sandbox; harmless when closed already."""
        self._drop_session()
        if self._slot is not None and self._owns_slot:
            self._slot.close()
        self._slot = None

    def __del__(self) -> None:
        # A half-built object has no attributes, an interpreter on its way out no modules.
        with contextlib.suppress(Exception):
            self.close()

    # The two halves of reset and step: a vector environment begins them all before it finishes the first.

    def use_slot(self, slot: SandboxSlot) -> None:
        """Run in a sandbox that somebody else owns; ``close`` leaves it alone."""
        self._slot, self._owns_slot = slot, False

    def check_action(self, action: object) -> None:
        """Raise if ``action`` cannot be run.

        Raises:
            InvalidActionError: It is not in the action space.
            gymnasium.error.ResetNeeded: There was no ``reset`` before.
        """
        if self._options is None:
            message = "Cannot call env.step() before calling env.reset()"
            raise gym.error.ResetNeeded(message)
        if action in self.action_space:
            return
        if not isinstance(action, str):
            message = f"Expected an action to be source text (str), got {type(action).__name__}"
        elif len(action) > self.action_space.max_length:  # type: ignore[attr-defined]
            limit = self.action_space.max_length  # type: ignore[attr-defined]
            message = f"Expected an action of at most {limit} characters, got {len(action)}; raise max_code_chars="
        else:
            message = "Expected an action that UTF-8 can encode, got one with lone surrogates: decode it with errors='replace'"
        raise InvalidActionError(message)

    def begin_reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Ask for a new episode, starting a sandbox if there is none."""
        gym.Env.reset(self, seed=seed)
        self._options = ResetOptions(
            seed=int(self.np_random.integers(_MAX_DRAWN_SEED)) if seed is None else int(seed) % _MAX_SEED,
            episode_id=(options or {}).get("episode_id"),
            step_timeout=self.step_timeout,
            cpu_timeout=self.cpu_timeout,
            max_output_chars=self.max_output_chars,
            show_value=self.show_value,
        )
        self._turns = []
        self._fault = None
        self._asked_at = time.perf_counter()
        if self._session is not None:
            with contextlib.suppress(TransportError):
                self._session.ask_reset(self._options)
                return
        self._reconnect()

    def finish_reset(self) -> tuple[Obs, Info]:
        """Wait for the answer to ``begin_reset``; a black screenshot is shared and read-only."""
        deadline = time.monotonic() + _PLACE_FREE_WITHIN
        attempts = 1
        while True:
            try:
                assert self._session is not None
                observation = self._session.wait(timeout=_RESET_TIMEOUT).observation
            except CapacityError:
                # The place may still be that of our own last session, which has just been dropped.
                if time.monotonic() > deadline:
                    self._drop_session()
                    raise
                time.sleep(_RETRY_SECONDS)
            except (TransportError, ProtocolError):
                # The sandbox died while nobody looked, or has no room for another process: once more, in a new one if need be.
                if attempts == _RESET_ATTEMPTS:
                    self._drop_session()
                    raise
                attempts += 1
            except BaseException:
                self._drop_session()
                raise
            else:
                self.last_timing = Timing(time.perf_counter() - self._asked_at)
                return self._observe(observation), _info(observation.metadata)
            self._reconnect()

    def begin_step(self, action: str) -> None:
        """Ask for ``action`` to be run; it has passed ``check_action``."""
        self._pending_code = action
        self._asked_at = time.perf_counter()
        if self._session is None:
            self._fault = self._fault or "the session is gone"
            return
        try:
            self._session.ask_step(str(action))
        except TransportError as error:
            self._fail(error)

    def finish_step(self) -> StepResult:
        """Wait for the answer to ``begin_step``; a black screenshot is shared and read-only."""
        data = self._wait_for_step()
        observation = data.observation
        self.last_timing = Timing(time.perf_counter() - self._asked_at)
        if self.render_mode is not None:
            self._turns.append(Turn(self._pending_code, observation.stdout, observation.stderr, observation.exit_code))
        truncated = observation.metadata.outcome is Outcome.INFRASTRUCTURE
        return self._observe(observation), 0.0, False, truncated, _info(observation.metadata)

    def _wait_for_step(self) -> ObservationData:
        if self._session is not None:
            try:
                return self._session.wait(timeout=self.step_timeout + _ANSWER_SLACK)
            except (TransportError, ProtocolError) as error:
                self._fail(error)
            except BaseException:
                # Interrupted: the answer will come when nobody expects it.
                self._drop_session()
                raise
        return _infrastructure_failure(self._fault or "the session is gone")

    def _observe(self, observation: Observation) -> Obs:
        obs: Obs = {
            "stdout": observation.stdout,
            "stderr": observation.stderr,
            "exit_code": np.int64(observation.exit_code),
        }
        if self.screen is not None:
            width, height = self.screen
            obs["screenshot"] = shared_black(height, width)
        return obs

    def _reconnect(self) -> None:
        """Open a session, in a new sandbox if need be, and ask for the episode."""
        self._drop_session()
        if self._slot is None:
            self._slot, self._owns_slot = SandboxSlot(self.config), True
        self._session = self._slot.connect()
        assert self._options is not None
        self._session.ask_reset(self._options)

    def _fail(self, error: Exception) -> None:
        self._fault = str(error)
        self._drop_session()

    def _drop_session(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None


def sandbox_config(config: SandboxConfig | Mapping[str, Any] | None, sandbox_options: Mapping[str, Any]) -> SandboxConfig:
    """Return the one configuration that an environment's arguments mean.

    Raises:
        ConfigurationError: A setting cannot be, or both forms are used.
    """
    if config is not None and sandbox_options:
        message = f"Pass either config= or single settings, not both; got config= and {', '.join(sandbox_options)}"
        raise ConfigurationError(message)
    if isinstance(config, SandboxConfig):
        return config
    if config is not None and not isinstance(config, Mapping):
        message = f"Expected config= to be a SandboxConfig or a mapping of its fields, got {config!r}"
        raise ConfigurationError(message)
    return SandboxConfig.of(sandbox_options if config is None else config)


def own_screenshot(obs: Obs) -> Obs:
    """Give an observation a screenshot that it shares with nobody."""
    frame = obs.get("screenshot")
    if frame is not None and is_shared_black(frame):
        obs["screenshot"] = black_frames(1, *frame.shape[:2])[0]
    return obs


def _info(metadata: Metadata) -> Info:
    return {"outcome": metadata.outcome.value, "state_lost": metadata.state_lost}


def _infrastructure_failure(reason: str) -> ObservationData:
    metadata = Metadata(outcome=Outcome.INFRASTRUCTURE, state_lost=True)
    observation = Observation(
        stdout="", stderr=f"[the sandbox failed: {reason}]\n", exit_code=INFRASTRUCTURE_EXIT_CODE, metadata=metadata
    )
    return ObservationData(observation=observation, reward=0.0, done=False, metadata=metadata)


def _check_screen(screen: Any) -> tuple[int, int] | None:
    if screen is None:
        return None
    try:
        width, height = (int(side) for side in screen)
    except (TypeError, ValueError, OverflowError):
        width = height = 0
    if not (16 <= width <= 4096 and 16 <= height <= 4096):
        message = f"Expected screen= to be (width, height) of 16 to 4096 pixels each, or None, got {screen!r}"
        raise ConfigurationError(message)
    return width, height


def _check_seconds(name: str, value: Any) -> float:
    if not isinstance(value, (int, float)) or not 0 < value < float("inf"):
        message = f"Expected {name}= to be a positive number of seconds, got {value!r}"
        raise ConfigurationError(message)
    return float(value)


def check_count(name: str, value: Any, smallest: int) -> int:
    """Return ``value`` if it is a whole number of at least ``smallest``.

    Raises:
        ConfigurationError: It is not.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < smallest:
        message = f"Expected {name}= to be a whole number of at least {smallest}, got {value!r}"
        raise ConfigurationError(message)
    return value
