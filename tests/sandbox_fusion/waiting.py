"""The processes that a sandbox forks programs from, and those that it has forked ahead, which wait for programs."""

from __future__ import annotations

import time

import psutil

__all__ = ["signal_waiting", "zygotes_of_programs"]

_WITHIN = 60.0


def signal_waiting(number: int) -> int:
    """Send a signal to the processes that this process's sandboxes have forked ahead; return their number.

    Args:
        number: The signal.
    """
    deadline = time.monotonic() + _WITHIN
    while time.monotonic() < deadline:
        family, zygotes = _family()
        # Those whose parents are roots, which are forks of a zygote as well.
        parents = {process.pid: process.ppid() for process in family}
        waiting = [process for process in family if {process.pid, process.ppid(), parents.get(process.ppid())} <= zygotes]
        for process in waiting:
            process.send_signal(number)
        if waiting:
            return len(waiting)
        time.sleep(0.05)
    return 0


def zygotes_of_programs() -> list[psutil.Process]:
    """Return the zygotes that this process's sandboxes have started for programs and submissions."""
    family, zygotes = _family()
    return [process for process in family if process.pid in zygotes and process.ppid() not in zygotes]


def _family() -> tuple[list[psutil.Process], set[int]]:
    """Return the descendants of this process, and the ids of those that are zygotes of programs, or their forks."""
    family = psutil.Process().children(recursive=True)
    return family, {process.pid for process in family if '"backend":"submission"' in " ".join(process.cmdline())}
