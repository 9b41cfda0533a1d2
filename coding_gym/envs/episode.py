"""Transport-independent episode state: spaces, requests, observations, the transcript."""

from __future__ import annotations

import copy
import os
import posixpath
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from msgspec import UNSET
from numpy.typing import NDArray

from coding_gym._html import caption, colored, document, folded, picture, png, preformatted
from coding_gym._validation import CLOSED_ENVIRONMENT, check_mapping, check_names
from coding_gym.envs.episode_reports import EpisodeReports
from coding_gym.envs.options import EnvOptions
from coding_gym.envs.transcript import DEFAULT_FRAME_SIZE, Turn, draw_transcript, format_transcript
from coding_gym.errors import (
    CapacityError,
    ConcurrentUseError,
    ConfigurationError,
    InvalidActionError,
    ProtocolError,
    TransportError,
)
from coding_gym.media.frames import black_frame, decode_pixels
from coding_gym.spaces import CodeText, action_space, observation_space
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
    "RESET_TIMEOUT",
    "SCREEN_TIMEOUT",
    "EpisodeState",
    "ExclusiveUse",
    "Info",
    "Obs",
    "ObservationView",
    "RecordedStep",
    "ResetRetryPolicy",
    "StepResult",
    "Timing",
    "check_code",
    "check_reset_options",
    "encode_files",
    "info_of",
    "infrastructure_failure",
    "refuse_action",
]

_MAX_NAME_BYTES = 255


def check_reset_options(options: Mapping[str, Any] | None, known: Iterable[str]) -> None:
    """Check the names of options, and those options that every environment has.

    Args:
        options: The options of ``reset``.
        known: The valid names.

    Raises:
        ConfigurationError: If a name is unknown, or a value is invalid.
    """
    check_mapping("options", options)
    options = options or {}
    check_names(options, known, "reset option")
    image = options.get("image")
    if not (image is None or (isinstance(image, str | os.PathLike) and os.fspath(image))):
        message = f"Expected options['image'] to be the name of an image, or a directory with a Dockerfile, got {image!r:.200}"
        raise ConfigurationError(message)
    episode_id = options.get("episode_id")
    if not isinstance(episode_id, str | None):
        message = f"Expected options['episode_id'] to be a str or None, got {episode_id!r:.200}"
        raise ConfigurationError(message)
    encode_files(options.get("files"))


def encode_files(files: Any) -> dict[str, str | FileContent]:
    """Return the files of ``reset(options=...)`` in the wire format.

    Raises:
        ConfigurationError: If they are not a mapping of relative paths to contents.
    """
    if files is None:
        return {}
    valid = isinstance(files, Mapping) and all(
        isinstance(path, str) and isinstance(content, str | bytes) for path, content in files.items()
    )
    if not valid:
        message = f"Expected options['files'] to be a mapping of paths to str or bytes, got {files!r:.200}"
        raise ConfigurationError(message)
    normalized = {posixpath.normpath(path) for path in files}
    for path, content in files.items():
        if problem := _problem(path, normalized) or _problem_of_content(content):
            message = (
                f"Expected options['files'] to have paths relative to the working directory, such as 'data/a.csv'; "
                f"{path!r:.300} {problem}"
            )
            raise ConfigurationError(message)
    return {path: content if isinstance(content, str) else FileContent(content) for path, content in files.items()}


def _problem(path: str, paths: set[str]) -> str:
    """Return why there cannot be a file of this path, empty if there can.

    Args:
        path: The path.
        paths: The normalized paths of all files.
    """
    normal = posixpath.normpath(path)
    if "\0" in path:
        return "contains a null character"
    if not _is_unicode(path):
        return "is not Unicode"
    if path.startswith("/"):
        return "is absolute"
    if not path or normal == ".":
        return "names no file"
    if normal.split("/")[0] == "..":
        return "leads out of it"
    if any(len(name.encode()) > _MAX_NAME_BYTES for name in normal.split("/")):
        return f"has a name of more than {_MAX_NAME_BYTES} bytes"
    parents = (normal[:position] for position, character in enumerate(normal) if character == "/")
    if file := next((parent for parent in parents if parent in paths), None):
        return f"is below {file!r}, which is a file"
    return ""


