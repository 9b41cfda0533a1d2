"""Tests that run a program: pairs of its input and its expected output."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from coding_gym.tasks.loaders.rows import LoadOptions, RowError, is_list, known_language
from coding_gym_server.languages import PYTHON
from coding_gym_server.protocol.grading import CaseGroup, Checker, OutputRule, ProgramCase, Programs

__all__ = ["paired", "pairs_of", "program_tests"]

_DECIMAL_FRACTION = re.compile(r"(?<!\S)[+-]?(?:\d*\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]\d+)(?!\S)", re.ASCII)
_TOLERANCE = 1e-6


def program_tests(
    pairs: Iterable[tuple[Any, Any]],
    options: LoadOptions,
    rule: OutputRule = OutputRule.LINES,
    *,
    checker: Checker | None = None,
    interactor: Checker | None = None,
    default_tolerance: float | None = _TOLERANCE,
    input_file: str = "",
    output_file: str = "",
    groups: Iterable[CaseGroup] = (),
) -> Programs:
    """Return tests from pairs of input and expected output, each a text or a list of lines.

    Args:
        pairs: The pairs.
        options: Loader options: ``tolerance`` and ``compare`` take precedence over those of the data set, and over its checker.
        rule: The rule of the data set.
        checker: Its checker.
        interactor: Its interactor.
        default_tolerance: Tolerance if a decimal fraction is expected; None if its site compares fractions as text.
        input_file: File that has the input; standard input if empty.
        output_file: File to which the output is written; standard output if empty.
        groups: Groups of pairs that are worth points together.

    Raises:
        RowError: If there are no pairs.
    """
    cases = tuple(ProgramCase(stdin=_lines(given), stdout=_lines(wanted)) for given, wanted in pairs)
    if not cases:
        message = "there are no test cases"
        raise RowError(message)
    compare, tolerance = OutputRule(options.compare or rule), options.tolerance
    # That of LiveCodeBench compares decimal numbers exactly. Without fractions, lines are compared as text.
    if tolerance is None and compare != OutputRule.LIVE_CODE_BENCH:
        tolerance = default_tolerance if any(_DECIMAL_FRACTION.search(case.stdout) for case in cases) else None
    return Programs(
        cases=cases,
        tolerance=tolerance,
        compare=compare,
        random_seed=options.random_seed,
        language=known_language(options.language or PYTHON),
        checker=checker if options.compare is None and options.tolerance is None else None,
        interactor=interactor,
        input_file=input_file,
        output_file=output_file,
        groups=tuple(groups),
    )


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


def pairs_of(cases: Iterable[Any], name: str) -> list[tuple[str, str]]:
    """Return the inputs and outputs of a list of objects that have both.

    Raises:
        RowError: If one does not.
    """
    pairs = []
    for case in cases:
        if not isinstance(case, Mapping) or not {"input", "output"} <= case.keys():
            message = f"expected each of {name} to have input and output, got {str(case)[:100]!r}"
            raise RowError(message)
        pairs.append((_lines(case["input"]), _lines(case["output"])))
    return pairs


def _lines(value: Any) -> str:
    return "\n".join(str(line) for line in value) if is_list(value) else str(value)
