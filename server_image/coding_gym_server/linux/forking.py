"""Forking, without Python's hooks or with retries, and the ties of a child to its parent."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable
from typing import NoReturn

__all__ = ["adopt_orphans", "ask_child", "default_to_fork", "die_with_parent", "fork_bare", "fork_when_possible"]

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_MAX_ANSWER_BYTES = 4096

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


def die_with_parent(parent: int) -> None:
    """Let the kernel kill the calling process when its parent dies; exit if that has happened already.

    A change of the user afterwards would undo this.

    Args:
        parent: Process id of the parent.
    """
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def adopt_orphans() -> None:
    """Make the calling process the parent of its orphaned descendants, where the kernel supports that."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def ask_child(answer: Callable[[], str], *, fork: Callable[[], int] = os.fork) -> str:
    """Return the answer of a child process, or the text of the error that the function raises there.

    Args:
        answer: Function that the child calls.
        fork: Function that forks. Defaults to ``os.fork``.
    """
    result, write_result = os.pipe()
    try:
        pid = fork()
        if pid == 0:
            _answer(answer, write_result)
        os.close(write_result)
        write_result = -1
        _, status = os.waitpid(pid, 0)
        found = os.read(result, _MAX_ANSWER_BYTES).decode(errors="replace")
    except OSError as error:
        return str(error)
    finally:
        os.close(result)
        if write_result >= 0:
            os.close(write_result)
    return found if status == 0 else "a process of the sandbox exited unexpectedly"


def _answer(answer: Callable[[], str], result: int) -> NoReturn:
    try:
        try:
            text = answer()
        except OSError as error:
            text = str(error)
        os.write(result, text.encode()[:_MAX_ANSWER_BYTES])
        os._exit(0)
    finally:
        os._exit(1)
