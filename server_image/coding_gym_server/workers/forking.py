"""Forks processes."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable

__all__ = ["fork_bare", "fork_when_possible"]

_PATIENCE_SECONDS = 1.0
"""What uses up the processes of a sandbox is ended sooner; see ``ProcessGuard``."""

_INTERVAL = 0.02

# Not CDLL, which would give the interpreter's lock away meanwhile: nobody would take it in the child.
_libc = ctypes.PyDLL(None, use_errno=True)


def fork_bare() -> int:
    """Return what ``fork`` of the C library returns, without what Python and its modules do about it.

    ``os.fork`` has locks of other threads released and random numbers seeded, and writes to a good deal of memory for it. A
    process with one thread, of which forks do what they need themselves, can do without.

    Raises:
        OSError: There are too many processes, or there is no memory.
    """
    pid: int = _libc.fork()
    if pid < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return pid


def fork_when_possible(fork: Callable[[], int] = os.fork, *, meanwhile: Callable[[], None] | None = None) -> int:
    """Return what a fork returns, and wait a while if there are too many processes for it now.

    Args:
        fork: Forks.
        meanwhile: Called again and again while it waits.

    Raises:
        OSError: There still are, or there is no memory.
    """
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            return fork()
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise
        if meanwhile is not None:
            meanwhile()
        time.sleep(_INTERVAL)
