"""``PlayProgram``: a GUI program as an environment with pixels and discrete actions."""

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
from coding_gym.envs.episode import Info, Obs
from coding_gym.envs.gui_env import CodingEnvGUI, GuiAction
from coding_gym.errors import ConfigurationError, InvalidActionError
from coding_gym.inputs import InputEvent
from coding_gym_server.protocol import Outcome

__all__ = ["PlayProgram", "check_pair"]

_DRAW_TIMEOUT = 2.0
"""Seconds to wait, once a program has a window, for a screen that is not black."""


class PlayProgram(gym.Wrapper[Any, Any, Obs, GuiAction], RecordConstructorArgs):
    """Starts a program at each reset; each step presses a key or clicks, and observes the scaled screen.

    The program runs in real time: it does not wait for the agent.

    Action:
        ``Discrete``: 0 is a no-op; then one action for each of ``keys``, held during the step; then one for each cell of
        ``grid``, row by row from the top, whose center is clicked.

    Observation:
        ``Box`` of uint8 with shape (height, width, 3) of ``resolution``.

    Reward:
        ``reward`` of the wrapped environment's observation; 0 without it.

    Episode end:
        Terminated when the program has ended.

    Info:
        The wrapped environment's, plus ``stdout`` and ``stderr``: the program's output during the step.

    Args:
        env: A ``CodingEnvGUI``. Use ``settle=0``: a step lasts for ``hold`` plus ``settle``.
        program: Source text of the program.
        keys: Names of keys or chords.
        grid: Number of columns and rows of click positions; None for no clicks.
        resolution: Width and height of the observation in pixels.
        hold: Duration of a step, during which a key is held, in seconds.
        reward: Computes the reward from the wrapped environment's observation, such as from a score that a game prints.

    Raises:
        ConfigurationError: If an option is invalid.

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
            ConfigurationError: If the program ends, rather than showing a window and waiting for events.
        """
        self.env.reset(seed=seed, options=options)
        obs, _, _, _, info = self.env.step({"code": self._program, "events": []})
        if info["outcome"] != Outcome.RUNNING:
            message = (
                "Expected a program that shows a window and runs until it is closed, but it ended "
                f"(outcome {info['outcome']}, exit code {obs['exit_code']}): {obs['stderr'] or obs['stdout']}"
            )
            raise ConfigurationError(message)
        # A window may be mapped before the program draws in it.
        deadline = time.monotonic() + _DRAW_TIMEOUT
        while info["outcome"] == Outcome.RUNNING and not obs["screenshot"].any() and time.monotonic() < deadline:
            obs, _, _, _, info = self.env.step({"code": "", "events": self.events_of(0)})
        return self._observe(obs), _with_output(info, obs)

    def step(self, action: np.int64) -> tuple[NDArray[np.uint8], float, bool, bool, Info]:
        """Perform the input events of ``action``.

        Raises:
            InvalidActionError: If it is not in the action space.
        """
        if action not in self.action_space:
            message = f"Expected an action of 0 to {len(self._events) - 1}, got {action!r}"
            raise InvalidActionError(message)
        obs, _, terminated, truncated, info = self.env.step({"code": "", "events": self.events_of(int(action))})
        reward = 0.0 if self._reward is None else float(self._reward(obs))
        has_ended = info["outcome"] != Outcome.RUNNING and not truncated
        return self._observe(obs), reward, terminated or has_ended, truncated, _with_output(info, obs)

    def events_of(self, action: int) -> list[InputEvent]:
        """Return the input events of an action."""
        return list(self._events[action])

    def observe_restored(self, observation: Obs) -> NDArray[np.uint8]:
        """Return the scaled screen of a restored episode; see ``coding_gym.branching``."""
        return self._observe(observation)

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
    """Return the input events of each action."""
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
    """Return ``value`` if it is a pair of positive integers.

    Raises:
        ConfigurationError: If it is not.
    """
    try:
        first, second = value
    except (TypeError, ValueError):
        first = second = None
    if not all(isinstance(side, int) and side > 0 for side in (first, second)):
        message = f"Expected {name}= to be two positive integers, got {value!r}"
        raise ConfigurationError(message)
    return cast(tuple[int, int], (first, second))


def _with_output(info: Info, obs: Obs) -> Info:
    return {**info, "stdout": obs["stdout"], "stderr": obs["stderr"]}
