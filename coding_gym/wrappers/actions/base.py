"""Base class of wrappers that convert actions to source text."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs
from gymnasium.wrappers import TransformAction

from coding_gym.errors import ConfigurationError, InvalidActionError

__all__ = ["CodeActions", "text_space_of"]


class CodeActions(TransformAction[Any, Any, Any], RecordConstructorArgs):
    """Base class of wrappers whose actions encode source text.

    Args:
        env: An environment whose actions are text.
        space: Action space of the wrapper.
    """

    def __init__(self, env: gym.Env[Any, Any], space: spaces.Space[Any]) -> None:
        text_space_of(env)
        super().__init__(env, func=self._checked_code_of, action_space=space)

    def code_of(self, action: Any) -> str:
        """Return the source text of an action."""
        raise NotImplementedError

    def _checked_code_of(self, action: Any) -> str:
        if action not in self.action_space:
            message = f"Expected an action in {self.action_space}, got {action!r:.200}"
            raise InvalidActionError(message)
        return self.code_of(action)


def text_space_of(env: gym.Env[Any, Any]) -> spaces.Text:
    """Return the action space of an environment whose actions are text.

    Raises:
        ConfigurationError: If they are not.
    """
    if not isinstance(env.action_space, spaces.Text):
        message = f"Expected an environment whose actions are text, as those of CodingEnv are, got {env.action_space}"
        raise ConfigurationError(message)
    return env.action_space