def _problem_of_content(content: str | bytes) -> str:
    return "" if isinstance(content, bytes) or _is_unicode(content) else "has content that UTF-8 cannot encode: pass bytes"


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


@dataclass(frozen=True)
class ObservationView:
    """Representation of an observation in notebooks.

    Attributes:
        observation: The observation.
    """

    observation: Obs

    def _repr_html_(self) -> str:
        seen = self.observation
        exit_code, screenshot = int(seen["exit_code"]), seen.get("screenshot")
        return document(
            folded("prompt", preformatted(seen.get("prompt", ""))),
            preformatted(seen["stdout"]),
            preformatted(seen["stderr"], is_error=True),
            picture(png(screenshot), alt="screenshot") if screenshot is not None and screenshot.any() else "",
            caption("exit code ", colored(str(exit_code), is_good=exit_code == 0)),
        )


Info = dict[str, Any]


def info_of(settings: EnvOptions, observation: Observation) -> Info:
    """Return the ``info`` of a step, with the parts that the options request."""
    metadata = observation.metadata
    info: Info = {"outcome": metadata.outcome.value, "state_lost": metadata.state_lost}
    if metadata.idle is not None:
        info["idle"] = metadata.idle
    if settings.results:
        from coding_gym.media.results import Result

        info["results"] = tuple(map(Result.of, metadata.results))
    if settings.frames is not None:
        from coding_gym.media.video import Video

        info["frames"] = Video(observation.frames)
    if settings.widgets:
        info["widgets"] = tuple(observation.widgets)
    return info


_RESET_ATTEMPTS = 2
_SLOT_TIMEOUT = 2.0
_CAPACITY_TIMEOUT = 5.0
_RETRY_SECONDS = 0.02


class ResetRetryPolicy:
    """Retry policy of failed resets."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._failures = 0

    def pause_after(self, error: Exception) -> float:
        """Return the number of seconds to wait before the next attempt, in a new session.

        Raises:
            Exception: ``error``, if there should be no further attempt.
        """
        waited = time.monotonic() - self._started
        if isinstance(error, CapacityError):
            # The slot may still belong to the last session, which was just closed.
            if waited < _SLOT_TIMEOUT:
                return _RETRY_SECONDS
        elif isinstance(error, ProtocolError) and error.code == ErrorCode.EXECUTION_ERROR:
            # No process can be forked until the server has ended the session that uses up the limit.
            if waited < _CAPACITY_TIMEOUT:
                return _RETRY_SECONDS
        elif isinstance(error, (TransportError, ProtocolError)):
            # The sandbox died since the last episode.
            self._failures += 1
            if self._failures < _RESET_ATTEMPTS:
                return 0.0
        raise error


class ExclusiveUse:
    """Context manager for the calls of an object that one thread at a time may make.

    Responses carry no ids: a second request would receive the response to the first one. Waiting for the first call instead
    would make the order of the steps of an episode depend on the scheduling of threads.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise ConcurrentUseError

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._lock.release()


_ANSWER_SLACK = 15.0
"""Seconds beyond the step's limit after which a server without a response is considered dead."""

FIRST_RESET_TIMEOUT = 60.0
"""Timeout of the first reset of a session in seconds: the server may still be importing the preloaded modules."""

RESET_TIMEOUT = 15.0
SCREEN_TIMEOUT = 15.0

_MAX_DRAWN_SEED = 2**32
_MAX_SEED = 2**64

Obs = dict[str, Any]
StepResult = tuple[Obs, float, bool, bool, Info]


@dataclass(frozen=True)
class Timing:
    """Duration of the last reset or step; not in ``info``, which is deterministic for a seed and actions.

    Attributes:
        seconds: Wall-clock time from the request to its response.
    """

    seconds: float


