"""Shared parts of the wrappers that add past steps to observations."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from gymnasium import spaces

from coding_gym.errors import ConfigurationError
from coding_gym.wrappers.actions.base import text_space_of

__all__ = ["with_entry"]

_OUTPUT = ("stdout", "stderr", "exit_code")


def with_entry(env: gym.Env[Any, Any], key: str, entry: spaces.Space[Any]) -> spaces.Dict:
    """Return an environment's observation space with an additional key.

    Raises:
        ConfigurationError: If the environment does not run code, its observations lack the output, or have that key already.
    """
    text_space_of(env)
    space = env.observation_space
    if not isinstance(space, spaces.Dict) or not all(name in space.spaces for name in _OUTPUT):
        message = (
            f"Expected an environment whose observations have {', '.join(_OUTPUT)}, as those of CodingEnv, got {space}: "
            "put wrappers that change them outside of this one"
        )
        raise ConfigurationError(message)
    if key in space.spaces:
        message = f"The observation has {key!r} already: wrap the environment once"
        raise ConfigurationError(message)
    return spaces.Dict({**space.spaces, key: entry})
