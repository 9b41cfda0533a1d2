"""What an environment knows of its episode, whoever carries its messages: settings, spaces, observations, the transcript."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from msgspec import UNSET
from numpy.typing import NDArray

from coding_gym.errors import CapacityError, ConfigurationError, InvalidActionError, ProtocolError, TransportError
from coding_gym.frames import black_frame, decode_pixels, is_shared_black, shared_black
from coding_gym.rendering import DEFAULT_FRAME_SIZE, Turn, draw_transcript, format_transcript
from coding_gym.results import Result
from coding_gym.settings import EpisodeSettings
from coding_gym.spaces import CodeText, action_space, observation_space
from coding_gym.video import Video
from coding_gym_server.protocol import (
    INFRASTRUCTURE_EXIT_CODE,
    Capture,
    ErrorCode,
    FileContent,
    Metadata,
    Observation,
    ObservationData,
    OnIdle,
    Outcome,
    Pixels,
    ResetOptions,
    StepAction,
)

__all__ = [
    "FIRST_RESET_TIMEOUT",
    "LOOK_TIMEOUT",
    "RESET_TIMEOUT",
    "Episode",
    "Info",
    "Obs",
    "ResetAttempts",
    "StepResult",
    "Timing",
    "check_code",
    "infrastructure_failure",
    "own_screenshot",
    "refuse_action",
]

_ANSWER_SLACK = 15.0
"""Seconds beyond the step's own limit after which a server that has not answered is taken for dead."""

FIRST_RESET_TIMEOUT = 60.0
"""Seconds that a server has for the first reset of a session: it may still be importing what it was told to."""

RESET_TIMEOUT = 15.0
LOOK_TIMEOUT = 15.0

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


