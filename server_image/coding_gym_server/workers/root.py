"""The session root: owns every process of a session and can end them all at once.

It is the parent of the worker and, as a subreaper, of whatever the worker leaves behind. It never runs user code, so it
stays as clean as the zygote that it was forked from, and a reset is no more than: kill, empty the workspace, fork.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import select
import signal
import socket
import time
from typing import Protocol

import msgspec

from coding_gym_server.backends import backend_class
from coding_gym_server.isolation import oom
from coding_gym_server.isolation.confinement import Confinement
from coding_gym_server.isolation.ports import reserve_ports
from coding_gym_server.workers import process_table
from coding_gym_server.workers.channel import Channel, close_all
from coding_gym_server.workers.child_exits import ChildExits
from coding_gym_server.workers.forking import fork_when_possible
from coding_gym_server.workers.messages import (
    CpuTime,
    CpuTimeUsed,
    Failed,
    ForkWorker,
    Interrupt,
    Interrupted,
    Kill,
    Killed,
    ToProcess,
    WorkerExited,
    WorkerForked,
)

__all__ = ["Forked", "Root", "cpu_time_of_the_dead"]

_INIT = 1
_PR_SET_PDEATHSIG = 1
_NICENESS = 10
"""How much user code yields to the server and the roots, which could not end a hundred busy processes otherwise."""

_BEGINS_WITHIN = 0.25
"""Seconds that a worker may take from its request to the first line of the cell, on a busy machine."""

_PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None, use_errno=True)


class Forked(Protocol):
    """What a root has forked."""

    def run(self) -> None:
        """Do what it is there for; what returns has come to its end."""


class Root:
    """The root of one session.

    Args:
        channel: The server's requests.
        confinement: The limits of the session.
        workspace: The session's directory; exists already.
        backend: What executes the session's cells.
        shared: A directory that the session has in common with others.
        authorized_imports: Modules that a backend with a whitelist admits beyond its own.
    """

    def __init__(
        self,
        channel: Channel[ToProcess],
        confinement: Confinement,
        workspace: str,
        *,
        backend: str,
        shared: str | None,
        authorized_imports: tuple[str, ...],
    ) -> None:
        self._channel = channel
        self._confinement = confinement
        self._workspace = workspace
        self._backend = backend
        self._shared = shared
        self._authorized_imports = authorized_imports
        self._scopes_signals = confinement.scopes_signals
        self._worker: int | None = None
        self._worker_status: int | None = None

    def run(self) -> None:
        """Serve until the server is gone; returns in a forked worker that has come to its end, never in the root."""
        self._confine()
        exits = self._exits = ChildExits()
        poll = select.poll()
        poll.register(self._channel.fileno(), select.POLLIN)
        poll.register(exits.fileno(), select.POLLIN)
        while True:
            ready = [descriptor for descriptor, _ in poll.poll()]
            had_worker = self._worker is not None
            if exits.fileno() in ready:
                exits.clear()
                self._reap()
                if had_worker and self._worker is None:
                    with contextlib.suppress(OSError):
                        self._channel.send(WorkerExited(self._worker_status or 0))
            if self._channel.fileno() in ready:
                self._answer_requests()

    def _confine(self) -> None:
        os.setsid()
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        oom.rank_root()
        if self._confinement.can_have_ports:
            self._reserved = reserve_ports(self._ports_needed())
            ports = tuple(reservation.getsockname()[1] for reservation in self._reserved)
            self._confinement = msgspec.structs.replace(self._confinement, ports=ports)
        self._confinement.apply_to_root(self._workspace, *([self._shared] if self._shared else []))
        self._prepared = self._confinement.prepare_workers()

    def _answer_requests(self) -> None:
        worker = None
        try:
            for message, descriptors in self._channel.requests():
                worker = self._answer(message, descriptors)
                if worker is not None:
                    break
        except (EOFError, ConnectionError):
            self._kill()
            self._reap_all()
            os._exit(0)
        if worker is not None:
            worker.run()

    def _answer(self, message: ToProcess, descriptors: list[int]) -> Forked | None:
        """Carry a request out; returns the worker in its forked process, None in the root."""
        match message:
            case ForkWorker(directory):
                self._workspace = directory
                return self._fork(descriptors)
            case Interrupt():
                if self._worker is not None:
                    self._interrupt(self._worker)
                self._channel.send(Interrupted())
            case Kill():
                self._kill()
                self._channel.send(Killed())
            case CpuTime():
                self._channel.send(CpuTimeUsed(self._cpu_time()))
        return None

    def _fork(self, descriptors: list[int]) -> Forked | None:
        """Replace all that runs by a new worker."""
        self._kill()
        if self._worker is None:
            # It may have died for want of memory: let the rest give theirs back first.
            self._reap_all()
        root = os.getpid()
        try:
            # The old processes take their time to go; meanwhile the new one sets itself up.
            pid = self._try_to_fork()
            if pid == 0:
                self._exits.close()
                os.nice(_NICENESS)
                _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
                if os.getppid() != root:
                    # It died before this process had asked to be told.
                    os._exit(1)
                self._channel.close()
                return self._new_worker(*descriptors)
            self._reap_all_but(pid)
            previous_status, self._worker, self._worker_status = self._worker_status, pid, None
        except OSError as error:
            self._channel.send(Failed(f"no new worker: {error}"))
        else:
            self._channel.send(WorkerForked(pid, previous_status, cpu_time_of_the_dead()))
        close_all(descriptors)
        return None

    def _ports_needed(self) -> int:
        return backend_class(self._backend).ports_needed()

    def _new_worker(self, channel: int, stdout: int, stderr: int) -> Forked:
        # Roots of submissions do without.
        from coding_gym_server.workers.worker import Worker

        return Worker(
            Channel(socket.socket(fileno=channel)),
            stdout,
            stderr,
            self._workspace,
            backend=self._backend,
            authorized_imports=self._authorized_imports,
            confinement=self._confinement,
            prepared=self._prepared,
        )

    def _try_to_fork(self) -> int:
        try:
            return self._fork_process()
        except OSError:
            # What has just been killed counts against the limit of processes until it is reaped.
            self._reap_all()
            return fork_when_possible(self._fork_process)

    def _fork_process(self) -> int:
        return os.fork()

    def _kill(self) -> None:
        """Kill every process of the session; afterwards none executes another instruction of its own."""
        if self._scopes_signals:
            with contextlib.suppress(ProcessLookupError):
                os.kill(-1, signal.SIGKILL)
            return
        # Without the scope kill(-1) would reach other sessions, so chase the processes until there are no more.
        while pids := self._processes():
            for pid in pids:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            self._reap()
            time.sleep(0.0005)

    def _interrupt(self, worker: int) -> None:
        """Interrupt what the worker executes; if it has been told to, but has not begun yet, as soon as it has."""
        deadline = time.monotonic() + _BEGINS_WITHIN
        while process_table.ignores(worker, signal.SIGINT) and time.monotonic() < deadline:
            time.sleep(0.002)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(worker, signal.SIGINT)

    def _processes(self) -> set[int]:
        """Return the processes of the session, as far as that can be told without a scope."""
        found = process_table.descendants(os.getpid())
        if self._confinement.adopted_by_init:
            # A kernel that knows no subreapers, such as gVisor's, gives orphans to init.
            orphans = process_table.children(_INIT) - process_table.ancestors(os.getpid())
            found |= orphans.union(*map(process_table.descendants, orphans))
        return found

    def _reap(self) -> None:
        """Reap what has died, of itself or killed."""
        with contextlib.suppress(ChildProcessError):
            while (exited := os.waitpid(-1, os.WNOHANG))[0]:
                self._note_exit(*exited)

    def _reap_all(self) -> None:
        """Wait for the end of all that has been killed; who loses its parent then becomes a child of this process."""
        with contextlib.suppress(ChildProcessError):
            while True:
                self._note_exit(*os.waitpid(-1, 0))

    def _reap_all_but(self, survivor: int) -> None:
        """Wait for the end of all that has been killed, and leave out what has not been."""
        while doomed := process_table.children(os.getpid()) - {survivor}:
            for pid in doomed:
                self._note_exit(*os.waitpid(pid, 0))

    def _note_exit(self, pid: int, status: int) -> None:
        if pid == self._worker:
            self._worker, self._worker_status = None, status

    def _cpu_time(self) -> float:
        alive = sum(process_table.cpu_time(pid) for pid in process_table.descendants(os.getpid()))
        return cpu_time_of_the_dead() + alive


def cpu_time_of_the_dead() -> float:
    """Return the CPU seconds that all processes have used that this one has reaped."""
    reaped = resource.getrusage(resource.RUSAGE_CHILDREN)
    return reaped.ru_utime + reaped.ru_stime
