"""Comparison of a program's output with the expected output."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation

from coding_gym_server.protocol.grading import OutputRule

__all__ = ["is_same_output"]

# As the checkers of contests read them: no infinities, underscores, or digits other than ASCII's.
_INTEGER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
# With an exponent alone, a sign tells a number from a word, such as a hash: this is how languages print floats.
_DECIMAL_FRACTION = re.compile(r"[+-]?(?:[0-9]*\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-][0-9]+)")


def is_same_output(printed: str, expected: str, *, compare: OutputRule | str, tolerance: float | None) -> bool:
    """Return whether two texts match.

    Args:
        printed: Output of the program.
        expected: Expected output.
        compare: The rule.
        tolerance: Absolute and relative tolerance for decimal fractions of the expected output. None compares them as text or,
            by the rule of LiveCodeBench, exactly.
    """
    match OutputRule(compare):
        case OutputRule.LINES:
            return _is_same_lines(printed, expected, tolerance)
        case OutputRule.TOKENS:
            return _is_same_tokens(printed, expected, tolerance)
        case OutputRule.LIVE_CODE_BENCH:
            return _match(
                lambda line, other: line.strip() == other.strip() or _is_same_numbers(line, other, tolerance),
                *(text.strip().split("\n") for text in (printed, expected)),
            )


def _match(match: Callable[[str, str], bool], parts: list[str], others: list[str]) -> bool:
    return len(parts) == len(others) and all(map(match, parts, others))


def _is_same_lines(printed: str, expected: str, tolerance: float | None) -> bool:
    lines, others = _lines(printed), _lines(expected)
    return lines == others or (
        tolerance is not None and _match(lambda line, other: _is_same_tokens(line, other, tolerance), lines, others)
    )


def _lines(text: str) -> list[str]:
    lines = [line.rstrip() for line in text.replace("\r\n", "\n").split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def _is_same_tokens(printed: str, expected: str, tolerance: float | None) -> bool:
    return _match(
        lambda token, other: token == other or _is_same_integer(token, other) or _is_close(token, other, tolerance),
        printed.split(),
        expected.split(),
    )


def _is_same_integer(token: str, expected: str) -> bool:
    # By their digits: ``int`` refuses more than 4,300.
    if not _INTEGER.fullmatch(token) or not _INTEGER.fullmatch(expected):
        return False
    digits, others = (text.lstrip("+-").lstrip("0") for text in (token, expected))
    return digits == others and (not digits or token.startswith("-") == expected.startswith("-"))


def _is_close(token: str, expected: str, tolerance: float | None) -> bool:
    if tolerance is None or not _DECIMAL_FRACTION.fullmatch(expected) or not _NUMBER.fullmatch(token):
        return False
    numbers = float(token), float(expected)
    return all(map(math.isfinite, numbers)) and math.isclose(*numbers, rel_tol=tolerance, abs_tol=tolerance)


def _is_same_numbers(line: str, expected: str, tolerance: float | None) -> bool:
    """Return whether two lines consist of the same numbers, as decimal ones: 3.0 is 3."""
    return _match(
        lambda token, other: _is_same_number(token, other) or _is_close(token, other, tolerance), line.split(), expected.split()
    )


def _is_same_number(token: str, expected: str) -> bool:
    if not _NUMBER.fullmatch(token) or not _NUMBER.fullmatch(expected):
        return False
    try:
        return Decimal(token) == Decimal(expected)
    except InvalidOperation:
        return False
