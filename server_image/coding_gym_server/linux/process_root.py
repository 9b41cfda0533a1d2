"""``ProcessRoot``: ancestor of processes that it can kill and reap at once."""

from __future__ import annotations

import contextlib
import os
import resource
import signal

from coding_gym_server.linux import procfs

__all__ = ["INIT", "ProcessRoot", "reaped_cpu_time"]

INIT = 1
"""Process id of the first process of a pid namespace, which adopts orphans."""


class ProcessRoot:
    """Base of processes that own all their descendants, whose orphans they adopt (see ``adopt_orphans``).

    Args:
        scopes_signals: Whether Landlock restricts the signals of the process to its descendants, as a pid namespace does.
        adopted_by_init: Whether all orphans adopted by init belong to it.
    """

    def __init__(self, *, scopes_signals: bool, adopted_by_init: bool) -> None:
        self._kills_at_once = scopes_signals or os.getpid() == INIT
        self._adopted_by_init = adopted_by_init

    def _kill(self) -> None:
        """Kill all descendants; afterwards none of them executes user code."""
        if self._kills_at_once:
            with contextlib.suppress(ProcessLookupError):
                os.kill(-1, signal.SIGKILL)
            return
        # kill(-1) would reach other processes. One that forks and exits may be missed each time that it is looked for, but not
        # that there is a child: what has lost its parent is a child of this process.
        while (found := self._processes()) or self._has_children():
            for pid in found:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            self._reap()
            os.sched_yield()

    def _has_children(self) -> bool:
        """Return whether there is a child, exited or not."""
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return False
        return True

    def _processes(self) -> set[int]:
        """Return the descendants, as far as they can be determined without a signal scope."""
        found = procfs.descendants(os.getpid())
        if self._adopted_by_init:
            # Kernels without subreapers, such as gVisor's, reparent orphans to init.
            orphans = procfs.children(INIT) - procfs.ancestors(os.getpid())
            found |= orphans.union(*map(procfs.descendants, orphans))
        return found

    def _reap(self) -> None:
        """Reap terminated children."""
        with contextlib.suppress(ChildProcessError):
            while (exited := os.wait4(-1, os.WNOHANG))[0]:
                self._record_exit(*exited)

    def _reap_all(self) -> None:
        """Wait until all killed processes have exited; orphans become children of this process."""
        with contextlib.suppress(ChildProcessError):
            while True:
                self._record_exit(*os.wait4(-1, 0))

    def _record_exit(self, pid: int, status: int, usage: resource.struct_rusage) -> None:
        """Called when a child has been reaped."""


def reaped_cpu_time() -> float:
    """Return the CPU seconds used by all processes that this one has reaped."""
    reaped = resource.getrusage(resource.RUSAGE_CHILDREN)
    return reaped.ru_utime + reaped.ru_stime