class Episode:
    """The episode of one environment, and those that follow it.

    Args:
        settings: What applies to all of them.
    """

    def __init__(self, settings: EpisodeSettings) -> None:
        self.settings = settings
        self.action_space: gym.Space[Any] = action_space(settings.max_code_chars)
        self.observation_space = observation_space(settings.max_output_chars, settings.screen_size)
        self.options: ResetOptions | None = None
        self.last_timing: Timing | None = None
        self._turns: list[Turn] = []
        self._code = ""
        self._picture: str | Pixels | None = None
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
        settings = self.settings
        self.options = ResetOptions(
            seed=int(np_random.integers(_MAX_DRAWN_SEED)) if seed is None else int(seed) % _MAX_SEED,
            episode_id=(options or {}).get("episode_id"),
            files=_files((options or {}).get("files")),
            step_timeout=settings.step_timeout,
            cpu_timeout=settings.cpu_timeout,
            max_output_chars=settings.max_output_chars,
            show_value=settings.show_value,
            backend=settings.backend,
            results=settings.results,
            # A server that cannot have a screen refuses those that are asked for.
            screen=UNSET if isinstance(settings.screen, str) else settings.screen,
            window_manager=settings.window_manager,
            capture=Capture(settings.capture),
            on_idle=OnIdle(settings.on_idle),
            frame_rate=settings.frames,
        )
        self._turns = []
        self._picture = None
        self._asked_at = time.perf_counter()
        return self.options

    def begun(self, data: ObservationData) -> tuple[Obs, Info]:
        """Return what ``reset`` returns for the server's answer; a black screenshot is shared and read-only.

        Raises:
            ProtocolError: The server has a screen of another size.
        """
        self.last_timing = Timing(time.perf_counter() - self._asked_at)
        return self._observe(data.observation), self._info(data.observation)

    def check_begun(self) -> None:
        """Raise if there is no episode.

        Raises:
            gymnasium.error.ResetNeeded: None has begun.
        """
        if self.options is None:
            message = "There is no episode yet: call reset() first"
            raise gym.error.ResetNeeded(message)

    def check_action(self, action: Any) -> None:
        """Raise if ``action`` cannot be run.

        Raises:
            InvalidActionError: It is not in the action space.
            gymnasium.error.ResetNeeded: No episode has begun.
        """
        self.check_begun()
        assert isinstance(self.action_space, CodeText)
        check_code(action, self.action_space)

    def check_look(self) -> None:
        """Raise if there is nothing to look at.

        Raises:
            ConfigurationError: There is no screen.
            gymnasium.error.ResetNeeded: No episode has begun.
        """
        if self.settings.screen is None:
            message = "There is no screen to look at: make the environment without screen=None"
            raise ConfigurationError(message)
        self.check_begun()

    @property
    def answer_within(self) -> float:
        """Seconds within which a server that lives has answered a step."""
        return self.settings.step_timeout + _ANSWER_SLACK

    def step_begins(self, action: Any) -> StepAction:
        """Take note of an action that has passed ``check_action``; returns what to ask the server for."""
        # Python's own text, for numpy's cannot be sent.
        asked = StepAction(code=str(action))
        self._take_note(asked)
        return asked

    def step_ended(self, data: ObservationData) -> StepResult:
        """Return what ``step`` returns for the server's answer; a black screenshot is shared and read-only.

        Raises:
            ProtocolError: The server has a screen of another size.
        """
        observation = data.observation
        self.last_timing = Timing(time.perf_counter() - self._asked_at)
        if self.settings.render_mode is not None:
            self._turns.append(Turn(self._code, observation.stdout, observation.stderr, observation.exit_code))
        truncated = observation.metadata.outcome is Outcome.INFRASTRUCTURE
        return self._observe(observation), 0.0, False, truncated, self._info(observation)

    def render(self) -> str | NDArray[np.uint8] | None:
        """Return the episode as ``render_mode`` says.

        That is its transcript, None, or a picture: of the screen if the last observation had something on it, else of the
        transcript, always of the same size.
        """
        match self.settings.render_mode:
            case "ansi":
                return format_transcript(self._turns)
            case "rgb_array":
                frame = None if self._picture is None else decode_pixels(self._picture)
                if frame is not None and frame.any():
                    return frame
                return draw_transcript(self._turns, self.settings.screen_size or DEFAULT_FRAME_SIZE)
        return None

    def _take_note(self, asked: StepAction) -> None:
        events = [f"# {event}" for event in asked.inputs]
        self._code = "\n".join([asked.code, *events] if asked.code or not events else events)
        self._asked_at = time.perf_counter()

    def _info(self, observation: Observation) -> Info:
        metadata = observation.metadata
        info: Info = {"outcome": metadata.outcome.value, "state_lost": metadata.state_lost}
        if metadata.idle is not None:
            info["idle"] = metadata.idle
        if self.settings.results:
            info["results"] = tuple(map(Result.of, metadata.results))
        if self.settings.frames is not None:
            info["frames"] = Video(observation.frames)
        return info

    def _observe(self, observation: Observation) -> Obs:
        obs: Obs = {
            "stdout": observation.stdout,
            "stderr": observation.stderr,
            "exit_code": np.int64(observation.exit_code),
        }
        if self.settings.screen is not None:
            obs["screenshot"] = self._look_at(observation.screenshot)
        return obs

    def _look_at(self, picture: str | Pixels | None) -> NDArray[np.uint8]:
        size = self.settings.screen_size
        assert size is not None
        self._picture = picture
        if picture is None:
            return shared_black(size[1], size[0])
        frame = decode_pixels(picture)
        if frame.shape[1::-1] != size:
            found = frame.shape[1::-1]
            message = f"Expected a screen of {size[0]} x {size[1]} pixels, got {found[0]} x {found[1]}: pass screen={found}"
            raise ProtocolError(message)
        return frame


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


def check_code(code: Any, space: CodeText) -> None:
    """Raise if ``code`` is no source text that can be run.

    Raises:
        InvalidActionError: It is not.
    """
    if code in space:
        return
    if not isinstance(code, str):
        message = f"Expected an action to be source text (str), got {type(code).__name__}"
    elif len(code) > space.max_length:
        message = f"Expected an action of at most {space.max_length} characters, got {len(code)}; raise max_code_chars="
    else:
        message = "Expected an action that UTF-8 can encode, got one with lone surrogates: decode it with errors='replace'"
    raise InvalidActionError(message)


def refuse_action(error: Exception) -> None:
    """Raise if the server refused an action for what it is; the session goes on.

    Raises:
        InvalidActionError: It did.
    """
    if isinstance(error, ProtocolError) and error.code == ErrorCode.VALIDATION_ERROR:
        raise InvalidActionError(str(error)) from error


def own_screenshot(obs: Obs) -> Obs:
    """Give an observation a screenshot that it shares with nobody."""
    frame = obs.get("screenshot")
    if frame is not None and is_shared_black(frame):
        obs["screenshot"] = black_frame(*frame.shape[:2])
    return obs


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
