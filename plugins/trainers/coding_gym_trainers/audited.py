"""Verifiers of trainers for ``coding-gym audit``: reward functions of TRL, and tasksets of verifiers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from coding_gym.errors import ConfigurationError
from coding_gym.plugins import import_extra, import_named
from coding_gym.tasks import Task

__all__ = ["taskset", "trl"]

Judge = Callable[[Task, str], float | None]


def trl(name: str) -> Judge:
    """Return a function that calls a reward function as TRL does, with one completion.

    The arguments are ``prompts``, ``completions`` (a Python block each), and the columns ``task_id``, ``entry_point``,
    ``tests`` (the text of the tests) and ``reference``.

    Args:
        name: ``MODULE:NAME`` of the reward function.

    Raises:
        ConfigurationError: If it cannot be imported.
    """
    function = import_named(name, "a reward function")

    def judge(task: Task, code: str) -> float | None:
        cases = getattr(task.tests, "cases", ())
        (reward,) = function(
            prompts=[task.prompt],
            completions=[_reply(task, code)],
            task_id=[task.id],
            entry_point=[task.entry_point],
            tests=[getattr(task.tests, "source", "") or "\n".join(str(case) for case in cases)],
            reference=[task.reference],
        )
        return None if reward is None else float(reward)

    return judge


def taskset(name: str) -> Judge:
    """Return a function that scores a reply with the rewards of a taskset of verifiers, without a model or a container.

    The taskset's task is the one whose ``id``, ``name`` or prompt is that of the suite's task.

    Args:
        name: Id of the taskset, as verifiers' evaluation accepts it: the name of a package that exports it.

    Raises:
        ConfigurationError: If there is no such taskset.
    """
    vf: Any = import_extra("verifiers.v1", extra="verifiers")
    loaders = import_extra("verifiers.v1.utils.loaders", extra="verifiers")
    try:
        loaded = loaders.load_taskset(loaders.taskset_config_type(name)(id=name))
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        message = f"Expected the id of a taskset of verifiers, got {name!r}: {error}"
        raise ConfigurationError(message) from error
    known: dict[str, Any] = {}
    for task in loaded:
        for key in (getattr(task.data, "id", None), task.data.name, task.data.prompt):
            if isinstance(key, str):
                known.setdefault(key, task)

    def judge(task: Task, code: str) -> float | None:
        theirs = known.get(task.id) or known.get(task.prompt)
        if theirs is None:
            message = f"The taskset has no task with the id or the prompt of {task.id!r}"
            raise ConfigurationError(message)
        trace = _trace(vf, theirs, task.prompt, _reply(task, code))
        asyncio.run(theirs.score(trace))
        return float(trace.reward) if trace.rewards else None

    return judge


def _trace(vf: Any, task: Any, prompt: str, reply: str) -> Any:
    """Return the record of an episode in which a model has replied once."""
    nodes = [
        vf.MessageNode(message=vf.UserMessage(content=prompt)),
        vf.MessageNode(message=vf.AssistantMessage(content=reply), parent=0, sampled=True),
    ]
    recorded = vf.TraceTask(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash)
    return vf.Trace(task=recorded, agent=vf.AgentInfo(config=vf.AgentConfig(runtime=vf.SubprocessConfig())), nodes=nodes)


def _reply(task: Task, code: str) -> str:
    return f"```python\n{task.submission(code)}\n```"
