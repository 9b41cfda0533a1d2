"""Base of session roots: the seats of a family, their workers and frozen copies, and the end of their processes.

A session and its forks are a family: one root is the parent of all their workers, because a copy of a worker is a child of its
parent. Each session has a seat. That of a fork has a user, a mount and an IPC namespace, and processes belong to the seat
whose user namespace they are in, which none of them can change.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import time
from collections.abc import Iterable

from coding_gym_server.ipc.snapshot_messages import FIRST_SEAT
from coding_gym_server.isolation.gate import NamespaceGate
from coding_gym_server.linux import procfs
from coding_gym_server.linux.process_root import ProcessRoot, reaped_cpu_time

__all__ = ["FamilyRoot", "Seat"]

_CONVERGENCE_SECONDS = 3.0
"""Time after which processes that multiply while they are killed are killed together with the rest of the family."""


_UNKNOWN = object()


class Seat:
    """Place of one session in a family.

    Args:
        number: Its number.
        namespaces: Descriptors of its user, mount and IPC namespace; empty for the first seat, whose namespaces are the root's.

    Attributes:
        number: Its number.
        namespaces: Descriptors of its user, mount and IPC namespace; empty for the first seat.
        worker: Process id of its worker, None without one.
        worker_status: Wait status of its last worker, None before it has exited.
        has_exited: Whether the worker has exited, which was not reported yet.
        spawners: Process ids of its spawners.
        cpu_seconds: CPU time of its processes that have been reaped, except for the first seat.
    """

    def __init__(self, number: int, namespaces: tuple[int, ...] = ()) -> None:
        self.number = number
        self.namespaces = namespaces
        self.worker: int | None = None
        self.worker_status: int | None = None
        self.has_exited = False
        self.spawners: set[int] = set()
        self.cpu_seconds = 0.0
        self._identity = procfs.identity_of(namespaces[0]) if namespaces else None

    def contains(self, pid: int) -> bool:
        """Return whether a process of the family is, or may be, in the user namespace of the seat."""
        identity = procfs.user_namespace_of(pid)
        # A process that hides its namespace belongs to every seat: it ends with the first one.
        return identity is None or identity == self.identity

    @property
    def identity(self) -> tuple[int, int] | None:
        """Device and inode of the user namespace."""
        if self._identity is None:
            # That of the root, which has entered it since the object was created.
            self._identity = procfs.user_namespace_of(os.getpid())
        return self._identity


class FamilyRoot(ProcessRoot):
    """Root of the processes of a session and its forks.

    Args:
        scopes_signals: Whether Landlock restricts the signals of the process to its descendants.
        adopted_by_init: Whether all orphans adopted by init belong to it.
    """

    def __init__(self, *, scopes_signals: bool, adopted_by_init: bool) -> None:
        super().__init__(scopes_signals=scopes_signals, adopted_by_init=adopted_by_init)
        self._seats = {FIRST_SEAT: Seat(FIRST_SEAT)}
        self._frozen: set[int] = set()
        # Killed, but possibly not reaped yet; with their seats, or None for frozen copies.
        self._doomed: dict[int, Seat | None] = {}
        self._cpu_seconds_of_others = 0.0
        self._gate: NamespaceGate | None = None

    @property
    def _is_alone(self) -> bool:
        """Whether all processes belong to the first seat, and none is a frozen copy."""
        return not self._frozen and len(self._seats) == 1

    def _adopt(self, pid: int, seat: Seat, *, is_worker: bool) -> str | None:
        """Take over a child that a worker, or a frozen copy, claims to have made; return the reason why not.

        A worker can become a frozen copy, and a copy a worker.
        """
        is_known = pid == seat.worker or pid in self._frozen
        if not is_known and pid not in procfs.children(os.getpid()) - self._known():
            return f"{pid} is not a new child of the session's root"
        if is_worker:
            self._frozen.discard(pid)
            seat.worker, seat.worker_status, seat.has_exited = pid, None, False
            self._admit(pid, seat)
        else:
            if pid == seat.worker:
                if procfs.descendants(pid):
                    return "the interpreter has child processes"
                seat.worker = None
            self._frozen.add(pid)
        return None

    def _check_alone(self, seat: Seat) -> str | None:
        """Return the reason why a copy of a seat's worker would not be one of the session; None if there is none."""
        unknown = procfs.children(os.getpid()) - self._known() - self._doomed.keys()
        others = [pid for pid in unknown if seat.contains(pid) and not self._is_unborn(pid)]
        return f"{len(others)} background processes" if others else None

    def _is_unborn(self, pid: int) -> bool:
        """Return whether a child was forked from a frozen copy and is not adopted yet.

        It belongs to the session of the copy until the root has adopted it. An announcement of the fork could not tell the root
        which of its new children it is, and would delay each restore.
        """
        return procfs.session_of(pid) in self._frozen

    def _known(self) -> set[int]:
        """Return the children that the root has forked or adopted."""
        workers = (seat.worker for seat in self._seats.values() if seat.worker is not None)
        return self._frozen.union(workers, *(seat.spawners for seat in self._seats.values()))

    def _admit(self, pid: int, seat: Seat) -> None:
        """Let a process join the namespaces of a seat, once."""
        if self._gate is not None and seat.namespaces:
            self._gate.admit(pid, len(seat.namespaces))

    def _seal(self, seat: Seat) -> str | None:
        """Return why the new worker of a seat is not confined to it; None if it is."""
        if seat.worker is None:
            return "the copy of the interpreter has ended"
        if self._gate is not None:
            self._gate.revoke(seat.worker)
        # Those of other seats are checked there, or have not run any user code yet.
        unknown = procfs.children(os.getpid()) - self._known()
        suspects = {seat.worker, *unknown}.union(*map(procfs.descendants, (seat.worker, *unknown)))
        privileged = [pid for pid in suspects if procfs.has_capabilities(pid)]
        for pid in privileged:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if privileged or procfs.user_namespace_of(seat.worker) != seat.identity:
            return "the copy of the interpreter is not confined to the files of the fork"
        return None

    def _close_seat(self, seat: Seat) -> None:
        self._kill_seat(seat)
        if seat.number != FIRST_SEAT and self._seats.pop(seat.number, None) is not None:
            for descriptor in seat.namespaces:
                os.close(descriptor)

    def _kill_seat(self, seat: Seat) -> None:
        """Kill all processes of a seat except frozen copies; afterwards none of them executes user code."""
        if self._is_alone:
            self._kill()
            return
        deadline = time.monotonic() + _CONVERGENCE_SECONDS
        killed: set[int] = set()
        # A process with a pending SIGKILL forks no more.
        while found := self._processes_of(seat) - killed:
            for pid in found:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            killed |= found
            self._reap()
            if time.monotonic() > deadline:
                # Only a signal to all processes at once ends those that fork faster than they are found.
                self._kill()
                self._reap_all()
                break
        self._doomed |= dict.fromkeys(killed, seat)

    def _processes_of(self, seat: Seat, *, without: Iterable[int] = ()) -> set[int]:
        """Return the processes of a seat except frozen copies.

        Args:
            seat: The seat.
            without: Processes to leave out along with their descendants.
        """
        others = [other for other in self._seats.values() if other is not seat]
        # Workers of other seats may not have joined their namespaces yet.
        hidden = self._frozen.union(without, (other.worker for other in others if other.worker is not None))
        found = procfs.descendants(os.getpid(), without=hidden)
        if self._frozen:
            found = {pid for pid in found if not self._is_unborn(pid)}
        return {pid for pid in found if seat.contains(pid)} if others else found

    def _kill_copy(self, pid: int) -> None:
        """Kill a frozen copy, without waiting for its end: freeing its memory takes milliseconds."""
        if pid in self._frozen:
            self._frozen.remove(pid)
            self._doomed[pid] = None
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _reap_killed(self, *survivors: int) -> None:
        """Wait until the killed processes have exited; without a family, all but ``survivors``."""
        if self._is_alone:
            self._reap_all_but(*survivors)
            return
        # Those whose parents were killed, too, become children of the root only then.
        while pids := self._doomed.keys() & procfs.children(os.getpid()):
            for pid in pids:
                with contextlib.suppress(ChildProcessError):
                    self._record_exit(*os.wait4(pid, 0))
        self._doomed.clear()

    def _record_exit(self, pid: int, status: int, usage: resource.struct_rusage) -> None:
        if pid in self._frozen or self._doomed.get(pid, _UNKNOWN) is None:
            # Its CPU time is that of steps in the past.
            self._count(usage, None)
        self._frozen.discard(pid)
        doomed_of = self._doomed.pop(pid, None)
        for seat in self._seats.values():
            if pid == seat.worker:
                seat.worker, seat.worker_status, seat.has_exited = None, status, True
                self._count(usage, seat)
            elif pid in seat.spawners:
                seat.spawners.remove(pid)
                self._count(usage, None)
            elif doomed_of is seat:
                self._count(usage, seat)

    def _count(self, usage: resource.struct_rusage, seat: Seat | None) -> None:
        """Count the CPU time of a process that has been reaped, unless the first seat has used it; None for no seat."""
        if seat is not None and seat.number == FIRST_SEAT:
            return
        seconds = usage.ru_utime + usage.ru_stime
        self._cpu_seconds_of_others += seconds
        if seat is not None:
            seat.cpu_seconds += seconds

    def _cpu_time(self, seat: Seat) -> float:
        """Return the CPU seconds used by a seat's processes, without the spawner and the programs below it."""
        is_first = seat.number == FIRST_SEAT
        reaped = reaped_cpu_time() - self._cpu_seconds_of_others if is_first else seat.cpu_seconds
        return reaped + sum(map(procfs.cpu_time, self._processes_of(seat, without=seat.spawners)))
