"""The rewards of OpenEnv's coding environment, reproduced exactly, for comparison."""

from __future__ import annotations

from coding_gym.wrappers.terms.base import RewardTerm, Step
from coding_gym_server.server.sessions.openenv_rewards import score

__all__ = ["OpenEnvQuality", "OpenEnvSafety"]


class OpenEnvSafety(RewardTerm):
    """Returns -1 if the code contains one of six text patterns, else 0: ``SafetyTransform`` of OpenEnv.

    Since it matches text, it accepts ``from os import system`` and rejects matching comments; ``Safety`` analyzes the syntax
    tree.

    Example:
        >>> term = OpenEnvSafety()
        >>> [term(Step(action=code, observation={}, info={})) for code in ("import os", "from os import system", "urlopen(x)")]
        [-1.0, 0.0, -1.0]
    """

    name = "openenv_safety"

    def __call__(self, step: Step) -> float:
        return score(step.code, ("safety",)).reward


class OpenEnvQuality(RewardTerm):
    """Adds 0.1 for code of up to 100 characters, and -0.2 if it is not valid Python: ``QualityTransform`` of OpenEnv.

    Example:
        >>> term = OpenEnvQuality()
        >>> [round(term(Step(action=code, observation={}, info={})), 2) for code in ("1 / 0", "1 +", "1" * 101)]
        [0.1, -0.1, 0.0]
    """

    name = "openenv_quality"

    def __call__(self, step: Step) -> float:
        return score(step.code, ("quality",)).reward
