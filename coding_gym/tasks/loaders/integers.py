"""Integers of more than 4,300 digits, which CPython neither reads nor writes in decimal."""

from __future__ import annotations

import io
import json
import re
import tokenize
from decimal import Decimal
from typing import Any

__all__ = ["MAX_DECIMAL_BITS", "decode_json", "with_hexadecimal"]

_MAX_DIGITS = 4300
MAX_DECIMAL_BITS = 3 * _MAX_DIGITS
"""Size of integers that surely have no more digits."""

_LONG = re.compile(rf"[0-9][0-9_]{{{_MAX_DIGITS}}}")


def decode_json(text: str | bytes) -> Any:
    """Return the value of a JSON text, with integers of any size.

    Raises:
        ValueError: If it is not JSON.
        RecursionError: If it is nested too deeply.
    """
    try:
        # The standard library's decoder: msgspec's accepts neither NaN nor lone surrogates, and data sets contain both.
        return json.loads(text)
    except json.JSONDecodeError:
        raise
    except ValueError:
        return json.loads(text, parse_int=_integer)


def with_hexadecimal(source: str) -> str:
    """Return source code whose integer literals of more than 4,300 digits are hexadecimal: those may have any size."""
    if not _LONG.search(source):
        return source
    lines = source.splitlines(keepends=True)
    try:
        tokens = [*tokenize.generate_tokens(io.StringIO(source).readline)]
    except (tokenize.TokenError, SyntaxError):
        return source
    # From the end, so that the places of the others stay.
    for token in reversed(tokens):
        digits = token.string.replace("_", "")
        if token.type == tokenize.NUMBER and len(digits) > _MAX_DIGITS and digits.isdecimal():
            row, begin = token.start[0] - 1, token.start[1]
            lines[row] = lines[row][:begin] + hex(_integer(digits)) + lines[row][token.end[1] :]
    return "".join(lines)


def _integer(digits: str) -> int:
    # Unlike ``int``, decimals are read without a limit, which could only be raised for the whole process.
    return int(digits) if len(digits) <= _MAX_DIGITS else int(Decimal(digits))
