"""``TokenActions``: code as a token sequence over a small vocabulary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs

from coding_gym._validation import check_count
from coding_gym.errors import ConfigurationError
from coding_gym.wrappers.actions.base import CodeActions, text_space_of

__all__ = ["TokenActions"]


class TokenActions(CodeActions):
    """Maps sequences of token ids to code.

    Action:
        ``MultiDiscrete`` of shape (length,), int64: token ids, which index the vocabulary; with ``end`` one more id, equal
        to the size of the vocabulary, ends the sequence.

    Args:
        env: An environment whose actions are text.
        vocabulary: The tokens.
        length: Number of tokens of an action.
        join: Separator between tokens.
        end: Whether there is a token id that ends the sequence early.

    Attributes:
        vocabulary: The tokens.

    Raises:
        ConfigurationError: If the vocabulary is empty, the longest code exceeds the environment's maximum length, or its
            actions are not text.

    Example:
        >>> env = TokenActions(gym.make("CodingEnv-v0"), ["1", "2", "+", "*"], length=5)
        >>> env.action_space
        MultiDiscrete([5 5 5 5 5])
        >>> env.code_of([1, 3, 1, 4, 0])
        '2*2'
        >>> observation, info = env.reset(seed=1)
        >>> env.step(np.array([1, 3, 1, 4, 0]))[0]["stdout"].strip()
        '4'
        >>> env.close()
    """

    def __init__(
        self, env: gym.Env[Any, Any], vocabulary: Sequence[str], *, length: int, join: str = "", end: bool = True
    ) -> None:
        RecordConstructorArgs.__init__(self, vocabulary=vocabulary, length=length, join=join, end=end)
        check_count("length", length, 1)
        code_space = text_space_of(env)
        if isinstance(vocabulary, str) or not vocabulary or not all(word in code_space for word in (*vocabulary, join)):
            message = f"Expected vocabulary= to be a list of words that are in {code_space}, got {vocabulary!r:.200}"
            raise ConfigurationError(message)
        longest = length * max(map(len, vocabulary)) + (length - 1) * len(join)
        if longest > code_space.max_length:
            message = (
                f"{length} words can be {longest} characters long, and an action at most {code_space.max_length}: lower length="
            )
            raise ConfigurationError(message)
        self.vocabulary = tuple(vocabulary)
        self._join = join
        super().__init__(env, spaces.MultiDiscrete(np.full(length, len(vocabulary) + bool(end))))

    def code_of(self, action: Any) -> str:
        """Return the code that an action encodes."""
        numbers = [int(number) for number in action]
        if len(self.vocabulary) in numbers:
            numbers = numbers[: numbers.index(len(self.vocabulary))]
        return self._join.join(self.vocabulary[number] for number in numbers)
