"""Vector forms of the reward wrappers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gymnasium.vector import VectorEnv

from coding_gym import wrappers as single
from coding_gym.envs.episode import Info
from coding_gym.wrappers.rewards.reward_sum import Weight
from coding_gym.wrappers.terms import RewardTerm
from coding_gym.wrappers.vector.vectorize import VectorizeWrapper

__all__ = ["PotentialShaping", "RewardSum"]


class RewardSum(VectorizeWrapper):
    """Computes the reward of a step as a weighted sum of terms; see ``coding_gym.wrappers.RewardSum``.

    Info:
        ``reward_terms``: term to unweighted values, float64 of shape (num_envs,), all 0 at a reset.

    Args:
        env: The vector environment.
        terms: Name to weight, term to weight, or any name to (term, weight). Each environment has its own copies.

    Raises:
        ConfigurationError: If a term is unknown, two terms have the same name, or a weight is not a number.

    Example:
        >>> envs = RewardSum(gym.make_vec("CodingEnv-v0", num_envs=2), {"exit_code": 1.0, "novelty": 0.5})
        >>> observations, infos = envs.reset(seed=1)
        >>> observations, rewards, terminations, truncations, infos = envs.step(["print(1)", "1 / 0"])
        >>> rewards, infos["reward_terms"]["novelty"]
        (array([1.5, 0. ]), array([1., 0.]))
        >>> envs.close()
    """

    def __init__(self, env: VectorEnv[Any, Any, Any], terms: Mapping[Any, Weight]) -> None:
        super().__init__(env, single.RewardSum, terms=terms)


class PotentialShaping(VectorizeWrapper):
    """Adds ``gamma * potential(after) - potential(before)`` to rewards; see ``coding_gym.wrappers.PotentialShaping``.

    Info:
        ``shaping``: the added amount, float64 of shape (num_envs,), 0 at a reset.

    Args:
        env: The vector environment.
        potential: A function of the observation of one environment and its info; or a reward term.
        gamma: Discount factor of the learner, 0 to 1.

    Raises:
        ConfigurationError: If the potential or ``gamma`` is invalid.

    Example:
        >>> envs = PotentialShaping(gym.make_vec("CodingEnv-v0", num_envs=2), "exit_code", gamma=0.5)
        >>> observations, infos = envs.reset(seed=1)
        >>> [envs.step([first, "1"])[1].tolist() for first in ("1 / 0", "1")]
        [[0.0, 0.5], [0.5, -0.5]]
        >>> envs.close()
    """

    def __init__(
        self,
        env: VectorEnv[Any, Any, Any],
        potential: str | RewardTerm | Callable[[Any, Info], float],
        *,
        gamma: float = 0.99,
    ) -> None:
        super().__init__(env, single.PotentialShaping, potential=potential, gamma=gamma)
