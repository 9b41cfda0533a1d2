"""Forking without Python's hooks, and with retries."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable

__all__ = ["default_to_fork", "fork_bare", "fork_when_possible"]

_RETRY_SECONDS = 1.0
"""Longer than ``ProcessLimiter`` takes to kill a session that exhausts the processes of a sandbox."""

_INTERVAL = 0.02

# CDLL would release the interpreter's lock during the call, and no thread would reacquire it in the child.
_libc = ctypes.PyDLL(None, use_errno=True)


def default_to_fork() -> None:
    """Make ``fork`` the default start method of ``multiprocessing``, as it was before Python 3.14.

    The fork server, the default since, imports pickled functions from a file, which functions defined in cells do not have.
    """
    from multiprocessing import context

    # Not set_start_method, which may be called only once and is left to user code.
    context._default_context._default_context = context._concrete_contexts["fork"]  # type: ignore[attr-defined]


def fork_bare() -> int:
    """Call ``fork`` of the C library directly, without Python's fork hooks; return its result.

    ``os.fork`` reinitializes locks and reseeds random number generators, which writes to many memory pages. A
    single-threaded process whose children reinitialize what they use does not need that.

    Raises:
        OSError: If the process limit is reached or memory is exhausted.
    """
    pid: int = _libc.fork()
    if pid < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return pid


def fork_when_possible(fork: Callable[[], int] = os.fork, *, on_wait: Callable[[], None] | None = None) -> int:
    """Fork, retrying for a second while the process limit is reached; return the result of the fork.

    Args:
        fork: Function that forks. Defaults to ``os.fork``.
        on_wait: Called before each retry.

    Raises:
        OSError: If the process limit is still reached after the retries, or memory is exhausted.
    """
    deadline = time.monotonic() + _RETRY_SECONDS
    while True:
        try:
            return fork()
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise
        if on_wait is not None:
            on_wait()
        time.sleep(_INTERVAL)
