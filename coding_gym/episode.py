"""What an environment knows of its episode, whoever carries its messages: settings, spaces, observations, the transcript."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from coding_gym.errors import CapacityError, ConfigurationError, InvalidActionError, ProtocolError, TransportError
from coding_gym.frames import black_frames, is_shared_black, shared_black
from coding_gym.rendering import DEFAULT_FRAME_SIZE, Turn, draw_transcript, format_transcript
from coding_gym.results import Result
from coding_gym.spaces import action_space, observation_space
from coding_gym_server import backends
from coding_gym_server.protocol import (
    INFRASTRUCTURE_EXIT_CODE,
    ErrorCode,
    FileContent,
    Metadata,
    Observation,
    ObservationData,
    Outcome,
    ResetOptions,
)

__all__ = [
    "FIRST_RESET_TIMEOUT",
    "RENDER_MODES",
    "RESET_TIMEOUT",
    "Episode",
    "EpisodeSettings",
    "Info",
    "Obs",
    "ResetAttempts",
    "StepResult",
    "Timing",
    "check_backend",
    "check_count",
    "infrastructure_failure",
    "own_screenshot",
]

_ANSWER_SLACK = 15.0
"""Seconds beyond the step's own limit after which a server that has not answered is taken for dead."""

FIRST_RESET_TIMEOUT = 60.0
"""Seconds that a server has for the first reset of a session: it may still be importing what it was told to."""

RESET_TIMEOUT = 15.0
RENDER_MODES = ("ansi", "rgb_array")

_RESET_ATTEMPTS = 2
_PLACE_FREE_WITHIN = 2.0
_ROOM_WITHIN = 5.0
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


@dataclass(frozen=True, kw_only=True)
class EpisodeSettings:
    """What an environment is made with, but for its sandbox.

    Attributes:
        render_mode: ``ansi``, ``rgb_array`` or None.
        screen: Width and height of the screenshot in pixels; None leaves it out of the observation.
        step_timeout: Wall-clock limit of a step in seconds.
        cpu_timeout: CPU-time limit of a step in seconds, summed over all its processes; None for no limit.
        max_output_chars: The most code points of stdout, and of stderr.
        max_code_chars: The most code points of an action.
        show_value: Whether the value of a last expression is shown, as a REPL does.
        backend: What executes the code; the sandbox's default if None.
        results: Whether ``info["results"]`` has values and displays in all their formats.
    """

    render_mode: str | None = None
    screen: tuple[int, int] | None = (640, 480)
    step_timeout: float = 30.0
    cpu_timeout: float | None = None
    max_output_chars: int = 16_384
    max_code_chars: int = 100_000
    show_value: bool = True
    backend: str | None = None
    results: bool = False

    def __post_init__(self) -> None:
        if self.render_mode is not None and self.render_mode not in RENDER_MODES:
            message = f"Expected render_mode= to be one of {', '.join(RENDER_MODES)} or None, got {self.render_mode!r}"
            raise ConfigurationError(message)
        object.__setattr__(self, "screen", _check_screen(self.screen))
        object.__setattr__(self, "step_timeout", _check_seconds("step_timeout", self.step_timeout))
        if self.cpu_timeout is not None:
            object.__setattr__(self, "cpu_timeout", _check_seconds("cpu_timeout", self.cpu_timeout))
        check_count("max_output_chars", self.max_output_chars, 256)
        check_count("max_code_chars", self.max_code_chars, 1)
        if self.backend is not None:
            check_backend(self.backend)


