"""Reward terms for ``RewardSum`` and ``PotentialShaping``; subclass ``RewardTerm`` for others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coding_gym import plugins
from coding_gym._validation import hint
from coding_gym.errors import ConfigurationError
from coding_gym.wrappers.terms.base import FunctionTerm, RewardTerm, Step
from coding_gym.wrappers.terms.openenv import OpenEnvQuality, OpenEnvSafety
from coding_gym.wrappers.terms.outcomes import EnvReward, ExitCode, Improvement, PassedTests, TimePenalty
from coding_gym.wrappers.terms.outputs import Novelty, OutputMatch
from coding_gym.wrappers.terms.quality import Complexity, Length, Lint, cyclomatic_complexity
from coding_gym.wrappers.terms.safety import ALLOWED, FORBIDDEN, FORBIDDEN_ATTRIBUTES, Safety
from coding_gym.wrappers.terms.screens import ScreenMatch, pixel_similarity, structural_similarity

__all__ = [
    "ALLOWED",
    "FORBIDDEN",
    "FORBIDDEN_ATTRIBUTES",
    "NAMES",
    "Complexity",
    "EnvReward",
    "ExitCode",
    "FunctionTerm",
    "Improvement",
    "Length",
    "Lint",
    "Novelty",
    "OpenEnvQuality",
    "OpenEnvSafety",
    "OutputMatch",
    "PassedTests",
    "RewardTerm",
    "Safety",
    "ScreenMatch",
    "Step",
    "TimePenalty",
    "as_term",
    "cyclomatic_complexity",
    "pixel_similarity",
    "structural_similarity",
]

NAMES: dict[str, Callable[[], RewardTerm]] = {
    term.name: term
    for term in (
        *(PassedTests, Improvement, ExitCode, TimePenalty, EnvReward),
        *(Novelty, Length, Complexity, Lint, Safety),
        *(OpenEnvSafety, OpenEnvQuality),
    )
}
"""Terms without required arguments, keyed by name."""


def as_term(term: Any) -> RewardTerm:
    """Return the reward term for a name, a function of a ``Step``, or a term, which is returned unchanged.

    Raises:
        ConfigurationError: If it is anything else.

    Example:
        >>> as_term("time").name, as_term(lambda step: 1.0).name
        ('time', '<lambda>')
    """
    if isinstance(term, RewardTerm):
        return term
    if isinstance(term, str) and term in NAMES:
        return NAMES[term]()
    if isinstance(term, str):
        added = plugins.names("reward_terms")
        if term in added:
            found = plugins.load("reward_terms", term)
            return as_term(found() if isinstance(found, type) else found)
        known = (*NAMES, *added)
        message = (
            f"There is no reward term {term!r}{hint(term, known)}: known are {', '.join(known)}; "
            "pass others as objects, such as OutputMatch('42')"
        )
        raise ConfigurationError(message)
    if isinstance(term, type) or not callable(term):
        message = f"Expected a reward term: a name, a RewardTerm or a function of a Step, got {term!r:.200}"
        raise ConfigurationError(message)
    return FunctionTerm(term)
