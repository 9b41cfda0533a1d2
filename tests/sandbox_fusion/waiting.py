"""The processes that a sandbox has forked ahead, which wait for programs."""

from __future__ import annotations

import time

import psutil

__all__ = ["signal_waiting"]

_WITHIN = 60.0


def signal_waiting(number: int) -> int:
    """Send a signal to the processes that this process's sandboxes have forked ahead; return their number.

    Args:
        number: The signal.
    """
    deadline = time.monotonic() + _WITHIN
    while time.monotonic() < deadline:
        family = psutil.Process().children(recursive=True)
        zygotes = {process.pid for process in family if '"backend":"submission"' in " ".join(process.cmdline())}
        # Those whose parents are roots, which are forks of a zygote as well.
        parents = {process.pid: process.ppid() for process in family}
        waiting = [process for process in family if {process.pid, process.ppid(), parents.get(process.ppid())} <= zygotes]
        for process in waiting:
            process.send_signal(number)
        if waiting:
            return len(waiting)
        time.sleep(0.05)
    return 0
