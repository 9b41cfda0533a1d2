"""Planning and running a single episode."""

from __future__ import annotations

import inspect
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import gymnasium as gym
import msgspec
import numpy as np

from coding_gym.datasets.details import EpisodeDetails, StepDetails
from coding_gym.datasets.episode import Episode, Step, plain, recordable_info
from coding_gym.datasets.policies.base import Actor, Decision, EpisodeStart, Policy
from coding_gym.errors import CodingGymError, ConfigurationError, InvalidActionError, ProviderUnavailableError, StepTimeoutError

__all__ = ["EpisodePlan", "InfrastructureFault", "PolicyFault", "plan_episode", "run_episode"]

_INFRASTRUCTURE = "infrastructure"
_TIME_DIGITS = 6
_NOT_RETRIED = (ConfigurationError, ProviderUnavailableError)


class InfrastructureFault(Exception):
    """Infrastructure error: the sandbox failed rather than the episode, which should be retried."""


class PolicyFault(Exception):
    """The policy raised an exception, available as ``__cause__``, or returned an invalid action."""


@dataclass(frozen=True)
class EpisodePlan:
    """Plan of an episode, fixed before it begins.

    Attributes:
        index: Index in the dataset.
        seed: Seed passed to ``reset``.
        options: Options passed to ``reset``.
        policy_seed: Seed sequence of the policy's random generator.
    """

    index: int
    seed: int
    options: Mapping[str, Any]
    policy_seed: np.random.SeedSequence


def plan_episode(seed: int, index: int, *, options: Mapping[str, Any], tasks: Sequence[str] = ()) -> EpisodePlan:
    """Return the plan of an episode, which depends on the arguments alone.

    Args:
        seed: Seed of the dataset.
        index: Index of the episode.
        options: Reset options of every episode.
        tasks: Task ids, assigned to the episodes round-robin.
    """
    sequence = np.random.SeedSequence(seed, spawn_key=(index,))
    # 63 bits, because the tables that datasets are exported to have signed integers.
    env_seed = int(sequence.generate_state(1, np.uint64)[0]) >> 1
    task = {"task_id": tasks[index % len(tasks)]} if tasks else {}
    return EpisodePlan(index, env_seed, {**options, **task}, sequence.spawn(1)[0])


def run_episode(
    env: gym.Env[Any, Any], plan: EpisodePlan, policy: Policy, *, max_steps: int, wait: Callable[[Awaitable[Any]], Any]
) -> tuple[Episode, EpisodeDetails]:
    """Run an episode to completion, and return it with its details, which differ between identical runs.

    Args:
        env: Environment to run the episode in.
        plan: Plan of the episode.
        policy: Policy that chooses the actions.
        max_steps: Number of actions after which the episode is truncated.
        wait: Function that blocks until an awaitable completes and returns its result.

    Raises:
        InfrastructureFault: If a sandbox fails.
        PolicyFault: If the policy raises or returns an invalid action.
    """
    started = datetime.now(UTC).isoformat(timespec="seconds")
    clock = _Clock()
    observation, info = _guarded(env.reset, seed=plan.seed, options=_options_for(env, plan) or None)
    steps = [Step(observation=observation, info=recordable_info(info))]
    details = [StepDetails(seconds=clock.lap())]
    # An environment with tasks may have drawn one.
    options = {**({"task_id": str(info["task_id"])} if info.get("task_id") is not None else {}), **plan.options}
    actor = _begin(policy, plan, env, options.get("task_id"))
    while len(steps) <= max_steps:
        decision = _decide(actor, observation, info, wait)
        if decision.action is None:
            break
        policy_seconds = clock.lap()
        observation, reward, terminated, truncated, info = _step(env, decision.action)
        seconds = clock.lap()
        if info.get("outcome") == _INFRASTRUCTURE:
            raise InfrastructureFault(_reason(observation))
        steps.append(
            Step(
                observation=observation,
                action=decision.action,
                reward=float(reward),
                terminated=bool(terminated),
                truncated=bool(truncated),
                info=recordable_info(info),
                decision=dict(decision.details) or None,
            )
        )
        details.append(StepDetails(seconds=seconds, policy_seconds=policy_seconds, verdict=_verdict(env)))
        if terminated or truncated:
            break
    if len(steps) > 1 and not steps[-1].terminated:
        steps[-1] = msgspec.structs.replace(steps[-1], truncated=True)
    episode = Episode(index=plan.index, seed=plan.seed, options=plain(options), steps=tuple(steps))
    return episode, EpisodeDetails(episode=plan.index, started=started, steps=tuple(details))


class _Clock:
    """Stopwatch."""

    def __init__(self) -> None:
        self._last = time.perf_counter()

    def lap(self) -> float:
        """Return the time since the last call, or since the clock was made, in seconds."""
        previous, self._last = self._last, time.perf_counter()
        return round(self._last - previous, _TIME_DIGITS)


def _verdict(env: gym.Env[Any, Any]) -> Any:
    """Return the verdict on the last step, None if it was not graded or the environment grades nothing."""
    return getattr(env.unwrapped, "last_verdict", None)


def _options_for(env: gym.Env[Any, Any], plan: EpisodePlan) -> dict[str, Any]:
    """Return the reset options; the id of a task is only a label of the episode in an environment without tasks."""
    known = getattr(env.unwrapped, "reset_options", plan.options)
    return {name: value for name, value in plan.options.items() if name != "task_id" or name in known}


def _begin(policy: Policy, plan: EpisodePlan, env: gym.Env[Any, Any], task_id: str | None) -> Actor:
    rng = np.random.default_rng(plan.policy_seed)
    start = EpisodeStart(index=plan.index, rng=rng, action_space=env.action_space, task_id=task_id)
    try:
        return policy.begin(start)
    except Exception as error:
        raise PolicyFault from error


def _decide(actor: Actor, observation: Any, info: dict[str, Any], wait: Callable[[Awaitable[Any]], Any]) -> Decision:
    try:
        chosen = actor(observation, info)
        if inspect.isawaitable(chosen):
            chosen = wait(chosen)
    except Exception as error:
        raise PolicyFault from error
    return chosen if isinstance(chosen, Decision) else Decision(chosen)


def _step(env: gym.Env[Any, Any], action: Any) -> Any:
    try:
        return _guarded(env.step, action)
    except InvalidActionError as error:
        raise PolicyFault from error


def _guarded(call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Call an environment, converting infrastructure errors to ``InfrastructureFault``."""
    try:
        return call(*arguments, **options)
    except (InvalidActionError, StepTimeoutError, *_NOT_RETRIED):
        raise
    except CodingGymError as error:
        raise InfrastructureFault(str(error)) from error


def _reason(observation: Any) -> str:
    stderr = observation.get("stderr") if isinstance(observation, Mapping) else None
    return str(stderr or "the environment gives no reason").strip()
