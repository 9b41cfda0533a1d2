"""``PotentialShaping``: potential-based reward shaping."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import gymnasium as gym
from gymnasium.utils import RecordConstructorArgs

from coding_gym.envs.episode import Info
from coding_gym.errors import ConfigurationError
from coding_gym.wrappers.rewards.reward_sum import EpisodeSteps
from coding_gym.wrappers.terms import RewardTerm, Step, as_term
from coding_gym_server.protocol import Outcome

__all__ = ["PotentialShaping"]


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
