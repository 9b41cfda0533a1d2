"""Wrappers that change rewards."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym
from gymnasium.utils import RecordConstructorArgs

from coding_gym.envs.episode import Info
from coding_gym.errors import ConfigurationError
from coding_gym.wrappers.terms import RewardTerm, Step, as_term
from coding_gym_server.protocol import Outcome

__all__ = ["EpisodeSteps", "PotentialShaping", "RewardSum", "TermKey", "Weight"]

TermKey = str | RewardTerm | Callable[[Step], float]
Weight = float | tuple[TermKey, float]


class EpisodeSteps(gym.Wrapper[Any, Any, Any, Any]):
    """Base class of wrappers that evaluate each step together with the previous observation.

    Args:
        env: The environment.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self._observation: Any = None
        self._info: Info | None = None
        self._number = 0

    def _begin(self, *, seed: int | None, options: dict[str, Any] | None) -> tuple[Any, Info]:
        """Reset the environment, and record the first observation."""
        self._observation, self._info = self.env.reset(seed=seed, options=options)
        self._number = 0
        return self._observation, self._info

    def _take_step(self, action: Any) -> Step:
        """Step the environment, and return a record of the step."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._number += 1
        step = Step(
            action=action,
            observation=observation,
            reward=float(reward),
            terminated=terminated,
            truncated=truncated,
            info=info,
            previous_observation=self._observation,
            previous_info=self._info,
            number=self._number,
            seconds=getattr(getattr(self.env.unwrapped, "last_timing", None), "seconds", None),
        )
        self._observation, self._info = observation, info
        return step


class RewardSum(EpisodeSteps, RecordConstructorArgs):
    r"""Computes the reward of a step as a weighted sum of terms; the environment's own reward is the term ``env``.

    For a step with an infrastructure error (outcome ``infrastructure``), all terms are 0.

    Apply it inside of wrappers that change actions or observations: terms read source text and its output.

    Info:
        ``reward_terms``: term to unweighted value, all 0 after a reset.

    Args:
        env: The environment.
        terms: Name to weight, term to weight, or any name to (term, weight). A term is a name of ``terms.NAMES``, a
            ``RewardTerm``, or a function of a ``Step``. Each wrapper has its own copies.

    Raises:
        ConfigurationError: If a term is unknown, two terms have the same name, or a weight is not a number.

    Example:
        >>> from coding_gym.wrappers import terms
        >>> env = RewardSum(gym.make("CodingEnv-v0"), {"exit_code": 1.0, terms.OutputMatch("42\n"): 2.0, "length": -0.1})
        >>> observation, info = env.reset(seed=1)
        >>> observation, reward, terminated, truncated, info = env.step("print(6 * 7)")
        >>> round(reward, 4), info["reward_terms"]
        (2.9988, {'exit_code': 1.0, 'output': 1.0, 'length': 0.012})
        >>> env.close()
    """

    def __init__(self, env: gym.Env[Any, Any], terms: Mapping[Any, Weight]) -> None:
        RecordConstructorArgs.__init__(self, terms=terms)
        super().__init__(env)
        self._terms = _named(terms)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Info]:
        observation, info = self._begin(seed=seed, options=options)
        for term, _ in self._terms.values():
            term.reset()
        return observation, {**info, "reward_terms": dict.fromkeys(self._terms, 0.0)}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Info]:
        step = self._take_step(action)
        values = dict.fromkeys(self._terms, 0.0)
        if step.info.get("outcome") != Outcome.INFRASTRUCTURE:
            values = {name: float(term(step)) for name, (term, _) in self._terms.items()}
        reward = sum(weight * values[name] for name, (_, weight) in self._terms.items())
        return step.observation, float(reward), step.terminated, step.truncated, {**step.info, "reward_terms": values}


def _named(terms: Any) -> dict[str, tuple[RewardTerm, float]]:
    """Return copies of the terms with their weights, keyed by name."""
    if not isinstance(terms, Mapping):
        message = f'Expected terms= to be a mapping such as {{"exit_code": 1.0, "length": -0.1}}, got {terms!r:.200}'
        raise ConfigurationError(message)
    named: dict[str, tuple[RewardTerm, float]] = {}
    for key, value in terms.items():
        given, weight = value if isinstance(value, (tuple, list)) and len(value) == 2 else (key, value)
        term = copy.deepcopy(as_term(given))
        name = key if isinstance(key, str) else term.name
        if isinstance(weight, bool) or not isinstance(weight, (int, float)):
            message = f"Expected the weight of the reward term {name!r} to be a number, got {weight!r:.200}"
            raise ConfigurationError(message)
        if not name or name in named:
            message = f"Expected reward terms of different names, got {name!r} more than once: pass {{name: (term, weight)}}"
            raise ConfigurationError(message)
        named[name] = (term, float(weight))
    return named


class PotentialShaping(EpisodeSteps, RecordConstructorArgs):
    """Adds ``gamma * potential(after) - potential(before)`` to the reward of each step.

    Potential-based shaping preserves the optimal policies (A. Y. Ng, D. Harada, S. Russell, "Policy Invariance Under Reward
    Transformations: Theory and Application to Reward Shaping", ICML 1999): summed over an episode and discounted with the same
    ``gamma``, the shaping reduces to the potential of the first state, which no action changes. Therefore the potential after a
    step that terminates the episode is 0. After a step that truncates it, the potential counts in full, for learners that
    bootstrap there; a learner that treats a truncation as the end of the episode requires ``terminated`` there.

    An infrastructure error (outcome ``infrastructure``) carries no information about the state: that step has no shaping.

    Info:
        ``shaping``: the added amount, 0 at a reset.

    Args:
        env: The environment.
        potential: A function of an observation and its info; or a reward term, as ``RewardSum`` accepts it: its value after a
            step is the potential of the history up to that step, and the potential after a reset is 0.
        gamma: Discount factor of the learner, 0 to 1.

    Raises:
        ConfigurationError: If the potential or ``gamma`` is invalid.

    Example:
        >>> env = PotentialShaping(gym.make("CodingEnv-v0"), lambda observation, info: len(observation["stdout"]), gamma=0.5)
        >>> observation, info = env.reset(seed=1)
        >>> [env.step(code)[1] for code in ("print('1234567')", "1", "pass")]
        [4.0, -7.0, -2.0]
        >>> env.close()
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        potential: str | RewardTerm | Callable[[Any, Info], float],
        *,
        gamma: float = 0.99,
    ) -> None:
        RecordConstructorArgs.__init__(self, potential=potential, gamma=gamma)
        super().__init__(env)
        if not 0 <= gamma <= 1:
            message = f"Expected gamma= to be 0 to 1, got {gamma!r}"
            raise ConfigurationError(message)
        self._term = copy.deepcopy(as_term(potential)) if isinstance(potential, str | RewardTerm) else None
        if self._term is None and not callable(potential):
            message = (
                f"Expected potential= to be a function of an observation and its info, or a reward term, got {potential!r}"
            )
            raise ConfigurationError(message)
        self._function: Any = potential
        self._gamma = float(gamma)
        self._potential = 0.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Info]:
        observation, info = self._begin(seed=seed, options=options)
        if self._term is not None:
            self._term.reset()
        self._potential = 0.0 if self._term is not None else float(self._function(observation, info))
        return observation, {**info, "shaping": 0.0}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Info]:
        step = self._take_step(action)
        shaping = 0.0
        if step.info.get("outcome") != Outcome.INFRASTRUCTURE:
            after = self._after(step)
            shaping = self._gamma * after - self._potential
            self._potential = after
        info = {**step.info, "shaping": shaping}
        return step.observation, step.reward + shaping, step.terminated, step.truncated, info

    def _after(self, step: Step) -> float:
        if step.terminated:
            return 0.0
        return float(self._function(step.observation, step.info) if self._term is None else self._term(step))
