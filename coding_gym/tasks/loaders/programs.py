"""Tests that run a program: pairs of its input and its expected output."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from coding_gym.tasks.loaders.rows import LoadOptions, RowError, is_list
from coding_gym_server.protocol.grading import OutputRule, ProgramCase, Programs

__all__ = ["paired", "program_tests"]

_DECIMAL_FRACTION = re.compile(r"(?<!\S)[+-]?(?:\d*\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]\d+)(?!\S)", re.ASCII)
_TOLERANCE = 1e-6


def program_tests(pairs: Iterable[tuple[Any, Any]], options: LoadOptions, rule: OutputRule = OutputRule.LINES) -> Programs:
    """Return tests from pairs of stdin and expected stdout, each a text or a list of lines.

    Args:
        pairs: The pairs.
        options: Loader options: ``tolerance`` and ``compare`` take precedence over those of the data set.
        rule: The rule of the data set.

    Raises:
        RowError: If there are no pairs.
        ConfigurationError: If the options name an unknown rule.
    """
    cases = tuple(ProgramCase(stdin=_lines(given), stdout=_lines(wanted)) for given, wanted in pairs)
    if not cases:
        message = "there are no test cases"
        raise RowError(message)
    compare, tolerance = OutputRule(options.compare or rule), options.tolerance
    # That of LiveCodeBench compares decimal numbers exactly. Without fractions, lines are compared as text.
    if tolerance is None and compare != OutputRule.LIVE_CODE_BENCH:
        tolerance = _TOLERANCE if any(_DECIMAL_FRACTION.search(case.stdout) for case in cases) else None
    return Programs(cases=cases, tolerance=tolerance, compare=compare, random_seed=options.random_seed)


def paired(inputs: Any, outputs: Any, name: str) -> tuple[list[Any], list[Any]]:
    """Return inputs and outputs as two lists of the same length.

    Raises:
        RowError: If they are not lists, or their lengths differ.
    """
    if is_list(inputs) and is_list(outputs):
        case_inputs, case_outputs = list(inputs), list(outputs)
        if len(case_inputs) == len(case_outputs):
            return case_inputs, case_outputs
    message = f"expected {name} to have as many outputs as inputs"
    raise RowError(message)


def _lines(value: Any) -> str:
    return "\n".join(str(line) for line in value) if is_list(value) else str(value)
