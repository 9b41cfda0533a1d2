"""``ChatObservation``: the episode as messages for a chat model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym
from gymnasium.utils import RecordConstructorArgs

from coding_gym.episode import Info
from coding_gym.errors import ConfigurationError
from coding_gym.settings import check_count
from coding_gym.spaces import ChatMessages
from coding_gym.wrappers.histories import with_entry

__all__ = ["ChatObservation", "describe_output"]

_PROMPT = "prompt"


def describe_output(observation: Mapping[str, Any]) -> str:
    r"""Return what a step printed, as one text.

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
    r"""Adds the episode as the messages of a chat: a system message, a prompt, then each action and what came of it.

    Put it outside of ``FencedCode``, and the model reads all that it has said.

    Observation:
        The wrapped environment's, with ``messages``: ``ChatMessages``, a tuple of ``{"role": ..., "content": ...}``; the roles
        are ``system``, ``user`` and ``assistant``.

    Args:
        env: An environment that runs text, and shows ``stdout``, ``stderr`` and ``exit_code``.
        system: The system message; None for none.
        prompt: The first message of the user; the ``prompt`` of the observation if None, if it has one.
        turns: How many steps it goes back; all if None. The first messages stay.
        describe: Makes a message of an observation; ``describe_output`` if None.

    Raises:
        ConfigurationError: A setting cannot be, or it is no such environment.

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
        self._kept = None if turns is None else 2 * check_count("turns", turns, 1)
        self._system = system
        self._prompt = prompt
        self._describe = describe or describe_output
        self._first: list[tuple[str, str]] = []
        self._later: list[tuple[str, str]] = []
        self.observation_space = with_entry(env, "messages", ChatMessages())

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Info]:
        observation, info = self.env.reset(seed=seed, options=options)
        prompt = observation.get(_PROMPT) if self._prompt is None else self._prompt
        self._first = [(role, text) for role, text in (("system", self._system), ("user", prompt)) if text is not None]
        self._later = []
        return self._with_messages(observation), info

    def step(self, action: str) -> tuple[Any, Any, bool, bool, Info]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._later += [("assistant", action), ("user", self._describe(observation))]
        return self._with_messages(observation), reward, terminated, truncated, info

    def _with_messages(self, observation: dict[str, Any]) -> dict[str, Any]:
        later = self._later if self._kept is None else self._later[-self._kept :]
        return {**observation, "messages": tuple({"role": role, "content": text} for role, text in (*self._first, *later))}
