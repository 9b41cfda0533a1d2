"""What processes wait for, an event, however long it takes, or a time to come; and whether they wait at all."""

from __future__ import annotations

import platform
import time
from collections.abc import Iterable
from pathlib import Path

__all__ = ["cpu_seconds", "waits_without_limit"]

_INT_MINUS_ONE = 0xFFFFFFFF
_NO_POINTER = 0

# The number of a system call to the argument that limits the wait, and its value if there is no limit.
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
    """Say whether the main thread of a process sleeps until something happens; not if that cannot be found out.

    ``/proc/PID/syscall`` tells, see proc(5).
    """
    try:
        number, *arguments = Path(f"/proc/{pid}/syscall").read_text().split()
    except OSError:
        return False
    if not number.isdigit() or int(number) not in _LIMITS:
        return False
    position, unlimited = _LIMITS[int(number)]
    value = int(arguments[position], 16)
    return value == unlimited if unlimited == _NO_POINTER else value & _INT_MINUS_ONE == unlimited


def cpu_seconds(pids: Iterable[int]) -> float:
    """Return the CPU time that processes have used, to the nanosecond, by their clocks (see clock_getcpuclockid(3))."""
    total = 0.0
    for pid in pids:
        try:
            total += time.clock_gettime((~pid << 3) | 2)
        except OSError:
            # It is gone; what it had used is missed for a moment.
            continue
    return total