class RecordedStep(NamedTuple):
    """A step of the episode, for replay.

    Attributes:
        request: The request.
        stdout: Its output.
        stderr: Its error output.
        exit_code: Its exit code.
    """

    request: StepAction
    stdout: str
    stderr: str
    exit_code: int


class EpisodeState:
    """The current episode of an environment.

    Args:
        settings: Options of the environment.

    Attributes:
        image: Image that the options of the last ``reset`` name; None for that of the configuration.
        egress: What programs have asked the network's proxy for in the step: dicts of ``method``, ``target`` and ``refused``,
            the reason or None.
        reports_loss: Whether ``info["lost"]`` is set when the sandbox has failed; see ``ManagedSandbox.may_lose_servers``.
        reports: Reports of resets and steps.
    """

    env_id = "CodingEnv-v0"
    """The id of the environment in the transcript."""

    RESET_OPTIONS: tuple[str, ...] = ("episode_id", "files", "image")
    """The options of ``reset``."""

    _SAVED: tuple[str, ...] = ("options", "image", "_turns", "_history", "_picture", "_code")
    """Attributes that are the state of the episode."""

    def __init__(self, settings: EnvOptions) -> None:
        self.settings = settings
        self.action_space: gym.Space[Any] = action_space(settings.max_code_chars)
        self.observation_space = observation_space(settings.max_output_chars, settings.screen_size)
        self.options: ResetOptions | None = None
        self.image: str | None = None
        self.egress: list[dict[str, Any]] = []
        self.reports_loss = False
        self.last_timing: Timing | None = None
        self.observation: Obs | None = None
        self.reports = EpisodeReports(self.env_id, settings)
        self._turns: list[Turn] = []
        self._history: list[RecordedStep] = []
        self._request = StepAction(code="")
        self._code = ""
        self._picture: str | Pixels | None = None
        self._requested_at = 0.0
        self._is_closed = False

    def close(self) -> None:
        """Refuse further use of the environment. Idempotent."""
        self._is_closed = True
        self.reports.watched.closed()

    def check_open(self) -> None:
        """Raise if the environment is closed.

        Raises:
            gymnasium.error.ClosedEnvironmentError: If it is.
        """
        if self._is_closed:
            raise gym.error.ClosedEnvironmentError(CLOSED_ENVIRONMENT)

    def check_reset(self, options: Mapping[str, Any] | None) -> None:
        """Raise if an episode cannot begin with these options of ``reset``.

        Raises:
            ConfigurationError: If an option is unknown or invalid.
            gymnasium.error.ClosedEnvironmentError: If the environment is closed.
        """
        self.check_open()
        check_reset_options(options, self.RESET_OPTIONS)

    def begin(
        self, *, seed: int | None, np_random: np.random.Generator, options: Mapping[str, Any] | None = None
    ) -> ResetOptions:
        """Begin an episode with options that have passed ``check_reset``; return the request for the server.

        Args:
            seed: Seed of the interpreter; drawn from ``np_random`` if None.
            np_random: The environment's generator.
            options: The options of ``reset``.
        """
        settings = self.settings
        image = (options or {}).get("image")
        self.image = None if image is None else os.fspath(image)
        self.options = ResetOptions(
            seed=int(np_random.integers(_MAX_DRAWN_SEED)) if seed is None else int(seed) % _MAX_SEED,
            episode_id=(options or {}).get("episode_id"),
            files=encode_files((options or {}).get("files")),
            step_timeout=settings.step_timeout,
            cpu_timeout=settings.cpu_timeout,
            max_output_chars=settings.max_output_chars,
            show_value=settings.show_value,
            # Environments have wrappers for rewards.
            rewards=[],
            backend=settings.backend,
            results=settings.results,
            # A server without a display refuses an explicit size.
            screen=UNSET if isinstance(settings.screen, str) else settings.screen,
            window_manager=settings.window_manager,
            capture=Capture(settings.capture),
            on_idle=OnIdle(settings.on_idle),
            max_watch=settings.max_watch,
            frame_rate=settings.frames,
            widgets=settings.widgets,
            variables=settings.all_variables,
        )
        self._turns, self._history = [], []
        self._picture = None
        self._requested_at = time.perf_counter()
        self.reports.resetting(step_timeout=settings.step_timeout)
        return self.options

    def finish_begin(self, data: ObservationData) -> tuple[Obs, Info]:
        """Return the result of ``reset`` for a response.

        Raises:
            ProtocolError: If the server has a screen of another size.
        """
        self.last_timing = Timing(time.perf_counter() - self._requested_at)
        self.reports.answered(data.observation, self.last_timing.seconds)
        obs, info = self._observe(data.observation), self._info(data.observation)
        self.observation = obs
        self.reports.watched.begun(info.get("task_id"), self._picture)
        return obs, info

    def check_begun(self) -> None:
        """Raise if there is no episode.

        Raises:
            gymnasium.error.ResetNeeded: If no episode has begun.
            gymnasium.error.ClosedEnvironmentError: If the environment is closed.
        """
        self.check_open()
        if self.options is None:
            message = "There is no episode yet: call reset() first"
            raise gym.error.ResetNeeded(message)

    def show(self) -> ObservationView:
        """Return what notebooks show of the last observation.

        Raises:
            gymnasium.error.ResetNeeded: If there is none.
            gymnasium.error.ClosedEnvironmentError: If the environment is closed.
        """
        self.check_begun()
        if self.observation is None:
            message = "There is no observation yet: call step() first"
            raise gym.error.ResetNeeded(message)
        return ObservationView(self.observation)

    def check_action(self, action: Any) -> None:
        """Raise if ``action`` cannot be run.

        Raises:
            InvalidActionError: If it is not in the action space.
            gymnasium.error.ResetNeeded: If no episode has begun.
        """
        self.check_begun()
        assert isinstance(self.action_space, CodeText)
        check_code(action, self.action_space)

    def check_screen_available(self) -> None:
        """Raise if there is no screen to capture.

        Raises:
            ConfigurationError: If there is no screen.
            gymnasium.error.ResetNeeded: If no episode has begun.
        """
        self.check_open()
        if self.settings.screen is None:
            message = "There is no screen to capture: make the environment without screen=None"
            raise ConfigurationError(message)
        self.check_begun()

    @property
    def response_timeout(self) -> float:
        """Maximum number of seconds to wait for the response to a step; its limit is that of the last ``reset``."""
        requested = None if self.options is None else self.options.step_timeout
        return (self.settings.step_timeout if requested is None else requested) + _ANSWER_SLACK

    @property
    def step_count(self) -> int:
        """Number of steps of the episode that have ended."""
        return len(self._history)

    def begin_step(self, action: Any) -> StepAction:
        """Record an action that has passed ``check_action``; return the request for the server."""
        # A built-in str: numpy's strings cannot be encoded.
        request = StepAction(code=str(action))
        self._log_action(request)
        return request

    def finish_step(self, data: ObservationData) -> StepResult:
        """Return the result of ``step`` for a response.

        Raises:
            ProtocolError: If the server has a screen of another size.
        """
        observation = data.observation
        self.last_timing = Timing(time.perf_counter() - self._requested_at)
        self.reports.answered(observation, self.last_timing.seconds)
        self._history.append(RecordedStep(self._request, observation.stdout, observation.stderr, observation.exit_code))
        if self.settings.render_mode is not None:
            self._turns.append(Turn(self._code, observation.stdout, observation.stderr, observation.exit_code))
        truncated = observation.metadata.outcome is Outcome.INFRASTRUCTURE
        info = self._info(observation)
        if truncated and self.reports_loss:
            info["lost"] = True
        self.observation = self._observe(observation)
        result = self.observation, 0.0, False, truncated, info
        self._report(result)
        return result

    def _report(self, result: StepResult) -> None:
        """Report the result of a step to the observer, if there is one."""
        self.reports.watched.stepped(result, picture=self._picture)

    @property
    def header(self) -> str:
        """The first line of the transcript: the environment and its main options."""
        settings = self.settings
        size = settings.screen_size
        return (
            f"# {self.env_id}: {settings.backend or 'default'} backend, "
            f"{f'screen {size[0]} x {size[1]}' if size is not None else 'no screen'}, {settings.step_timeout:g} s per step"
        )

    def render(self) -> str | NDArray[np.uint8] | None:
        """Render the episode in ``render_mode``.

        Returns:
            The transcript with a header; or an image of a fixed size: of the screen if the last screenshot was not black, else
            of the transcript; or None without a render mode.

        Raises:
            gymnasium.error.ClosedEnvironmentError: If the environment is closed.
        """
        self.check_open()
        match self.settings.render_mode:
            case "ansi":
                return format_transcript(self._turns, header=self.header)
            case "rgb_array" | "human":
                frame = None if self._picture is None else decode_pixels(self._picture)
                if frame is not None and frame.any():
                    return frame
                return draw_transcript(self._turns, self.settings.screen_size or DEFAULT_FRAME_SIZE)
        return None

    def save(self) -> dict[str, Any]:
        """Return the state of the episode, for ``load``."""
        return {name: copy.copy(getattr(self, name)) for name in self._SAVED}

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue from a state that ``save`` has returned."""
        for name, value in state.items():
            setattr(self, name, copy.copy(value))
        self._requested_at = time.perf_counter()

    def _log_action(self, request: StepAction) -> None:
        self._request = request
        events = [f"# {event}" for event in request.inputs]
        self._code = "\n".join([request.code, *events] if request.code or not events else events)
        self._requested_at = time.perf_counter()
        self.reports.running(self._code)

    def _info(self, observation: Observation) -> Info:
        info = info_of(self.settings, observation)
        if self.settings.network is not None:
            info["egress"] = tuple(self.egress)
        return info

    def _observe(self, observation: Observation) -> Obs:
        obs: Obs = {"stdout": observation.stdout, "stderr": observation.stderr, "exit_code": np.int64(observation.exit_code)}
        if self.settings.screen is not None:
            obs["screenshot"] = self._decode_screenshot(observation.screenshot)
        return obs

    def _decode_screenshot(self, picture: str | Pixels | None) -> NDArray[np.uint8]:
        size = self.settings.screen_size
        assert size is not None
        self._picture = picture
        if picture is None:
            return black_frame(size[1], size[0])
        frame = decode_pixels(picture)
        if frame.shape[1::-1] != size:
            found = frame.shape[1::-1]
            message = f"Expected a screen of {size[0]} x {size[1]} pixels, got {found[0]} x {found[1]}: pass screen={found}"
            raise ProtocolError(message)
        # As black ones are.
        frame.flags.writeable = False
        return frame


def infrastructure_failure(reason: str) -> ObservationData:
    """Return the response of a step that failed with an infrastructure error."""
    metadata = Metadata(outcome=Outcome.INFRASTRUCTURE, state_lost=True)
    observation = Observation(
        stdout="", stderr=f"[the sandbox failed: {reason}]\n", exit_code=INFRASTRUCTURE_EXIT_CODE, metadata=metadata
    )
    return ObservationData(observation=observation, reward=0.0, done=False, metadata=metadata)


def check_code(code: Any, space: CodeText) -> None:
    """Raise if ``code`` is not valid source text.

    Raises:
        InvalidActionError: If it is not.
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
    """Raise if the server refused an action as invalid; the session continues.

    Raises:
        InvalidActionError: If it did.
    """
    if isinstance(error, ProtocolError) and error.code == ErrorCode.VALIDATION_ERROR:
        raise InvalidActionError(str(error)) from error
