"""Detection of processes that wait for an event without a timeout."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterable
from pathlib import Path

__all__ = ["cpu_seconds", "waits_without_limit"]

_INT_MINUS_ONE = 0xFFFFFFFF
_NO_POINTER = 0

# Number of a system call -> index of its timeout argument, and the value that means no timeout.
_LIMITS = {
    "x86_64": {
        7: (2, _INT_MINUS_ONE),  # poll
        23: (4, _NO_POINTER),  # select
        202: (3, _NO_POINTER),  # futex
        232: (3, _INT_MINUS_ONE),  # epoll_wait
        270: (4, _NO_POINTER),  # pselect6
        271: (2, _NO_POINTER),  # ppoll
        281: (3, _INT_MINUS_ONE),  # epoll_pwait
        441: (3, _NO_POINTER),  # epoll_pwait2
    },
    "aarch64": {
        22: (3, _INT_MINUS_ONE),
        72: (4, _NO_POINTER),
        73: (2, _NO_POINTER),
        98: (3, _NO_POINTER),
        441: (3, _NO_POINTER),
    },
}.get(platform.machine(), {})


def waits_without_limit(pid: int) -> bool:
    """Return whether all threads of a process sleep without a timeout, according to ``/proc/PID/syscall`` (see proc(5)).

    False if the process has exited or the files cannot be read.
    """
    try:
        threads = os.listdir(f"/proc/{pid}/task")
        return all(_waits_without_limit(Path(f"/proc/{pid}/task/{thread}/syscall")) for thread in threads)
    except OSError:
        return False


def _waits_without_limit(syscall: Path) -> bool:
    number, *arguments = syscall.read_text().split()
    if not number.isdigit() or int(number) not in _LIMITS:
        return False
    position, unlimited = _LIMITS[int(number)]
    value = int(arguments[position], 16)
    return value == unlimited if unlimited == _NO_POINTER else value & _INT_MINUS_ONE == unlimited


def cpu_seconds(pids: Iterable[int]) -> float:
    """Return the total CPU time of processes with nanosecond resolution (see clock_getcpuclockid(3))."""
    total = 0.0
    for pid in pids:
        try:
            total += time.clock_gettime((~pid << 3) | 2)
        except OSError:
            # It has exited; its share drops out of the total.
            continue
    return total
