"""``parse``: syntax trees of Python code, in any thread."""

from __future__ import annotations

import ast
import contextlib
import os
import threading
import warnings

__all__ = ["parse"]

_ATTEMPTS = 10

# The filters of warnings belong to the whole process.
_lock = threading.Lock()
# A child process must not inherit it from another thread, which will never release it there.
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


def parse(source: str) -> ast.Module:
    """Return the syntax tree of Python code as ``ast.parse`` does, without syntax warnings.

    Some versions of CPython, 3.11.7 for example, count the depth of the recursion for all threads together, and ``ast.parse``
    raises a ``SystemError`` if another thread parses at the same time (https://github.com/python/cpython/issues/106905).
    It is tried again then.

    Args:
        source: The code.

    Raises:
        SyntaxError: If it is not valid Python.
        ValueError: If it has a NUL character or a lone surrogate.
        RecursionError: If it is nested too deeply.
        MemoryError: If it is nested too deeply for the parser.
    """
    with _lock, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(_ATTEMPTS - 1):
            with contextlib.suppress(SystemError):
                return ast.parse(source)
        return ast.parse(source)
