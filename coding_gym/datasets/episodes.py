"""Running one episode: what is planned of it, and what comes of it."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import msgspec
import numpy as np

from coding_gym.datasets.policies import Actor, Decision, EpisodeStart, Policy
from coding_gym.datasets.records import Episode, Step, plain, recordable_info
from coding_gym.errors import (
    CodingGymError,
    ConfigurationError,
    InvalidActionError,
    ProviderUnavailableError,
    StepTimeoutError,
)

__all__ = ["InfrastructureFault", "Plan", "PolicyFault", "plan_episode", "run_episode"]

_INFRASTRUCTURE = "infrastructure"
_NOT_TO_BE_RETRIED = (ConfigurationError, ProviderUnavailableError)


class InfrastructureFault(Exception):
    """The sandbox failed, not the episode: it is to be tried again."""


class PolicyFault(Exception):
    """The policy raised, or chose what is no action; ``__cause__`` is what it raised."""


@dataclass(frozen=True)
class Plan:
    """What is known of an episode before it begins.

    Attributes:
        index: Its number.
        seed: What ``reset`` is given.
        options: Likewise.
        policy_seed: What the policy's generator is made of.
    """

    index: int
    seed: int
    options: Mapping[str, Any]
    policy_seed: np.random.SeedSequence


def plan_episode(seed: int, index: int, *, options: Mapping[str, Any], tasks: Sequence[str] = ()) -> Plan:
    """Return the plan of an episode: the same for the same arguments, whatever happens around it.

    Args:
        seed: Of the dataset.
        index: The episode's number.
        options: What every episode is reset with.
        tasks: The tasks, in turns.
    """
    sequence = np.random.SeedSequence(seed, spawn_key=(index,))
    # 63 bits, for the tables that datasets end in have signed numbers.
    env_seed = int(sequence.generate_state(1, np.uint64)[0]) >> 1
    task = {"task_id": tasks[index % len(tasks)]} if tasks else {}
    return Plan(index, env_seed, {**options, **task}, sequence.spawn(1)[0])


def run_episode(
    env: gym.Env[Any, Any], plan: Plan, policy: Policy, *, max_steps: int, wait: Callable[[Awaitable[Any]], Any]
) -> Episode:
    """Run an episode to its end.

    Args:
        env: The environment.
        plan: The episode.
        policy: What chooses the actions.
        max_steps: Actions after which it is truncated.
        wait: Returns what an awaitable returns.

    Raises:
        InfrastructureFault: A sandbox failed.
        PolicyFault: The policy did.
    """
    observation, info = _guarded(env.reset, seed=plan.seed, options=dict(plan.options) or None)
    steps = [Step(observation=observation, info=recordable_info(info))]
    actor = _begin(policy, plan, env)
    while len(steps) <= max_steps:
        decision = _decide(actor, observation, info, wait)
        if decision.action is None:
            break
        observation, reward, terminated, truncated, info = _step(env, decision.action)
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
        if terminated or truncated:
            break
    if len(steps) > 1 and not steps[-1].terminated:
        steps[-1] = msgspec.structs.replace(steps[-1], truncated=True)
    return Episode(index=plan.index, seed=plan.seed, options=plain(dict(plan.options)), steps=tuple(steps))


def _begin(policy: Policy, plan: Plan, env: gym.Env[Any, Any]) -> Actor:
    rng = np.random.default_rng(plan.policy_seed)
    start = EpisodeStart(index=plan.index, rng=rng, action_space=env.action_space, task_id=plan.options.get("task_id"))
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
    """Call an environment; a fault of its sandbox is told from all others."""
    try:
        return call(*arguments, **options)
    except (InvalidActionError, StepTimeoutError, *_NOT_TO_BE_RETRIED):
        raise
    except CodingGymError as error:
        raise InfrastructureFault(str(error)) from error


def _reason(observation: Any) -> str:
    said = observation.get("stderr") if isinstance(observation, Mapping) else None
    return str(said or "the environment says so").strip()
