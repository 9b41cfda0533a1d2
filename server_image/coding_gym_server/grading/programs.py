"""What a program has printed, compared with what it should have."""

from __future__ import annotations

import math

__all__ = ["prints_the_same"]


def prints_the_same(printed: str, expected: str, *, tolerance: float | None) -> bool:
    """Compare two texts, but for blanks at the ends of lines and empty lines at the end.

    Args:
        printed: What a program has printed.
        expected: What it should have.
        tolerance: How far numbers may be off, absolutely or relatively; then what separates words does not count. None compares
            text.
    """
    lines, wanted = _lines(printed), _lines(expected)
    if lines == wanted:
        return True
    if tolerance is None or len(lines) != len(wanted):
        return False
    return all(
        len(words := line.split()) == len(others := other.split())
        and all(_is_close(word, another, tolerance) for word, another in zip(words, others, strict=True))
        for line, other in zip(lines, wanted, strict=True)
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
