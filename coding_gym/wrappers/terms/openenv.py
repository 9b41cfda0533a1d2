"""The rewards of OpenEnv's coding environment, with its numbers and its faults, for comparison."""

from __future__ import annotations

from coding_gym.wrappers.terms.base import RewardTerm, Step
from coding_gym_server.rewards import score

__all__ = ["OpenEnvQuality", "OpenEnvSafety"]


class OpenEnvSafety(RewardTerm):
    """-1 if the text of the code has one of six patterns, else 0: ``SafetyTransform`` of OpenEnv.

    It takes text for code, so ``from os import system`` is safe to it, and a comment is not; ``Safety`` reads the syntax tree.

    Example:
        >>> term = OpenEnvSafety()
        >>> [term(Step(action=code, observation={}, info={})) for code in ("import os", "from os import system", "urlopen(x)")]
        [-1.0, 0.0, -1.0]
    """

    name = "openenv_safety"

    def __call__(self, step: Step) -> float:
        return score(step.code, ("safety",)).reward


class OpenEnvQuality(RewardTerm):
    """0.1 for code of up to 100 characters, and -0.2 if it is no Python: ``QualityTransform`` of OpenEnv.

    Example:
        >>> term = OpenEnvQuality()
        >>> [round(term(Step(action=code, observation={}, info={})), 2) for code in ("1 / 0", "1 +", "1" * 101)]
        [0.1, -0.1, 0.0]
    """

    name = "openenv_quality"

    def __call__(self, step: Step) -> float:
        return score(step.code, ("quality",)).reward
