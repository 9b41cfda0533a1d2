"""Comparison of a program's output with the expected output."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation

from coding_gym_server.protocol.grading import OutputRule, Tolerance

__all__ = ["is_same_output"]

# As the checkers of contests read them: no infinities, underscores, or digits other than ASCII's.
_INTEGER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
# With an exponent alone, a sign tells a number from a word, such as a hash: this is how languages print floats.
_DECIMAL_FRACTION = re.compile(r"[+-]?(?:[0-9]*\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-][0-9]+)")


def is_same_output(printed: str, expected: str, *, compare: OutputRule | str, tolerance: float | Tolerance | None) -> bool:
    """Return whether two texts match.

    Args:
        printed: Output of the program.
        expected: Expected output.
        compare: The rule.
        tolerance: Tolerance for decimal fractions of the expected output; a number is the absolute and the relative one. None
            compares them as text or, by the rule of LiveCodeBench, exactly.
    """
    if isinstance(tolerance, int | float):
        tolerance = Tolerance(absolute=tolerance, relative=tolerance)
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
        case OutputRule.ANY:
            return True
        case OutputRule.EXACT:
            return printed == expected
        case OutputRule.CASE_INSENSITIVE:
            return _is_same_tokens(printed.casefold(), expected.casefold(), tolerance)
        case OutputRule.UNORDERED_LINES:
            return _is_permutation(printed, expected, tolerance)


def _is_permutation(printed: str, expected: str, tolerance: Tolerance | None) -> bool:
    lines, others = (
        sorted((line for line in text.splitlines() if line.strip()), key=_sort_key) for text in (printed, expected)
    )
    return _match(lambda line, other: _is_same_tokens(line, other, tolerance), lines, others)


def _sort_key(line: str) -> list[tuple[int, float, str]]:
    """Return a key by which lines that match are at the same places: numbers by value, before words."""
    return [
        (0, float(token), token.lstrip("+-").lstrip("0") if _INTEGER.fullmatch(token) else "")
        if _NUMBER.fullmatch(token)
        else (1, 0.0, token)
        for token in line.split()
    ]


def _match(match: Callable[[str, str], bool], parts: list[str], others: list[str]) -> bool:
    return len(parts) == len(others) and all(map(match, parts, others))


def _is_same_lines(printed: str, expected: str, tolerance: Tolerance | None) -> bool:
    lines, others = _lines(printed), _lines(expected)
    return lines == others or (
        tolerance is not None and _match(lambda line, other: _is_same_tokens(line, other, tolerance), lines, others)
    )


def _lines(text: str) -> list[str]:
    lines = [line.rstrip() for line in text.replace("\r\n", "\n").split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def _is_same_tokens(printed: str, expected: str, tolerance: Tolerance | None) -> bool:
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


def _is_close(token: str, expected: str, tolerance: Tolerance | None) -> bool:
    if tolerance is None or not _DECIMAL_FRACTION.fullmatch(expected) or not _NUMBER.fullmatch(token):
        return False
    numbers = float(token), float(expected)
    return all(map(math.isfinite, numbers)) and (
        abs(numbers[0] - numbers[1]) <= max(tolerance.absolute, tolerance.relative * abs(numbers[1]))
    )


def _is_same_numbers(line: str, expected: str, tolerance: Tolerance | None) -> bool:
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
