"""Truncation of text to a maximum length, and lines of source code."""

from __future__ import annotations

import io

__all__ = ["join_within", "source_lines", "truncate_middle"]


def truncate_middle(text: str, limit: int) -> str:
    """Return a text of at most ``limit`` characters; a longer text keeps both ends around a marker."""
    return join_within(text, "", 0, limit)


def join_within(head: str, tail: str, dropped: int, limit: int) -> str:
    """Join the two ends of a text, with a marker in between if characters are missing or do not fit.

    Args:
        head: The beginning of the text.
        tail: The end of the text.
        dropped: Number of characters missing between them.
        limit: Maximum number of characters of the result.
    """
    total = len(head) + len(tail) + dropped
    if total <= limit:
        return head + tail
    # The marker's length depends on the number in it: reserve room for the largest.
    room = limit - len(_marker(total))
    first, last = room - room // 2, room // 2
    return head[:first] + _marker(total - first - last) + (tail or head)[-last:]


def source_lines(source: str) -> list[str]:
    """Return the lines of source code, with their ends, as the line numbers of Python count them.

    ``str.splitlines`` also splits at form feeds, U+2028 and other characters that are part of a line of Python.
    """
    return io.StringIO(source, newline="").readlines()


def _marker(characters: int) -> str:
    return f"\n... [{characters} characters cut] ...\n"
