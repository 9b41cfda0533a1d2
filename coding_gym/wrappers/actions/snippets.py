"""``SnippetActions``: discrete actions that select code snippets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs

from coding_gym.errors import ConfigurationError
from coding_gym.wrappers.actions.base import CodeActions, text_space_of

__all__ = ["SnippetActions"]


class SnippetActions(CodeActions):
    """Maps discrete actions to code snippets.

    Action:
        ``Discrete(len(snippets))``.

    Args:
        env: An environment whose actions are text.
        snippets: Code snippets, or a mapping of names to snippets.

    Attributes:
        snippets: Snippets, indexed by action.
        names: Names of the snippets, indexed by action; the code itself if no names were given.

    Raises:
        ConfigurationError: If there are no snippets, one is not in the environment's action space, or its actions are not text.

    Example:
        >>> env = SnippetActions(gym.make("CodingEnv-v0"), {"begin": "n = 0", "count": "n += 1", "show": "print(n)"})
        >>> env.action_space, env.names[2], env.action_of("show")
        (Discrete(3), 'show', 2)
        >>> observation, info = env.reset(seed=1)
        >>> [env.step(action)[0]["stdout"] for action in (0, 1, 1, 2)][-1].strip()
        '2'
        >>> env.close()
    """

    def __init__(self, env: gym.Env[Any, Any], snippets: Sequence[str] | Mapping[str, str]) -> None:
        RecordConstructorArgs.__init__(self, snippets=snippets)
        if isinstance(snippets, str) or not snippets:
            message = f"Expected snippets= to be a list of code, or a mapping of names to code, got {snippets!r:.200}"
            raise ConfigurationError(message)
        self.names = tuple(snippets)
        self.snippets = tuple(snippets.values()) if isinstance(snippets, Mapping) else tuple(snippets)
        code_space = text_space_of(env)
        for snippet in self.snippets:
            if snippet not in code_space:
                message = f"Expected snippets that are in {code_space}, got {snippet!r:.200}"
                raise ConfigurationError(message)
        super().__init__(env, spaces.Discrete(len(self.snippets)))

    def code_of(self, action: Any) -> str:
        """Return the snippet that an action runs."""
        return self.snippets[int(action)]

    def action_of(self, name: str) -> int:
        """Return the action that runs the snippet of a name.

        Raises:
            ValueError: If there is no such snippet.
        """
        return self.names.index(name)
