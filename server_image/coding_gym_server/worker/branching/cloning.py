"""``clone_sibling``: a fork whose child is a child of the caller's parent, the session root.

The root reaps it, and user code, which may wait for all of its children, does not meet it.
"""

from __future__ import annotations

import ctypes
import os
import platform
import random
import signal
import struct

__all__ = ["clone_sibling"]

_CLONE_PARENT = 0x8000
# Numbers of clone, get_robust_list and set_robust_list.
_NUMBERS = {"x86_64": (56, 274, 273), "aarch64": (220, 100, 99)}

_SEARCHED_BYTES = 1024
"""Size of the part of the C library's thread descriptor that contains the id of the thread."""

_libc = ctypes.PyDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
_libc.pthread_self.restype = ctypes.c_void_p


def clone_sibling() -> int:
    """Fork a child of the calling process's parent; return its pid, and 0 in it.

    The calling process must have a single thread. Python's random numbers go on where they were; a usual fork seeds them anew.

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
    state = random.getstate()
    ctypes.pythonapi.PyOS_BeforeFork()
    pid: int = _libc.syscall(clone, _CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        # The C library's own fork would do both.
        if cached_id is not None:
            ctypes.c_int.from_address(cached_id).value = os.getpid()
        _libc.syscall(set_robust_list, robust_list, length)
        ctypes.pythonapi.PyOS_AfterFork_Child()
        random.setstate(state)
        return 0
    number = ctypes.get_errno()
    ctypes.pythonapi.PyOS_AfterFork_Parent()
    if pid < 0:
        raise OSError(number, os.strerror(number))
    return pid


def _address_of_thread_id() -> int | None:
    """Return the address where the C library caches the id of the calling thread, None if it is not found."""
    begin: int = _libc.pthread_self()
    offset = ctypes.string_at(begin, _SEARCHED_BYTES).find(struct.pack("=i", os.getpid()))
    return begin + offset if offset >= 0 and offset % 4 == 0 else None
