"""Reading code that anybody may have written."""

from __future__ import annotations

import ast
import warnings

__all__ = ["parse"]


def parse(code: str) -> ast.Module | None:
    r"""Return the syntax tree of code; None if it is no Python.

    Raises:
        RecursionError: It is nested too deeply to have a tree here. An interpreter may run it all the same.

    Example:
        >>> parse("x = 1") is None, parse("x = ") is None, parse("\0") is None
        (False, True, True)
    """
    try:
        with warnings.catch_warnings(action="ignore"):
            return ast.parse(code)
    except MemoryError:
        raise RecursionError from None
    except (SyntaxError, ValueError):
        # ValueError: NUL, or half a surrogate pair.
        return None
