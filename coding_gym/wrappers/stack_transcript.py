"""``StackTranscript``: the last steps as text."""

from __future__ import annotations

from collections import deque
from typing import Any

import gymnasium as gym
from gymnasium.utils import RecordConstructorArgs

from coding_gym.episode import Info
from coding_gym.rendering import Turn, format_transcript
from coding_gym.settings import check_count
from coding_gym.spaces import CodeText
from coding_gym.wrappers.histories import with_entry

__all__ = ["StackTranscript"]


class StackTranscript(gym.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    r"""Adds what the last steps ran and printed, as a session at the prompt would look.

    Observation:
        The wrapped environment's, with ``transcript``: ``CodeText(max_chars)``, empty at a reset.

    Args:
        env: An environment that runs text, and shows ``stdout``, ``stderr`` and ``exit_code``.
        steps: How many steps it goes back.
        max_chars: The most code points; of a longer transcript the end is kept.

    Raises:
        ConfigurationError: A number is not a positive whole one, or it is no such environment.

    Example:
        >>> env = StackTranscript(gym.make("CodingEnv-v0"), steps=2)
        >>> observation, info = env.reset(seed=1)
        >>> for code in ("x = 0", "x += 1", "1 / x"):
        ...     observation = env.step(code)[0]
        >>> observation["transcript"]
        '>>> x += 1\n>>> 1 / x\n1.0'
        >>> env.close()
    """

    def __init__(self, env: gym.Env[Any, Any], *, steps: int = 4, max_chars: int = 4096) -> None:
        RecordConstructorArgs.__init__(self, steps=steps, max_chars=max_chars)
        super().__init__(env)
        check_count("max_chars", max_chars, 1)
        self._turns: deque[Turn] = deque(maxlen=check_count("steps", steps, 1))
        self._max_chars = max_chars
        self.observation_space = with_entry(env, "transcript", CodeText(max_chars))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Info]:
        observation, info = self.env.reset(seed=seed, options=options)
        self._turns.clear()
        return {**observation, "transcript": ""}, info

    def step(self, action: str) -> tuple[Any, Any, bool, bool, Info]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._turns.append(Turn(action, observation["stdout"], observation["stderr"], int(observation["exit_code"])))
        transcript = format_transcript(list(self._turns))[-self._max_chars :]
        return {**observation, "transcript": transcript}, reward, terminated, truncated, info
