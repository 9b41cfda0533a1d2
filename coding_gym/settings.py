"""What an environment is made with, but for its sandbox."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

from coding_gym.errors import ConfigurationError
from coding_gym_server import backends
from coding_gym_server.protocol import DEFAULT_SCREEN, MAX_SCREEN_SIDE, MIN_SCREEN_SIDE, Capture, OnIdle

__all__ = ["RENDER_MODES", "EpisodeSettings", "ScreenOption", "check_backend", "check_count", "check_seconds"]

RENDER_MODES = ("ansi", "rgb_array")

_MAX_FRAME_RATE = 120

ScreenOption = tuple[int, int] | str | None
"""Width and height of a screen in pixels, ``auto``, or None for no screen."""

_Choice = TypeVar("_Choice", bound=StrEnum)


@dataclass(frozen=True, kw_only=True)
class EpisodeSettings:
    """What an environment is made with, but for its sandbox.

    Attributes:
        render_mode: ``ansi``, ``rgb_array`` or None.
        screen: Width and height of the screen in pixels; ``auto`` is 640 x 480, and black for ever in a sandbox that cannot
            have a screen; None is no screen, and no screenshot in the observation.
        window_manager: Whether a window manager runs on the screen, once there is a window.
        capture: When the screen is looked at: ``auto`` (when there is something on it), ``always`` or ``never``.
        on_idle: What becomes of a program that waits for events: ``close`` or ``return``.
        frames: Frames a second of ``info["frames"]``, at most; None leaves it out.
        step_timeout: Wall-clock limit of a step in seconds.
        cpu_timeout: CPU-time limit of a step in seconds, summed over all its processes; None for no limit.
        max_output_chars: The most code points of stdout, and of stderr.
        max_code_chars: The most code points of an action.
        show_value: Whether the value of a last expression is shown, as a REPL does.
        backend: What executes the code; the sandbox's default if None.
        results: Whether ``info["results"]`` has values and displays in all their formats.
    """

    render_mode: str | None = None
    screen: ScreenOption = "auto"
    window_manager: bool = False
    capture: str = Capture.AUTO
    on_idle: str = OnIdle.CLOSE
    frames: float | None = None
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
        object.__setattr__(self, "capture", _check_choice("capture", self.capture, Capture))
        object.__setattr__(self, "on_idle", _check_choice("on_idle", self.on_idle, OnIdle))
        self._check_frames()
        self._check_screen_is_there()
        object.__setattr__(self, "step_timeout", check_seconds("step_timeout", self.step_timeout))
        if self.cpu_timeout is not None:
            object.__setattr__(self, "cpu_timeout", check_seconds("cpu_timeout", self.cpu_timeout))
        check_count("max_output_chars", self.max_output_chars, 256)
        check_count("max_code_chars", self.max_code_chars, 1)
        if self.backend is not None:
            check_backend(self.backend)

    @property
    def screen_size(self) -> tuple[int, int] | None:
        """Width and height of the screenshot in pixels, None if there is none."""
        return DEFAULT_SCREEN if isinstance(self.screen, str) else self.screen

    def _check_frames(self) -> None:
        rate = self.frames
        valid = isinstance(rate, (int, float)) and not isinstance(rate, bool) and 0 < rate <= _MAX_FRAME_RATE
        if rate is not None and not valid:
            message = f"Expected frames= to be a rate of at most {_MAX_FRAME_RATE} a second, or None, got {rate!r}"
            raise ConfigurationError(message)

    def _check_screen_is_there(self) -> None:
        wanting = {
            "window_manager=True": self.window_manager,
            "capture='always'": self.capture == Capture.ALWAYS,
            "frames=": self.frames is not None,
        }
        names = [name for name, is_wanted in wanting.items() if is_wanted]
        if self.screen is None and names:
            message = f"Expected a screen for {', '.join(names)}, got screen=None: leave screen= out, or pass (width, height)"
            raise ConfigurationError(message)


def check_count(name: str, value: Any, smallest: int) -> int:
    """Return ``value`` if it is a whole number of at least ``smallest``.

    Raises:
        ConfigurationError: It is not.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < smallest:
        message = f"Expected {name}= to be a whole number of at least {smallest}, got {value!r}"
        raise ConfigurationError(message)
    return value


def check_seconds(name: str, value: Any) -> float:
    """Return ``value`` if it is a positive, finite number.

    Raises:
        ConfigurationError: It is not.
    """
    if not isinstance(value, (int, float)) or not 0 < value < float("inf"):
        message = f"Expected {name}= to be a positive number of seconds, got {value!r}"
        raise ConfigurationError(message)
    return float(value)


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


def _check_screen(screen: Any) -> ScreenOption:
    if screen is None or (isinstance(screen, str) and screen == "auto"):
        return screen
    try:
        width, height = (int(side) for side in screen)
    except (TypeError, ValueError, OverflowError):
        width = height = 0
    if not (MIN_SCREEN_SIDE <= width <= MAX_SCREEN_SIDE and MIN_SCREEN_SIDE <= height <= MAX_SCREEN_SIDE):
        message = (
            f"Expected screen= to be 'auto', (width, height) of {MIN_SCREEN_SIDE} to {MAX_SCREEN_SIDE} pixels each, or None, "
            f"got {screen!r}"
        )
        raise ConfigurationError(message)
    return width, height


def _check_choice(name: str, value: Any, choices: type[_Choice]) -> _Choice:
    try:
        return choices(value)
    except ValueError:
        message = f"Expected {name}= to be one of {', '.join(choices)}, got {value!r}"
        raise ConfigurationError(message) from None
