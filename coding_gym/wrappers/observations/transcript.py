"""``StackTranscript``: a transcript of the last steps."""

from __future__ import annotations

from collections import deque
from typing import Any

import gymnasium as gym
from gymnasium.utils import RecordConstructorArgs

from coding_gym._validation import check_count
from coding_gym.envs.episode import Info
from coding_gym.envs.transcript import Turn, format_transcript
from coding_gym.spaces import CodeText
from coding_gym.wrappers.observations.history import with_entry

__all__ = ["StackTranscript"]


class StackTranscript(gym.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    r"""Adds a transcript of the last steps: their code and output, formatted as a REPL session.

    Observation:
        The wrapped environment's, plus ``transcript``: ``CodeText(max_chars)``, empty after a reset.

    Args:
        env: An environment whose actions are text and whose observations contain ``stdout``, ``stderr`` and ``exit_code``.
        steps: Number of most recent steps to include.
        max_chars: Maximum number of code points; a longer transcript is truncated at its beginning.

    Raises:
        ConfigurationError: If a number is not a positive integer, or the environment does not meet these requirements.

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
        return self.observe_restored(observation), reward, terminated, truncated, info

    def observe_restored(self, observation: dict[str, Any]) -> dict[str, Any]:
        """Add the transcript to an observation, such as that of a restored episode; see ``coding_gym.branching``."""
        return {**observation, "transcript": format_transcript(list(self._turns))[-self._max_chars :]}
