"""Episodes as conversations: what a model is told of an observation, and what it says for an action."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from coding_gym.datasets.records import Episode, plain

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
    "you are shown what it printed; what it defined stays defined. Go on until the task is done."
)

Message = dict[str, Any]
"""``role`` and ``content``, as chat endpoints and chat templates take it."""

_FIRST = "Begin."


def observation_text(observation: Any, info: Mapping[str, Any]) -> str:
    """Return what a model is told of an observation: the prompt of the task, or what the code printed, and its exit code.

    Args:
        observation: Of ``CodingEnv`` or one like it; another is put into JSON.
        info: Its info.
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
    """Return what a model is told in the beginning."""
    if isinstance(observation, Mapping):
        prompt = observation.get("prompt")
        if prompt:
            return str(prompt)
        if "stdout" in observation and not observation["stdout"]:
            return _FIRST
    return observation_text(observation, info)


def action_text(action: Any) -> str:
    """Return what a model would have said for an action: a block of code, or of JSON for one that is more than code."""
    if isinstance(action, str):
        return _fence("python", action)
    return _fence("json", _json(action))


def conversation(episode: Episode, *, system: str | None = None) -> list[Message]:
    """Return an episode as messages that end with the last action.

    What a chat model was sent and said is repeated; the actions of other policies become blocks of code.

    Args:
        episode: The episode.
        system: The system prompt, where the policy had none; ``SYSTEM_PROMPT`` if None, and none at all if empty.
    """
    messages: list[Message] = []
    for before, step in zip(episode.steps, episode.steps[1:], strict=False):
        said = step.decision or {}
        if "content" in said and "messages" in said:
            messages += [*said["messages"], {"role": "assistant", "content": said["content"]}]
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
    # Longer than any in the text.
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text}{'' if text.endswith(chr(10)) else chr(10)}{fence}"


def _json(value: Any) -> str:
    return json.dumps(plain(value), ensure_ascii=False, default=lambda array: getattr(array, "tolist", str)())
