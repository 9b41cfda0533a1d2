"""Conversion of episodes to conversations: observations become user messages, and actions assistant messages."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from coding_gym.datasets.episode import Episode, plain

__all__ = [
    "SYSTEM_PROMPT",
    "Message",
    "action_text",
    "conversation",
    "first_text",
    "observation_text",
]

SYSTEM_PROMPT = (
    "You work with a persistent Python interpreter. Answer with one block of code between ```python and ```. It is run, and "
    "you are shown what it printed; what it defined stays defined. Continue until the task is done."
)

Message = dict[str, Any]
"""Chat message with ``role`` and ``content``, as chat endpoints and chat templates expect it."""

_DEFAULT_PROMPT = "Begin."


def observation_text(observation: Any, info: Mapping[str, Any]) -> str:
    """Return the user message for an observation: the output of the code, its exit code if nonzero, and the test results.

    Args:
        observation: Observation of ``CodingEnv`` or a similar environment. Text is returned as is, others as JSON.
        info: Info returned with the observation.
    """
    if not isinstance(observation, Mapping):
        return observation if isinstance(observation, str) else _json(observation)
    if "stdout" not in observation:
        return _json({name: value for name, value in observation.items() if name != "screenshot"})
    parts = [str(observation["stdout"]), str(observation.get("stderr", ""))]
    if observation.get("exit_code"):
        parts.append(f"[exit code {int(observation['exit_code'])}]")
    if info.get("graded"):
        parts.append(f"[{info['tests_passed']} of {info['tests_total']} tests passed]")
    return "\n".join(part.rstrip("\n") for part in parts if part) or "[no output]"


def first_text(observation: Any, info: Mapping[str, Any]) -> str:
    """Return the first user message: the prompt of the task, if it has one."""
    if isinstance(observation, Mapping):
        prompt = observation.get("prompt")
        if prompt:
            return str(prompt)
        if "stdout" in observation and not observation["stdout"]:
            return _DEFAULT_PROMPT
    return observation_text(observation, info)


def action_text(action: Any) -> str:
    """Return the assistant message for an action: a fenced block of Python, or of JSON if the action is not just code."""
    if isinstance(action, str):
        return _fence("python", action)
    return _fence("json", _json(action))


def conversation(episode: Episode, *, system: str | None = None) -> list[Message]:
    """Return an episode as a list of messages that ends with the last action.

    Messages recorded by a chat policy are reproduced verbatim; the actions of other policies become fenced code blocks.

    Args:
        episode: Episode to convert.
        system: System prompt for policies other than chat models; ``SYSTEM_PROMPT`` if None, no prompt if empty.
    """
    messages: list[Message] = []
    for before, step in zip(episode.steps, episode.steps[1:], strict=False):
        decision = step.decision or {}
        if "content" in decision and "messages" in decision:
            messages += [*decision["messages"], {"role": "assistant", "content": decision["content"]}]
            continue
        if not messages:
            prompt = SYSTEM_PROMPT if system is None else system
            messages += [{"role": "system", "content": prompt}] if prompt else []
            messages.append({"role": "user", "content": first_text(before.observation, before.info)})
        else:
            messages.append({"role": "user", "content": observation_text(before.observation, before.info)})
        messages.append({"role": "assistant", "content": action_text(step.action)})
    return messages


def _fence(language: str, text: str) -> str:
    # A fence ends at a line with as many backticks: it must be longer than any run in the text.
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text}{'' if text.endswith(chr(10)) else chr(10)}{fence}"


def _json(value: Any) -> str:
    return json.dumps(plain(value), ensure_ascii=False, default=lambda array: getattr(array, "tolist", str)())
