"""The limit on the stack of a process's first thread (see setrlimit(2))."""

from __future__ import annotations

import resource

__all__ = ["MOST_STACK_BYTES", "limit_stack"]

MOST_STACK_BYTES = 256 << 20
"""That of Codeforces, for programs whose calls are nested deeply."""


def limit_stack(size: int) -> None:
    """Let the stack of this process, and of a program that replaces it, grow up to a size, or the hard limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_STACK)
    resource.setrlimit(resource.RLIMIT_STACK, (size if hard == resource.RLIM_INFINITY else min(size, hard), hard))
