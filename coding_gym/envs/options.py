"""Environment options: everything except the sandbox configuration."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypedDict

from coding_gym._validation import (
    check_backend,
    check_choice,
    check_count,
    check_names,
    check_one_of,
    check_seconds,
    parameter_names,
)
from coding_gym.doors.egress import Egress, proxy_variables
from coding_gym.doors.targets import DoorTarget, check_doors
from coding_gym.envs.human_window import HUMAN, RenderModes
from coding_gym.errors import ConfigurationError
from coding_gym.sandbox.config import SandboxKwargs, check_variables
from coding_gym_server.protocol import DEFAULT_SCREEN, MAX_SCREEN_SIDE, MIN_SCREEN_SIDE, Capture, OnIdle
from coding_gym_server.protocol.backends import PYTHON_PREFIX

__all__ = [
    "RENDER_MODES",
    "CodingEnvKwargs",
    "EnvKwargs",
    "EnvOptions",
    "ScreenOption",
    "split_options",
]

RENDER_MODES = RenderModes(("ansi", "rgb_array"))

_MAX_FRAME_RATE = 120

ScreenOption = tuple[int, int] | str | None
"""Width and height of a screen in pixels, ``auto``, or None for no screen."""


@dataclass(frozen=True, kw_only=True)
class EnvOptions:
    """Environment options: everything except the sandbox configuration.

    ``EnvKwargs`` types the same options as keyword arguments.

    Attributes:
        render_mode: ``ansi`` (the transcript of the episode), ``rgb_array`` (the last screenshot, or an image of the transcript
            in its size if the screen is empty), ``human`` (the same in a window, after each reset and step) or None.
        show_value: Whether the value of a last expression is printed, as a REPL does.
        backend: What executes the code: ``python``, ``notebook``, ``cpp`` ..., see ``docs/backends.md``; the sandbox's default
            if None.
        results: Whether ``info["results"]`` contains values and displays in all their formats, as a tuple of ``Result``.
        screen: Width and height of the screen in pixels; ``auto`` is 800 x 600, and always black if the sandbox has no display;
            None for no screen, and no screenshot in the observation.
        window_manager: Whether a window manager runs on the screen, for programs that require one or open several windows.
        capture: When the observation contains the screen: ``auto`` (if something is shown), ``always``, or ``never`` (black).
        on_idle: What happens to a program that waits for events after its screen is stable: ``close`` closes its windows, and
            interrupts it if it ignores the close request; ``return`` ends the step with outcome ``running``, and the next step
            with code closes it.
        max_watch: Seconds of continuous drawing after which a program that never rests, such as a game or an animation, is
            handled like one that waits for events, with ``info["idle"] == "animating"``; None for half of ``step_timeout``. A
            step reserves its last three seconds, or its second half if that is shorter, for the closing.
        frames: Maximum frame rate of ``info["frames"]``, the video of the step (``Video``), in frames per second; None for no
            video. The times of the frames differ from run to run.
        widgets: Whether ``info["widgets"]`` has the widgets that the screenshot shows, as a tuple of ``Widget`` in tree order.
        step_timeout: Wall-clock limit in seconds.
        cpu_timeout: CPU-time limit in seconds, summed over all processes of the step; None for no limit.
        max_output_chars: Maximum number of code points of stdout, and of stderr.
        max_code_chars: Maximum number of code points of an action.
        doors: Ports of the session's loopback interface that lead to the trainer's side, each with where it leads to: the URL
            of a server (``http://``, ``https://`` or ``tcp://``), a ``ServerTarget``, or a function; see ``docs/doors.md``.
        network: What programs may reach through a proxy on the trainer's side (``Egress``), for which their environment
            variables are set; None for nothing. A str is the Docker network of the sandbox: an option of ``SandboxConfig``.
        variables: Environment variables of all programs of the session.
    """

    render_mode: str | None = None
    show_value: bool = True
    backend: str | None = None
    results: bool = False
    screen: ScreenOption = "auto"
    window_manager: bool = False
    capture: str = Capture.AUTO
    on_idle: str = OnIdle.CLOSE
    max_watch: float | None = None
    frames: float | None = None
    widgets: bool = False
    step_timeout: float = 30.0
    cpu_timeout: float | None = None
    max_output_chars: int = 16_384
    max_code_chars: int = 100_000
    doors: Mapping[int, DoorTarget] = field(default_factory=dict, hash=False)
    network: Egress | None = field(default=None, hash=False)
    variables: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        check_one_of("render_mode", self.render_mode, dict.fromkeys([HUMAN, *RENDER_MODES]), optional=True)
        object.__setattr__(self, "screen", _check_screen(self.screen))
        object.__setattr__(self, "capture", check_choice("capture", self.capture, Capture))
        object.__setattr__(self, "on_idle", check_choice("on_idle", self.on_idle, OnIdle))
        if self.max_watch is not None:
            object.__setattr__(self, "max_watch", check_seconds("max_watch", self.max_watch))
        self._check_frames()
        self._check_screen_available()
        object.__setattr__(self, "step_timeout", check_seconds("step_timeout", self.step_timeout))
        if self.cpu_timeout is not None:
            object.__setattr__(self, "cpu_timeout", check_seconds("cpu_timeout", self.cpu_timeout))
        check_count("max_output_chars", self.max_output_chars, 256)
        check_count("max_code_chars", self.max_code_chars, 1)
        check_doors(self.doors)
        if not isinstance(self.network, Egress | None):
            message = f"Expected network= to be an Egress, the name of a Docker network, or None, got {self.network!r:.200}"
            raise ConfigurationError(message)
        check_doors(self.all_doors)
        check_variables("variables", self.variables)
        if self.backend is not None:
            check_backend(self.backend)

    @property
    def all_doors(self) -> dict[int, DoorTarget]:
        """The doors, with that of the network.

        Raises:
            ConfigurationError: If two have the same port.
        """
        doors = {**self.doors}
        if self.network is not None:
            if self.network.port in doors:
                message = f"Expected the network's proxy at a port without another door, got port {self.network.port} for both"
                raise ConfigurationError(message)
            doors[self.network.port] = self.network
        return doors

    @property
    def all_variables(self) -> dict[str, str]:
        """The environment variables, with those of the network."""
        if self.network is None:
            return dict(self.variables)
        return {**proxy_variables(self.network.port), **self.variables}

    def check_without_window(self) -> None:
        """Raise if the options require a window.

        Raises:
            ConfigurationError: If they do.
        """
        if self.render_mode == HUMAN:
            message = "render_mode='human' is for one CodingEnv: vector and asynchronous ones have 'ansi' and 'rgb_array'"
            raise ConfigurationError(message)

    @property
    def screen_size(self) -> tuple[int, int] | None:
        """Width and height of the screenshot in pixels, None without a screen."""
        return DEFAULT_SCREEN if isinstance(self.screen, str) else self.screen

    def _check_frames(self) -> None:
        rate = self.frames
        valid = isinstance(rate, (int, float)) and not isinstance(rate, bool) and 0 < rate <= _MAX_FRAME_RATE
        if rate is not None and not valid:
            message = f"Expected frames= to be a rate of at most {_MAX_FRAME_RATE} per second, or None, got {rate!r}"
            raise ConfigurationError(message)

    def _check_screen_available(self) -> None:
        requiring = {
            "window_manager=True": self.window_manager,
            "capture='always'": self.capture == Capture.ALWAYS,
            "frames=": self.frames is not None,
            "widgets=True": self.widgets,
        }
        names = [name for name, is_set in requiring.items() if is_set]
        if self.screen is None and names:
            message = f"Expected a screen for {', '.join(names)}, got screen=None: leave screen= out, or pass (width, height)"
            raise ConfigurationError(message)


class EnvKwargs(TypedDict, total=False):
    """The fields of ``EnvOptions`` as keyword arguments."""

    render_mode: str | None
    screen: ScreenOption
    window_manager: bool
    capture: str
    on_idle: str
    max_watch: float | None
    frames: float | None
    widgets: bool
    step_timeout: float
    cpu_timeout: float | None
    max_output_chars: int
    max_code_chars: int
    doors: Mapping[int, DoorTarget]
    variables: Mapping[str, str]
    show_value: bool
    backend: str | None
    results: bool


class CodingEnvKwargs(EnvKwargs, SandboxKwargs, total=False):
    """Keyword arguments of an environment: its options, and those of its sandbox.

    ``network`` is an ``Egress``, of the environment, or the name of a Docker network, of the sandbox.

    Attributes:
        python: Absolute path of another CPython of the sandbox, 3.5 or later, that executes the code: short for
            ``backend="python:PATH"``.
    """

    python: str | os.PathLike[str] | None


_ENV_OPTIONS = frozenset(field.name for field in fields(EnvOptions))


def split_options(options: Mapping[str, Any], kind: type, base: type) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split options of a constructor into those of the environment and those of the sandbox.

    Args:
        options: The options.
        kind: Class of the environment, for the list of valid names.
        base: Its base class that takes ``options``.

    Raises:
        ConfigurationError: If one is unknown, or both ``backend`` and ``python`` are given.
    """
    check_names(options, {*CodingEnvKwargs.__annotations__, *parameter_names(kind, base)})
    sandbox_options = dict(options)
    python = sandbox_options.pop("python", None)
    own = {name: sandbox_options.pop(name) for name in options if name in _ENV_OPTIONS and not _is_of_sandbox(name, options)}
    if python is not None:
        if own.get("backend") is not None:
            message = f"Expected python= or backend=, got python={python!r} and backend={own['backend']!r}"
            raise ConfigurationError(message)
        own["backend"] = f"{PYTHON_PREFIX}{_path(python)}"
    return own, sandbox_options


def _is_of_sandbox(name: str, options: Mapping[str, Any]) -> bool:
    """Return whether an option that both have is meant for the sandbox."""
    return name == "network" and (options[name] is None or isinstance(options[name], str))


def _path(python: Any) -> str:
    try:
        return os.fsdecode(python)
    except TypeError:
        message = f"Expected python= to be the path of an interpreter, got {python!r}"
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
