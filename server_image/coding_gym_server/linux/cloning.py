"""Children that ``os.fork`` cannot make: in new namespaces, siblings, and some that share memory (see clone(2))."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import random
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any

from coding_gym_server.reasons import explain

__all__ = ["clone_into", "clone_sibling", "idle_child"]

_CLONE_VM, _CLONE_PARENT = 0x100, 0x8000
_CLONE_CHILD_CLEARTID, _CLONE_CHILD_SETTID = 0x200000, 0x1000000
_PR_GET_TID_ADDRESS = 40
# Numbers of clone, get_robust_list and set_robust_list, and which argument of clone is the address of the thread id.
_NUMBERS = {"x86_64": (56, 274, 273, 3), "aarch64": (220, 100, 99, 4)}

_STACK_BYTES, _STACK_ALIGNMENT = 1 << 14, 16

_IDLE_SECONDS = 30
"""Seconds after which an idle child exits by itself; only one whose parent was killed takes so long."""

_libc = ctypes.PyDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def clone_into(namespaces: int) -> int:
    """Fork a child in new namespaces; return its pid, and 0 in it.

    Args:
        namespaces: Any of the ``NEW_`` constants of ``linux.mounts``. The child is the init of a new pid namespace.

    Raises:
        OSError: As ``clone_sibling``, or if the kernel, its configuration or a seccomp filter does not permit it.
    """
    return _clone(namespaces)


def clone_sibling() -> int:
    """Fork a child of the calling process's parent; return its pid, and 0 in it.

    A session root reaps its copies of workers, and user code, which may wait for all of its children, does not meet them.

    The calling process must have a single thread. What fork hooks of the standard library reset is as it was: random numbers,
    and since Python 3.12 the current event loop of asyncio and the descriptor to which numbers of signals are written.

    Raises:
        OSError: If the process limit is reached, memory is exhausted, or the processor's architecture is not supported.
    """
    restore = _keep_what_hooks_reset()
    pid = _clone(_CLONE_PARENT)
    if pid == 0:
        restore()
    return pid


@contextlib.contextmanager
def idle_child(namespaces: int) -> Iterator[int]:
    """Have a child in new namespaces for the block, which holds them and executes nothing; yield its pid.

    It shares the memory of the calling process. To copy that of a zygote, and to free the copy, takes milliseconds.

    Args:
        namespaces: Any of the ``NEW_`` constants of ``linux.mounts``.

    Raises:
        OSError: If the process limit is reached, or the kernel, its configuration or a seccomp filter does not permit it.
    """
    stack = ctypes.create_string_buffer(_STACK_BYTES)
    top = ctypes.addressof(stack) + _STACK_BYTES
    sleep = ctypes.cast(_libc.sleep, ctypes.c_void_p)
    # Python's handlers of signals must not run in the child.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    pid = -1
    try:
        stack_end = ctypes.c_void_p(top - top % _STACK_ALIGNMENT)
        pid = _libc.clone(sleep, stack_end, namespaces | _CLONE_VM | signal.SIGCHLD, ctypes.c_void_p(_IDLE_SECONDS))
        number = ctypes.get_errno()
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if pid < 0:
            raise OSError(number, explain("clone", number))
        yield pid
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if pid > 0:
            os.kill(pid, signal.SIGKILL)
            # If SIGCHLD is ignored, the kernel has reaped it.
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


def _clone(flags: int) -> int:
    try:
        clone, get_robust_list, set_robust_list, position = _NUMBERS[platform.machine()]
    except KeyError:
        message = f"namespaces and copies of interpreters are not supported on {platform.machine()}"
        raise OSError(message) from None
    robust_list, length = ctypes.c_void_p(), ctypes.c_size_t()
    _libc.syscall(get_robust_list, 0, ctypes.byref(robust_list), ctypes.byref(length))
    # Where the C library caches the id of its thread; its own fork passes it, too. Kernels without checkpoints do not tell.
    thread_id = ctypes.c_void_p()
    if _libc.prctl(_PR_GET_TID_ADDRESS, ctypes.byref(thread_id), 0, 0, 0) == 0:
        flags |= _CLONE_CHILD_CLEARTID | _CLONE_CHILD_SETTID
    pointers = [ctypes.c_void_p()] * 4
    pointers[position - 1] = thread_id
    ctypes.pythonapi.PyOS_BeforeFork()
    pid: int = _libc.syscall(clone, ctypes.c_ulong(flags | signal.SIGCHLD), *pointers)
    if pid == 0:
        _libc.syscall(set_robust_list, robust_list, length)
        ctypes.pythonapi.PyOS_AfterFork_Child()
        return 0
    number = ctypes.get_errno()
    ctypes.pythonapi.PyOS_AfterFork_Parent()
    if pid < 0:
        raise OSError(number, explain("clone", number))
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
