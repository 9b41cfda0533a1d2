"""Policies: what chooses the actions of the episodes that are collected.

An episode of a policy begins with ``Policy.begin``, which returns an actor: what is then asked for each action.
"""

from __future__ import annotations

import copy
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import msgspec
import numpy as np

from coding_gym.datasets.records import plain
from coding_gym.errors import ConfigurationError

__all__ = [
    "Actor",
    "Decision",
    "EpisodeStart",
    "FunctionPolicy",
    "Policy",
    "RandomPolicy",
    "ScriptedPolicy",
    "as_policy",
    "name_of",
]

_LARGEST_SEED = 2**31

Actor = Callable[[Any, dict[str, Any]], Any | Awaitable[Any]]
"""Takes an observation and its info; returns an action, a ``Decision``, or None to end the episode, or is awaited for it."""


@dataclass(frozen=True, kw_only=True)
class EpisodeStart:
    """What a policy is told of an episode.

    Attributes:
        index: Its number in the dataset.
        rng: Where whatever is random in the episode is to come from: the same for the same dataset's seed and ``index``.
        action_space: Of the environment.
        task_id: The task, None if the environment was told none.
    """

    index: int
    rng: np.random.Generator
    action_space: gym.Space[Any]
    task_id: str | None = None


@dataclass(frozen=True)
class Decision:
    """An action, and what else is to be recorded with it.

    Attributes:
        action: The action; None ends the episode.
        details: Data, in ``Step.decision``.
    """

    action: Any
    details: Mapping[str, Any] = field(default_factory=dict)


class Policy(ABC):
    """Chooses actions. Episodes run in several threads: what they share must bear that."""

    @abstractmethod
    def begin(self, start: EpisodeStart) -> Actor:
        """Return what acts in one episode."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Return what the manifest says of the policy, as JSON data: whoever goes on with a dataset must come with the same."""


class RandomPolicy(Policy):
    """Draws actions from the action space."""

    def begin(self, start: EpisodeStart) -> Actor:
        space = copy.deepcopy(start.action_space)
        space.seed(int(start.rng.integers(_LARGEST_SEED)))
        return lambda observation, info: space.sample()

    def describe(self) -> dict[str, Any]:
        return {"name": "random"}


class ScriptedPolicy(Policy):
    """Takes actions from lists; an episode ends with its list.

    Args:
        actions: Those of every episode.
        per_episode: A list for each episode, taken in turns.
        per_task: A list for each task.

    Raises:
        ConfigurationError: Not exactly one of them is given.

    Example:
        >>> ScriptedPolicy(["x = 6", "print(x * 7)"]).describe()["name"]
        'scripted'
    """

    def __init__(
        self,
        actions: Sequence[Any] | None = None,
        *,
        per_episode: Sequence[Sequence[Any]] | None = None,
        per_task: Mapping[str, Sequence[Any]] | None = None,
    ) -> None:
        if sum(lists is not None for lists in (actions, per_episode, per_task)) != 1 or isinstance(actions, str):
            message = "Expected a list of actions, or per_episode= with a list of lists, or per_task= with a list for each task"
            raise ConfigurationError(message)
        if per_episode is not None and not per_episode:
            message = "Expected per_episode= to have at least one list of actions"
            raise ConfigurationError(message)
        self._lists = [actions] if actions is not None else per_episode
        self._per_task = per_task

    def begin(self, start: EpisodeStart) -> Actor:
        actions = iter(self._actions(start))
        return lambda observation, info: next(actions, None)

    def describe(self) -> dict[str, Any]:
        script = self._lists if self._per_task is None else dict(self._per_task)
        encoded = msgspec.msgpack.encode(plain(script), order="deterministic")
        return {"name": "scripted", "sha256": hashlib.sha256(encoded).hexdigest()}

    def _actions(self, start: EpisodeStart) -> Sequence[Any]:
        if self._per_task is not None:
            if start.task_id is None or start.task_id not in self._per_task:
                message = f"There is no list of actions for task {start.task_id!r} in per_task="
                raise ConfigurationError(message)
            return self._per_task[start.task_id]
        assert self._lists is not None
        return self._lists[start.index % len(self._lists)]


class FunctionPolicy(Policy):
    """Asks a function.

    Args:
        function: Called with observation, info and the episode's generator; returns what an ``Actor`` does. It may be a
            coroutine function, and may block: other episodes go on.
        name: What the manifest calls it; its own name if None.
    """

    def __init__(self, function: Callable[[Any, dict[str, Any], np.random.Generator], Any], *, name: str | None = None) -> None:
        self._function = function
        self._name = name or name_of(function)

    def begin(self, start: EpisodeStart) -> Actor:
        function, rng = self._function, start.rng
        return lambda observation, info: function(observation, info, rng)

    def describe(self) -> dict[str, Any]:
        return {"name": self._name}


def as_policy(policy: Any) -> Policy:
    """Return what is meant by a policy: one, ``"random"``, a list of actions, or a function.

    Raises:
        ConfigurationError: Nothing is.
    """
    if isinstance(policy, Policy):
        return policy
    if isinstance(policy, str) and policy == "random":
        return RandomPolicy()
    if callable(policy):
        return FunctionPolicy(policy)
    if isinstance(policy, (list, tuple)):
        return ScriptedPolicy(policy)
    message = (
        f"Expected a Policy, 'random', a list of actions, or a function of observation, info and a random generator, "
        f"got {policy!r:.200}"
    )
    raise ConfigurationError(message)


def name_of(thing: Any) -> str:
    """Return what a manifest calls a function, a class, or an object."""
    kind = thing if hasattr(thing, "__qualname__") else type(thing)
    return f"{kind.__module__}.{kind.__qualname__}"
