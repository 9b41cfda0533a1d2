"""``PlayProgram``: a program with a window as an environment of pixels and a few keys, for classic RL."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, cast

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs
from numpy.typing import NDArray

from coding_gym import inputs
from coding_gym.episode import Info, Obs
from coding_gym.errors import ConfigurationError, InvalidActionError
from coding_gym.gui_env import CodingEnvGUI, GuiAction
from coding_gym.inputs import InputEvent
from coding_gym_server.protocol import Outcome

__all__ = ["PlayProgram", "check_pair"]

_DRAWN_WITHIN = 2.0
"""Seconds that a program has to draw something, once it has a window; then a black picture is what there is."""


class PlayProgram(gym.Wrapper[Any, Any, Obs, GuiAction], RecordConstructorArgs):
    """Starts a program at each reset, and plays it: what it shows, scaled down, for a key or a click a step.

    The program runs in real time: it does not wait while the agent thinks.

    Action:
        ``Discrete``: 0 does nothing, then one number for each of ``keys``, which is held during the step, then one for each
        cell of ``grid``, row by row from the top, whose middle is clicked.

    Observation:
        ``Box`` of uint8 with shape (height, width, 3) of ``resolution``.

    Reward:
        What ``reward`` makes of the observation that the wrapped environment gives, else 0.

    Episode end:
        Terminated when the program has ended.

    Info:
        What the wrapped environment gives, and ``stdout`` and ``stderr``: what the program printed during the step.

    Args:
        env: A ``CodingEnvGUI``. Make it with ``settle=0``: a step lasts as long as ``hold`` and that.
        program: Its source text.
        keys: The names of keys, or of chords.
        grid: Columns and rows that the screen is divided into for clicks; None for no clicks.
        resolution: Width and height of the observation in pixels.
        hold: Seconds that a step lasts, and a key is held.
        reward: Makes a reward of what the wrapped environment observes, of the score that a game prints for example.

    Raises:
        ConfigurationError: A setting cannot be.

    Example:
        >>> env = gym.make("CodingEnvGUI-v0", settle=0)
        >>> env = PlayProgram(env, "import pygame ...", keys=["Left", "Right", "space"], grid=(8, 6))
        >>> env.action_space, env.observation_space
        (Discrete(52), Box(0, 255, (84, 84, 3), uint8))
    """

    def __init__(
        self,
        env: gym.Env[Obs, GuiAction],
        program: str,
        *,
        keys: Sequence[str] = (),
        grid: tuple[int, int] | None = None,
        resolution: tuple[int, int] = (84, 84),
        hold: float = 1 / 60,
        reward: Callable[[Obs], float] | None = None,
    ) -> None:
        RecordConstructorArgs.__init__(
            self, program=program, keys=keys, grid=grid, resolution=resolution, hold=hold, reward=reward
        )
        super().__init__(env)
        screen = _screen_of(env.unwrapped)
        self._program = program
        self._resolution = check_pair("resolution", resolution)
        self._reward = reward
        self._events = _controls(keys, grid, screen, hold)
        width, height = self._resolution
        self.action_space = spaces.Discrete(len(self._events))
        self.observation_space = spaces.Box(0, 255, (height, width, 3), np.uint8)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[NDArray[np.uint8], Info]:
        """Begin an episode, and start the program.

        Raises:
            ConfigurationError: The program ended, rather than to show a window and wait for events.
        """
        self.env.reset(seed=seed, options=options)
        obs, _, _, _, info = self.env.step({"code": self._program, "events": []})
        if info["outcome"] != Outcome.RUNNING:
            message = (
                "Expected a program that shows a window and goes on until it is closed, but it ended "
                f"(outcome {info['outcome']}, exit code {obs['exit_code']}): {obs['stderr'] or obs['stdout']}"
            )
            raise ConfigurationError(message)
        # Its window may be there before there is something in it.
        deadline = time.monotonic() + _DRAWN_WITHIN
        while info["outcome"] == Outcome.RUNNING and not obs["screenshot"].any() and time.monotonic() < deadline:
            obs, _, _, _, info = self.env.step({"code": "", "events": self.events_of(0)})
        return self._observe(obs), _with_output(info, obs)

    def step(self, action: np.int64) -> tuple[NDArray[np.uint8], float, bool, bool, Info]:
        """Do what ``action`` stands for.

        Raises:
            InvalidActionError: It is not in the action space.
        """
        if action not in self.action_space:
            message = f"Expected an action of 0 to {len(self._events) - 1}, got {action!r}"
            raise InvalidActionError(message)
        obs, _, terminated, truncated, info = self.env.step({"code": "", "events": self.events_of(int(action))})
        reward = 0.0 if self._reward is None else float(self._reward(obs))
        has_ended = info["outcome"] != Outcome.RUNNING and not truncated
        return self._observe(obs), reward, terminated or has_ended, truncated, _with_output(info, obs)

    def events_of(self, action: int) -> list[InputEvent]:
        """Return what hands do for an action."""
        return list(self._events[action])

    def _observe(self, obs: Obs) -> NDArray[np.uint8]:
        from PIL import Image

        image = Image.fromarray(obs["screenshot"]).resize(self._resolution, Image.Resampling.BOX)
        return np.array(image)


def _screen_of(env: Any) -> tuple[int, int]:
    if not isinstance(env, CodingEnvGUI):
        message = f"Expected a CodingEnvGUI to play in, got {env!r}: gym.make('CodingEnvGUI-v0', settle=0)"
        raise ConfigurationError(message)
    size = env.settings.screen_size
    assert size is not None
    return size


def _controls(keys: Any, grid: Any, screen: tuple[int, int], hold: float) -> list[list[InputEvent]]:
    """Return what each action does."""
    if isinstance(keys, str):
        message = f"Expected keys= to be a list of names such as ['Left', 'space'], got {keys!r}"
        raise ConfigurationError(message)
    try:
        pause = inputs.wait(hold)
        events = [[pause], *([inputs.key_down(key), pause, inputs.key_up(key)] for key in keys)]
    except InvalidActionError as error:
        message = f"keys= and hold=: {error}"
        raise ConfigurationError(message) from None
    if grid is not None:
        columns, rows = check_pair("grid", grid)
        middles = [
            ((2 * column + 1) * screen[0] // (2 * columns), (2 * row + 1) * screen[1] // (2 * rows))
            for row in range(rows)
            for column in range(columns)
        ]
        events += [[inputs.click(x, y), pause] for x, y in middles]
    return events


def check_pair(name: str, value: Any) -> tuple[int, int]:
    """Return ``value`` if it is two positive whole numbers.

    Raises:
        ConfigurationError: It is not.
    """
    try:
        first, second = value
    except (TypeError, ValueError):
        first = second = None
    if not all(isinstance(side, int) and side > 0 for side in (first, second)):
        message = f"Expected {name}= to be two positive whole numbers, got {value!r}"
        raise ConfigurationError(message)
    return cast(tuple[int, int], (first, second))


def _with_output(info: Info, obs: Obs) -> Info:
    return {**info, "stdout": obs["stdout"], "stderr": obs["stderr"]}
