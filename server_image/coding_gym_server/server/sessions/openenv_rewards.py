"""Rewards of OpenEnv's coding environment, with equal values (``envs/coding_env/server/transforms.py``).

Both inspect only the source text, not the outcome of running it, so ``1 / 0`` scores as ``1`` does. Their inaccuracies are
kept for equal values: they classify ``from os import system`` as safe and ``urlopen(`` as unsafe.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Collection
from typing import NamedTuple

__all__ = ["Score", "score"]

SAFETY_PENALTY = -1.0
UNSAFE_PATTERNS = tuple(
    map(re.compile, (r"import\s+os", r"import\s+subprocess", r"eval\(", r"exec\(", r"__import__", r"open\("))
)

CONCISE_BONUS = 0.1
CONCISE_CHARS = 100
SYNTAX_PENALTY = -0.2

_MAX_PARSED_CHARS = 50_000
"""Longer code is not parsed and has no penalty: parsing a million characters would block the server for a second."""


class Score(NamedTuple):
    """Score of code.

    Attributes:
        reward: Sum of the rewards.
        safety_violation: First unsafe pattern found, None if there is none or ``safety`` is not requested.
    """

    reward: float = 0.0
    safety_violation: str | None = None


def score(code: str, names: Collection[str]) -> Score:
    """Return the score of code.

    Args:
        code: The source text.
        names: Rewards to add up: ``safety`` (-1.0 if an unsafe pattern is found), ``quality`` (0.1 for up to 100 characters,
            -0.2 for invalid Python), both, or none.
    """
    violation = _violation(code) if "safety" in names else None
    reward = 0.0 if violation is None else SAFETY_PENALTY
    return Score(reward + (_quality(code) if "quality" in names else 0.0), violation)


def _violation(code: str) -> str | None:
    return next((pattern.pattern for pattern in UNSAFE_PATTERNS if pattern.search(code)), None)


def _quality(code: str) -> float:
    bonus = CONCISE_BONUS if len(code.strip()) <= CONCISE_CHARS else 0.0
    return bonus if len(code) > _MAX_PARSED_CHARS or _is_python(code) else bonus + SYNTAX_PENALTY


def _is_python(code: str) -> bool:
    try:
        with warnings.catch_warnings(action="ignore"):
            ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        # ValueError: NUL or a lone surrogate. RecursionError and MemoryError: nested too deeply for the interpreter as well.
        return False
    return True
