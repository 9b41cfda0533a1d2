"""Parsing of untrusted code."""

from __future__ import annotations

import ast

from coding_gym import _syntax_tree

__all__ = ["parse"]


def parse(code: str) -> ast.Module | None:
    r"""Return the syntax tree of code; None if it is not valid Python.

    Raises:
        RecursionError: If it is nested too deeply to be parsed here. Another interpreter may still run it.

    Example:
        >>> parse("x = 1") is None, parse("x = ") is None, parse("\0") is None
        (False, True, True)
    """
    try:
        return _syntax_tree.parse(code)
    except MemoryError:
        raise RecursionError from None
    except (SyntaxError, ValueError):
        # ValueError: a NUL character, or a lone surrogate.
        return None