class Episode:
    """The episode of one environment, and those that follow it.

    Args:
        settings: What applies to all of them.
    """

    def __init__(self, settings: EpisodeSettings) -> None:
        self.settings = settings
        self.action_space = action_space(settings.max_code_chars)
        self.observation_space = observation_space(settings.max_output_chars, settings.screen)
        self.options: ResetOptions | None = None
        self.last_timing: Timing | None = None
        self._turns: list[Turn] = []
        self._code = ""
        self._asked_at = 0.0

    def begin(
        self, *, seed: int | None, np_random: np.random.Generator, options: Mapping[str, Any] | None = None
    ) -> ResetOptions:
        """Begin an episode; returns what to ask the server for.

        Args:
            seed: The seed of the interpreter; drawn from ``np_random`` if None.
            np_random: The environment's generator.
            options: What ``reset`` takes.

        Raises:
            ConfigurationError: An option cannot be.
        """
        self.options = ResetOptions(
            seed=int(np_random.integers(_MAX_DRAWN_SEED)) if seed is None else int(seed) % _MAX_SEED,
            episode_id=(options or {}).get("episode_id"),
            files=_files((options or {}).get("files")),
            step_timeout=self.settings.step_timeout,
            cpu_timeout=self.settings.cpu_timeout,
            max_output_chars=self.settings.max_output_chars,
            show_value=self.settings.show_value,
            backend=self.settings.backend,
            results=self.settings.results,
        )
        self._turns = []
        self._asked_at = time.perf_counter()
        return self.options

    def begun(self, data: ObservationData) -> tuple[Obs, Info]:
        """Return what ``reset`` returns for the server's answer; a black screenshot is shared and read-only."""
        self.last_timing = Timing(time.perf_counter() - self._asked_at)
        return self._observe(data.observation), self._info(data.observation.metadata)

    def check_action(self, action: object) -> None:
        """Raise if ``action`` cannot be run.

        Raises:
            InvalidActionError: It is not in the action space.
            gymnasium.error.ResetNeeded: No episode has begun.
        """
        if self.options is None:
            message = "Cannot call env.step() before calling env.reset()"
            raise gym.error.ResetNeeded(message)
        if action in self.action_space:
            return
        limit = self.action_space.max_length
        if not isinstance(action, str):
            message = f"Expected an action to be source text (str), got {type(action).__name__}"
        elif len(action) > limit:
            message = f"Expected an action of at most {limit} characters, got {len(action)}; raise max_code_chars="
        else:
            message = "Expected an action that UTF-8 can encode, got one with lone surrogates: decode it with errors='replace'"
        raise InvalidActionError(message)

    @property
    def answer_within(self) -> float:
        """Seconds within which a server that lives has answered a step."""
        return self.settings.step_timeout + _ANSWER_SLACK

    def step_begins(self, action: str) -> None:
        """Take note of an action that is about to be sent."""
        self._code = action
        self._asked_at = time.perf_counter()

    def step_ended(self, data: ObservationData) -> StepResult:
        """Return what ``step`` returns for the server's answer; a black screenshot is shared and read-only."""
        observation = data.observation
        self.last_timing = Timing(time.perf_counter() - self._asked_at)
        if self.settings.render_mode is not None:
            self._turns.append(Turn(self._code, observation.stdout, observation.stderr, observation.exit_code))
        truncated = observation.metadata.outcome is Outcome.INFRASTRUCTURE
        return self._observe(observation), 0.0, False, truncated, self._info(observation.metadata)

    def render(self) -> str | NDArray[np.uint8] | None:
        """Return the episode as ``render_mode`` says: its transcript, a picture of it, or None."""
        match self.settings.render_mode:
            case "ansi":
                return format_transcript(self._turns)
            case "rgb_array":
                return draw_transcript(self._turns, self.settings.screen or DEFAULT_FRAME_SIZE)
        return None

    def _info(self, metadata: Metadata) -> Info:
        info: Info = {"outcome": metadata.outcome.value, "state_lost": metadata.state_lost}
        if self.settings.results:
            info["results"] = tuple(map(Result.of, metadata.results))
        return info

    def _observe(self, observation: Observation) -> Obs:
        obs: Obs = {
            "stdout": observation.stdout,
            "stderr": observation.stderr,
            "exit_code": np.int64(observation.exit_code),
        }
        if self.settings.screen is not None:
            width, height = self.settings.screen
            obs["screenshot"] = shared_black(height, width)
        return obs


class ResetAttempts:
    """Says whether a reset that failed is to be tried once more."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._faults = 0

    def pause_after(self, error: Exception) -> float:
        """Return how many seconds to wait before the next attempt, in a new session.

        Raises:
            Exception: ``error``, if there is to be none.
        """
        waited = time.monotonic() - self._begun
        if isinstance(error, CapacityError):
            # The place may still be that of our own last session, which has just been dropped.
            if waited < _PLACE_FREE_WITHIN:
                return _RETRY_SECONDS
        elif isinstance(error, ProtocolError) and error.code == ErrorCode.EXECUTION_ERROR:
            # There is no room for another process, until the neighbour that has taken it all is ended.
            if waited < _ROOM_WITHIN:
                return _RETRY_SECONDS
        elif isinstance(error, (TransportError, ProtocolError)):
            # The sandbox died while nobody looked.
            self._faults += 1
            if self._faults < _RESET_ATTEMPTS:
                return 0.0
        raise error


def infrastructure_failure(reason: str) -> ObservationData:
    """Return what a step shows that we, not the user's code, failed to run."""
    metadata = Metadata(outcome=Outcome.INFRASTRUCTURE, state_lost=True)
    observation = Observation(
        stdout="", stderr=f"[the sandbox failed: {reason}]\n", exit_code=INFRASTRUCTURE_EXIT_CODE, metadata=metadata
    )
    return ObservationData(observation=observation, reward=0.0, done=False, metadata=metadata)


def own_screenshot(obs: Obs) -> Obs:
    """Give an observation a screenshot that it shares with nobody."""
    frame = obs.get("screenshot")
    if frame is not None and is_shared_black(frame):
        obs["screenshot"] = black_frames(1, *frame.shape[:2])[0]
    return obs


def check_count(name: str, value: Any, smallest: int) -> int:
    """Return ``value`` if it is a whole number of at least ``smallest``.

    Raises:
        ConfigurationError: It is not.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < smallest:
        message = f"Expected {name}= to be a whole number of at least {smallest}, got {value!r}"
        raise ConfigurationError(message)
    return value


def check_backend(name: Any, option: str = "backend") -> None:
    """Find out whether a name can be that of a backend; whether a sandbox has it, only a sandbox can tell.

    Args:
        name: The name.
        option: What it was given as.

    Raises:
        ConfigurationError: It cannot.
    """
    try:
        backends.check_backend(name)
    except (TypeError, ValueError, AttributeError) as error:
        message = f"{option}=: {error}"
        raise ConfigurationError(message) from None


def _files(files: Any) -> dict[str, str | FileContent]:
    """Return the files of ``reset(options=...)`` as they are sent.

    Raises:
        ConfigurationError: They are no mapping of paths to contents.
    """
    if files is None:
        return {}
    valid = isinstance(files, Mapping) and all(
        isinstance(path, str) and isinstance(content, str | bytes) for path, content in files.items()
    )
    if not valid:
        message = f"Expected options['files'] to be a mapping of paths to str or bytes, got {files!r:.200}"
        raise ConfigurationError(message)
    return {path: content if isinstance(content, str) else FileContent(content) for path, content in files.items()}


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
