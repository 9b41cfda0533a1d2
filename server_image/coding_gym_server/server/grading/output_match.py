"""Comparison of a program's output with the expected output."""

from __future__ import annotations

import math

__all__ = ["is_same_output"]


def is_same_output(printed: str, expected: str, *, tolerance: float | None) -> bool:
    """Return whether two texts match, ignoring trailing whitespace on lines and trailing empty lines.

    Args:
        printed: Output of the program.
        expected: Expected output.
        tolerance: Absolute and relative tolerance for numbers; if set, amounts of whitespace between words are ignored. None
            compares text.
    """
    lines, expected_lines = _lines(printed), _lines(expected)
    if lines == expected_lines:
        return True
    if tolerance is None or len(lines) != len(expected_lines):
        return False
    return all(
        len(words := line.split()) == len(others := other.split())
        and all(_is_close(word, another, tolerance) for word, another in zip(words, others, strict=True))
        for line, other in zip(lines, expected_lines, strict=True)
    )


def _lines(text: str) -> list[str]:
    lines = [line.rstrip() for line in text.replace("\r\n", "\n").split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def _is_close(word: str, other: str, tolerance: float) -> bool:
    if word == other:
        return True
    try:
        numbers = float(word), float(other)
    except ValueError:
        return False
    return math.isclose(*numbers, rel_tol=tolerance, abs_tol=tolerance)
