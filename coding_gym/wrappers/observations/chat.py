"""``ChatObservation``: the episode as chat messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym
from gymnasium.utils import RecordConstructorArgs

from coding_gym._validation import check_count
from coding_gym.envs.episode import Info
from coding_gym.errors import ConfigurationError
from coding_gym.spaces import ChatMessages
from coding_gym.wrappers.observations.history import with_entry

__all__ = ["ChatObservation", "describe_output"]

_PROMPT = "prompt"


def describe_output(observation: Mapping[str, Any]) -> str:
    r"""Format the output of a step as a single text.

    Example:
        >>> describe_output({"stdout": "1\n", "stderr": "oops\n", "exit_code": 1})
        '1\noops\n[exit code 1]'
        >>> describe_output({"stdout": "", "stderr": "", "exit_code": 0})
        '[no output]'
    """
    exit_code = f"[exit code {observation['exit_code']}]" if observation["exit_code"] else ""
    parts = [part.rstrip("\n") for part in (observation["stdout"], observation["stderr"], exit_code) if part]
    return "\n".join(parts) or "[no output]"


class ChatObservation(gym.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    r"""Adds the episode as chat messages: a system message, a prompt, then each action and its output.

    Apply it outside of ``FencedCode``, so that the model reads its complete replies.

    Observation:
        The wrapped environment's, plus ``messages``: ``ChatMessages``, a tuple of ``{"role": ..., "content": ...}``; the roles
        are ``system``, ``user`` and ``assistant``.

    Args:
        env: An environment whose actions are text and whose observations contain ``stdout``, ``stderr`` and ``exit_code``.
        system: System message; None for none.
        prompt: First user message; if None, the ``prompt`` of the observation, if there is one.
        turns: Number of most recent steps to include; all if None. The system message and the prompt are always included.
        describe: Formats an observation as a message; ``describe_output`` if None.

    Raises:
        ConfigurationError: If an option is invalid, or the environment does not meet these requirements.

    Example:
        >>> env = ChatObservation(gym.make("CodingEnv-v0"), prompt="What is 6 * 7?")
        >>> observation, info = env.reset(seed=1)
        >>> observation["messages"]
        ({'role': 'user', 'content': 'What is 6 * 7?'},)
        >>> env.step("print(6 * 7)")[0]["messages"][1:]
        ({'role': 'assistant', 'content': 'print(6 * 7)'}, {'role': 'user', 'content': '42'})
        >>> env.close()
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        *,
        system: str | None = None,
        prompt: str | None = None,
        turns: int | None = None,
        describe: Callable[[Mapping[str, Any]], str] | None = None,
    ) -> None:
        RecordConstructorArgs.__init__(self, system=system, prompt=prompt, turns=turns, describe=describe)
        super().__init__(env)
        for name, text in (("system", system), ("prompt", prompt)):
            if not isinstance(text, str | None):
                message = f"Expected {name}= to be text, got {text!r:.200}"
                raise ConfigurationError(message)
        self._max_messages = None if turns is None else 2 * check_count("turns", turns, 1)
        self._system = system
        self._prompt = prompt
        self._describe = describe or describe_output
        self._opening: list[tuple[str, str]] = []
        self._turns: list[tuple[str, str]] = []
        self.observation_space = with_entry(env, "messages", ChatMessages())

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Info]:
        observation, info = self.env.reset(seed=seed, options=options)
        prompt = observation.get(_PROMPT) if self._prompt is None else self._prompt
        self._opening = [(role, text) for role, text in (("system", self._system), ("user", prompt)) if text is not None]
        self._turns = []
        return self._with_messages(observation), info

    def step(self, action: str) -> tuple[Any, Any, bool, bool, Info]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._turns += [("assistant", action), ("user", self._describe(observation))]
        return self._with_messages(observation), reward, terminated, truncated, info

    def observe_restored(self, observation: dict[str, Any]) -> dict[str, Any]:
        """Add the messages of a restored episode to its observation; see ``coding_gym.branching``."""
        return self._with_messages(observation)

    def _with_messages(self, observation: dict[str, Any]) -> dict[str, Any]:
        later = self._turns if self._max_messages is None else self._turns[-self._max_messages :]
        return {**observation, "messages": tuple({"role": role, "content": text} for role, text in (*self._opening, *later))}
