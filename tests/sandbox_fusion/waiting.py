"""The processes that a sandbox forks programs from, and those that it has forked ahead, which wait for programs."""

from __future__ import annotations

import contextlib

import psutil

from tests.support.timing import eventually

__all__ = ["signal_waiting", "zygotes_of_programs"]


def signal_waiting(number: int) -> int:
    """Send a signal to the processes that this process's sandboxes have forked ahead; return their number.

    Args:
        number: The signal.
    """

    def signal_all() -> int:
        parents = _parents()
        count = 0
        for process, parent in parents.items():
            # The roots, which are their parents, are forks of a zygote as well.
            if parent in parents and parents[parent] in parents:
                with contextlib.suppress(psutil.NoSuchProcess):
                    # A root of test runners that warms up has a fork as well, with a socket for each run.
                    if process.num_fds() < 10:
                        process.send_signal(number)
                        count += 1
        return count

    return eventually(signal_all)


def zygotes_of_programs() -> list[psutil.Process]:
    """Return the zygotes that this process's sandboxes have started for programs and submissions."""
    parents = _parents()
    return [process for process, parent in parents.items() if parent not in parents]


def _parents() -> dict[psutil.Process, psutil.Process | None]:
    """Return the parents of the zygotes of programs and of their forks, by process."""
    parents = {}
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if '"backend":"submission"' in " ".join(process.cmdline()):
                parents[process] = process.parent()
    return parents
