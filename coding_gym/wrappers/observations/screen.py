"""``ResizeScreen`` and ``GrayScreen``: smaller screenshots.

Gymnasium's ``ResizeObservation`` requires OpenCV, and both of its wrappers require the observation itself to be an image.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs
from gymnasium.wrappers import TransformObservation
from numpy.typing import NDArray

from coding_gym.errors import ConfigurationError
from coding_gym.wrappers.play_program import check_pair

__all__ = ["GrayScreen", "ResizeScreen"]

_SCREEN = "screenshot"

_Picture = NDArray[np.uint8]


class ResizeScreen(TransformObservation[Any, Any, Any], RecordConstructorArgs):
    """Scales the screenshot of an observation; each pixel is the mean of the pixels that it covers (box filter).

    Observation:
        The wrapped environment's, with a ``screenshot`` of uint8 and shape (height, width, 3), or (height, width, 1) or
        (height, width) if it was grayscale.

    Args:
        env: An environment whose observations have a ``screenshot``.
        size: Width and height in pixels.

    Raises:
        ConfigurationError: If there is no screenshot, or the size is not a pair of positive integers.

    Example:
        >>> env = ResizeScreen(gym.make("CodingEnv-v0"), (84, 63))
        >>> env.observation_space["screenshot"]
        Box(0, 255, (63, 84, 3), uint8)
        >>> observation, info = env.reset(seed=1)
        >>> observation["screenshot"].shape
        (63, 84, 3)
        >>> env.close()
    """

    def __init__(self, env: gym.Env[Any, Any], size: tuple[int, int]) -> None:
        RecordConstructorArgs.__init__(self, size=size)
        width, height = check_pair("size", size)
        shape = (height, width, *_screen_of(env).shape[2:])

        def resize(picture: _Picture) -> _Picture:
            from PIL import Image

            flat = picture.reshape(picture.shape[:2]) if picture.shape[2:] == (1,) else picture
            return np.array(Image.fromarray(flat).resize((width, height), Image.Resampling.BOX)).reshape(shape)

        super().__init__(env, func=_on_screen(resize), observation_space=_with_screen(env, shape))


class GrayScreen(TransformObservation[Any, Any, Any], RecordConstructorArgs):
    """Converts the screenshot of an observation to grayscale (ITU-R BT.601 luma).

    Observation:
        The wrapped environment's, with a ``screenshot`` of uint8 and shape (height, width), or (height, width, 1).

    Args:
        env: An environment whose observations have a ``screenshot`` in color.
        keep_dim: Whether to keep a last dimension of 1, as image networks expect.

    Raises:
        ConfigurationError: If there is no screenshot in color.

    Example:
        >>> env = GrayScreen(ResizeScreen(gym.make("CodingEnv-v0"), (84, 84)), keep_dim=True)
        >>> observation, info = env.reset(seed=1)
        >>> observation["screenshot"].shape, observation["screenshot"].dtype
        ((84, 84, 1), dtype('uint8'))
        >>> env.close()
    """

    def __init__(self, env: gym.Env[Any, Any], *, keep_dim: bool = False) -> None:
        RecordConstructorArgs.__init__(self, keep_dim=keep_dim)
        screen = _screen_of(env)
        if screen.shape[2:] != (3,):
            message = f"Expected a screenshot of shape (height, width, 3), got {screen}"
            raise ConfigurationError(message)
        shape = (*screen.shape[:2], 1) if keep_dim else screen.shape[:2]

        def to_gray(picture: _Picture) -> _Picture:
            from PIL import Image

            return np.array(Image.fromarray(picture).convert("L")).reshape(shape)

        super().__init__(env, func=_on_screen(to_gray), observation_space=_with_screen(env, shape))


def _screen_of(env: gym.Env[Any, Any]) -> spaces.Box:
    space = env.observation_space
    screen = space.spaces.get(_SCREEN) if isinstance(space, spaces.Dict) else None
    if not isinstance(screen, spaces.Box):
        message = (
            f"Expected an environment whose observations have a {_SCREEN!r}, got {space}: make it with screen=(width, height)"
        )
        raise ConfigurationError(message)
    return screen


def _with_screen(env: gym.Env[Any, Any], shape: tuple[int, ...]) -> spaces.Dict:
    assert isinstance(env.observation_space, spaces.Dict)
    return spaces.Dict({**env.observation_space.spaces, _SCREEN: spaces.Box(0, 255, shape, np.uint8)})


def _on_screen(change: Callable[[_Picture], _Picture]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda observation: {**observation, _SCREEN: change(observation[_SCREEN])}
