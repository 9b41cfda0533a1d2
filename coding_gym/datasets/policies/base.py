"""Policies, which choose the actions of collected episodes.

Each episode begins with ``Policy.begin``, which returns an actor: a callable that is called for each action.
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

from coding_gym.datasets.episode import plain
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

_SEED_RANGE = 2**31

Actor = Callable[[Any, dict[str, Any]], Any | Awaitable[Any]]
"""Callable of an observation and its info that returns, or returns an awaitable of, an action, a ``Decision``, or None.

None ends the episode.
"""


@dataclass(frozen=True, kw_only=True)
class EpisodeStart:
    """Information that a policy receives at the start of an episode.

    Attributes:
        index: Index of the episode in the dataset.
        rng: Random generator for all randomness in the episode, determined by the dataset's seed and ``index``.
        action_space: Action space of the environment.
        task_id: Id of the task; None in an environment without tasks if none was passed.
    """

    index: int
    rng: np.random.Generator
    action_space: gym.Space[Any]
    task_id: str | None = None


@dataclass(frozen=True)
class Decision:
    """Action, with further data to record.

    Attributes:
        action: Action to take; None ends the episode.
        details: Serializable data, recorded as ``Step.decision``.
    """

    action: Any
    details: Mapping[str, Any] = field(default_factory=dict)


class Policy(ABC):
    """Base class of policies. Episodes run in several threads: state that they share must be thread-safe."""

    @abstractmethod
    def begin(self, start: EpisodeStart) -> Actor:
        """Return the actor for one episode."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Return the manifest entry of the policy, as JSON data.

        A collection can only be resumed with a policy that has the same entry.
        """


class RandomPolicy(Policy):
    """Policy that samples actions from the action space."""

    def begin(self, start: EpisodeStart) -> Actor:
        space = copy.deepcopy(start.action_space)
        space.seed(int(start.rng.integers(_SEED_RANGE)))
        return lambda observation, info: space.sample()

    def describe(self) -> dict[str, Any]:
        return {"name": "random"}


class ScriptedPolicy(Policy):
    """Policy that takes actions from lists; an episode ends when its list is exhausted.

    Args:
        actions: Actions of every episode.
        per_episode: Lists of actions, assigned to the episodes round-robin.
        per_task: List of actions of each task, by task id.

    Raises:
        ConfigurationError: If not exactly one of them is passed.

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
    """Policy that calls a function for each action.

    Args:
        function: Called with the observation, the info and the episode's random generator; returns the same as an ``Actor``.
            It may be a coroutine function, and may block without holding up other episodes.
        name: Name in the manifest; the function's qualified name if None.
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
    """Return the policy for a ``Policy``, ``"random"``, a list of actions, or a function.

    Raises:
        ConfigurationError: If the argument is none of these.
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
    """Return the qualified name of a function or a class, or that of an object's class, for the manifest."""
    kind = thing if hasattr(thing, "__qualname__") else type(thing)
    return f"{kind.__module__}.{kind.__qualname__}"
