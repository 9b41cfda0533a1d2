"""``clone_sibling``: a fork whose child is a child of the caller's parent, the session root.

The root reaps it, and user code, which may wait for all of its children, does not meet it.
"""

from __future__ import annotations

import ctypes
import os
import platform
import random
import signal
import sys
from collections.abc import Callable
from typing import Any

__all__ = ["clone_sibling", "remember_thread_descriptor"]

_CLONE_PARENT = 0x8000
# Numbers of clone, get_robust_list and set_robust_list.
_NUMBERS = {"x86_64": (56, 274, 273), "aarch64": (220, 100, 99)}

_SEARCHED_INTS = 256
"""Size, in units of an int, of the part of the C library's thread descriptor that contains the id of the thread."""

_libc = ctypes.PyDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
_libc.pthread_self.restype = ctypes.c_void_p

# Offsets in the thread descriptor, in units of an int, at which the zygote's contains its pid.
_offsets_in_zygote: frozenset[int] = frozenset()


def remember_thread_descriptor() -> None:
    """Record where the thread descriptor of the calling process, the zygote, contains its pid: workers have the same layout."""
    global _offsets_in_zygote
    _offsets_in_zygote = _offsets_of_pid()


def clone_sibling() -> int:
    """Fork a child of the calling process's parent; return its pid, and 0 in it.

    The calling process must have a single thread. What fork hooks of the standard library reset is as it was: random numbers,
    and since Python 3.12 the current event loop of asyncio and the descriptor to which numbers of signals are written.

    Raises:
        OSError: If the process limit is reached, memory is exhausted, or the processor's architecture is not supported.
    """
    try:
        clone, get_robust_list, set_robust_list = _NUMBERS[platform.machine()]
    except KeyError:
        message = f"copies of interpreters are not supported on {platform.machine()}"
        raise OSError(message) from None
    robust_list, length = ctypes.c_void_p(), ctypes.c_size_t()
    _libc.syscall(get_robust_list, 0, ctypes.byref(robust_list), ctypes.byref(length))
    cached_id = _address_of_thread_id()
    restore = _keep_what_hooks_reset()
    ctypes.pythonapi.PyOS_BeforeFork()
    pid: int = _libc.syscall(clone, _CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        # The C library's own fork would do both.
        if cached_id is not None:
            ctypes.c_int.from_address(cached_id).value = os.getpid()
        _libc.syscall(set_robust_list, robust_list, length)
        ctypes.pythonapi.PyOS_AfterFork_Child()
        restore()
        return 0
    number = ctypes.get_errno()
    ctypes.pythonapi.PyOS_AfterFork_Parent()
    if pid < 0:
        raise OSError(number, os.strerror(number))
    return pid


def _keep_what_hooks_reset() -> Callable[[], None]:
    """Return a function that restores, after the fork, what the hooks have reset in the child."""
    numbers = random.getstate()
    wakeup = signal.set_wakeup_fd(-1)
    if wakeup >= 0:
        signal.set_wakeup_fd(wakeup)
    policy: Any = getattr(sys.modules.get("asyncio.events"), "_event_loop_policy", None)
    current: Any = getattr(policy, "_local", None)

    def restore() -> None:
        random.setstate(numbers)
        if wakeup >= 0:
            signal.set_wakeup_fd(wakeup)
        if current is not None:
            policy._local = current

    return restore


def _address_of_thread_id() -> int | None:
    """Return the address where the C library caches the id of the calling thread, None if it is not found.

    Half of a pointer may equal the pid of one process. It does not equal the different pids of two.
    """
    offsets = _offsets_in_zygote & _offsets_of_pid()
    if len(offsets) != 1:
        return None
    begin: int = _libc.pthread_self()
    return begin + min(offsets) * ctypes.sizeof(ctypes.c_int)


def _offsets_of_pid() -> frozenset[int]:
    descriptor = (ctypes.c_int * _SEARCHED_INTS).from_address(_libc.pthread_self())
    pid = os.getpid()
    return frozenset(offset for offset, number in enumerate(descriptor) if number == pid)
