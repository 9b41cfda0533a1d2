"""Session root: owns all processes of a session and can kill them at once.

It is the parent of the worker, of the spawner of other programs and, as a subreaper, of the worker's orphans. It never runs
user code, so it stays as clean as the zygote that it was forked from, and a reset only has to kill the processes, empty the
workspace and fork.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import socket
import time
from typing import Protocol

import msgspec

from coding_gym_server.ipc.channel import Channel, close_all
from coding_gym_server.ipc.messages import (
    CheckWaiting,
    CpuTime,
    CpuTimeUsed,
    Failed,
    ForkSpawner,
    ForkWorker,
    Interrupted,
    InterruptWorker,
    Kill,
    Killed,
    SpawnerForked,
    ToProcess,
    Waiting,
    WorkerExited,
    WorkerForked,
)
from coding_gym_server.ipc.snapshot_messages import AdoptCopy, CopyAdopted, KillCopy, KillLive
from coding_gym_server.ipc.system_messages import EnterOwnSystem, FoundSystem, Joined, JoinSystem, Mounted
from coding_gym_server.isolation import session_user
from coding_gym_server.isolation.ports import reserve_ports
from coding_gym_server.isolation.profile import IsolationProfile
from coding_gym_server.linux import oom, procfs
from coding_gym_server.linux.forking import adopt_orphans, die_with_parent, fork_bare, fork_when_possible
from coding_gym_server.linux.niceness import lower_priority
from coding_gym_server.linux.process_root import ProcessRoot, reaped_cpu_time
from coding_gym_server.linux.sigchld import ChildExits
from coding_gym_server.linux.wait_state import waits_without_limit
from coding_gym_server.worker.backends.registry import backend_class
from coding_gym_server.workspace.layout import MOUNTED, PRIVATE, Layout
from coding_gym_server.zygote.spawner import Spawner

__all__ = ["Forked", "SessionRoot"]

_CONVERGENCE_SECONDS = 3.0
"""Time after which processes that multiply while they are killed are killed together with the frozen copies."""

_CELL_START_SECONDS = 0.25
"""Maximum delay from the request to the first line of the cell on a busy machine."""


class Forked(Protocol):
    """Process forked by a root."""

    def run(self) -> None:
        """Run the process; it exits when this returns."""


class SessionRoot(ProcessRoot):
    """Root process of one session.

    Args:
        channel: Channel of the server's requests.
        profile: Isolation profile of the session.
        workspace: The session's existing directory, None if it has a file system of its own.
        backend: Name of the backend that executes the cells.
        shared: Directory shared with other sessions, or None.
        user: Id of the session's user, None if it is the server's.
        authorized_imports: Modules that a backend with an import allowlist permits in addition to its own.
    """

    def __init__(
        self,
        channel: Channel[ToProcess],
        profile: IsolationProfile,
        workspace: str | None,
        *,
        backend: str,
        shared: str | None,
        user: int | None,
        authorized_imports: tuple[str, ...],
    ) -> None:
        super().__init__(scopes_signals=profile.scopes_signals, adopted_by_init=profile.adopted_by_init)
        self._channel = channel
        self._profile = profile
        self._directory = workspace
        self._layout = PRIVATE
        self._user = user
        self._backend = backend
        self._shared = shared
        self._authorized_imports = authorized_imports
        self._worker: int | None = None
        self._worker_status: int | None = None
        self._has_exited = False
        self._spawners: set[int] = set()
        self._frozen: set[int] = set()
        self._doomed: set[int] = set()
        self._spawners_cpu_time = 0.0

    def run(self) -> None:
        """Serve until the server exits. Returns only in a forked worker at its end, never in the root."""
        self._apply_profile()
        exits = self._exits = ChildExits()
        poll = select.poll()
        poll.register(self._channel.fileno(), select.POLLIN)
        poll.register(exits.fileno(), select.POLLIN)
        while True:
            ready = [descriptor for descriptor, _ in poll.poll()]
            if exits.fileno() in ready:
                exits.clear()
                self._reap()
            self._report_exit()
            if self._channel.fileno() in ready:
                self._handle_requests()

    def _report_exit(self) -> None:
        """Report the exit of the worker, which may have been reaped while something was forked."""
        if self._has_exited:
            self._has_exited = False
            with contextlib.suppress(OSError):
                self._channel.send(WorkerExited(self._worker_status or 0))

    def _apply_profile(self) -> None:
        os.setsid()
        adopt_orphans()
        if self._user is not None:
            self._enter_system(self._user)
        self._rank = oom.Rank()
        if self._profile.can_have_ports:
            self._reserved = reserve_ports(self._ports_needed())
            ports = tuple(reservation.getsockname()[1] for reservation in self._reserved)
            self._profile = msgspec.structs.replace(self._profile, ports=ports)
        directories = [mount_point for mount_point, _ in MOUNTED.values()] if self._directory is None else [self._directory]
        self._profile.apply_to_root(*directories, *([self._shared] if self._shared else []), owns_user=self._owns_user)
        self._prepared = self._profile.prepare_workers()

    @property
    def _owns_user(self) -> bool:
        """Whether the session's user is not that of the server and of other sessions, unless they share its files, too."""
        return self._user is not None and self._profile.users is not None and self._user != self._profile.users.server

    def _enter_system(self, user: int) -> None:
        """Give the session a user, and mounts and a disk: its own, or those of a system that another root has made."""
        assert self._profile.users is not None
        try:
            request, namespaces = next(self._channel.requests())
            try:
                response, descriptors = self._enter(request, user, namespaces)
            except OSError as error:
                self._channel.send(Failed(f"the session cannot have a user and a file system: {error}"))
                os._exit(1)
            self._channel.send(response, descriptors)
        except (EOFError, ConnectionError):
            # The server has ended the session.
            os._exit(0)
        if isinstance(request, FoundSystem):
            os._exit(0)
        close_all((*namespaces, *descriptors))
        # The kernel counts tasks per user and user namespace, of which the session has one of its own.
        self._profile = msgspec.structs.replace(self._profile, max_tasks=self._profile.users.max_tasks)

    def _enter(self, request: ToProcess, user: int, namespaces: list[int]) -> tuple[Mounted | Joined, tuple[int, ...]]:
        """Enter a system; return the response, and the descriptors to pass along with it."""
        assert self._profile.users is not None
        if isinstance(request, JoinSystem):
            session_user.join(user, namespaces)
            self._layout = msgspec.structs.replace(PRIVATE, authority=request.authority)
            return Joined(), ()
        assert isinstance(request, EnterOwnSystem | FoundSystem)
        tree = session_user.enter(self._profile.users, user, MOUNTED)
        if isinstance(request, FoundSystem):
            return Mounted(), (tree, *session_user.open_namespaces())
        return Mounted(), (tree, session_user.open_mounts()) if request.lends_files else (tree,)

    def _handle_requests(self) -> None:
        worker = None
        try:
            for message, descriptors in self._channel.requests():
                worker = self._handle(message, descriptors)
                if worker is not None:
                    break
        except (EOFError, ConnectionError):
            self._kill()
            self._reap_all()
            os._exit(0)
        if worker is not None:
            worker.run()

    def _handle(self, message: ToProcess, descriptors: list[int]) -> Forked | None:
        """Handle a request; return the worker in the forked process, None in the root."""
        match message:
            case ForkWorker(directory):
                self._directory = directory
                return self._fork(descriptors)
            case ForkSpawner():
                return self._fork_spawner(descriptors)
            case InterruptWorker():
                if self._worker is not None:
                    self._interrupt(self._worker)
                self._channel.send(Interrupted())
            case Kill():
                self._kill()
                self._channel.send(Killed())
            case AdoptCopy(pid, is_worker):
                self._channel.send(self._adopt(pid, is_worker=is_worker))
            case KillLive():
                self._kill_live()
                # Its exit was requested, so it is not reported.
                self._worker, self._has_exited = None, False
                self._channel.send(Killed())
            case KillCopy(pid):
                self._kill_copy(pid)
                self._channel.send(Killed())
            case CpuTime():
                self._channel.send(CpuTimeUsed(self._cpu_time()))
            case CheckWaiting(pids):
                # The server may run as another user, which the kernel tells nothing about a process's system calls.
                self._channel.send(Waiting(all(map(waits_without_limit, pids))))
        return None

    def _fork(self, descriptors: list[int]) -> Forked | None:
        """Replace all running processes, except frozen copies, by a new worker."""
        self._kill_live()
        if self._worker is None:
            # It may have run out of memory: free that of the remaining processes first.
            self._reap_all_but(*self._frozen)
        root = os.getpid()
        try:
            # Fork before reaping, so that the new worker starts up while the old processes exit.
            with self._rank.of_workers():
                pid = self._try_to_fork()
            if pid == 0:
                self._become_child(root)
                lower_priority()
                return self._new_worker(*descriptors)
            self._reap_all_but(pid, *self._frozen)
            previous_status, self._worker, self._worker_status = self._worker_status, pid, None
            self._has_exited = False
        except OSError as error:
            self._channel.send(Failed(f"cannot fork a worker: {error}"))
        else:
            self._channel.send(WorkerForked(pid, previous_status, reaped_cpu_time()))
        close_all(descriptors)
        return None

    def _adopt(self, pid: int, *, is_worker: bool) -> CopyAdopted | Failed:
        """Take over a child that the worker, or a frozen copy, claims to have made."""
        children = procfs.children(os.getpid())
        known = {self._worker} | self._frozen | self._spawners
        if pid not in children or pid in known:
            return Failed(f"{pid} is not a new child of the session's root")
        if is_worker:
            self._worker, self._worker_status, self._has_exited = pid, None, False
            return CopyAdopted()
        self._doomed &= children
        if others := children - known - self._doomed - {pid}:
            self._frozen.add(pid)
            self._kill_copy(pid)
            return Failed(f"{len(others)} background processes")
        self._frozen.add(pid)
        return CopyAdopted()

    def _kill_live(self) -> None:
        """Kill all descendants except frozen copies; afterwards none of them executes user code."""
        if not self._frozen:
            self._kill()
            return
        deadline = time.monotonic() + _CONVERGENCE_SECONDS
        killed: set[int] = set()
        while True:
            top = procfs.children(os.getpid()) - self._frozen
            # A process with a pending SIGKILL forks no more.
            found = top.union(*map(procfs.descendants, top)) - killed
            if not found:
                break
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
        self._doomed |= killed

    def _kill_copy(self, pid: int) -> None:
        if pid in self._frozen:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                self._record_exit(*os.wait4(pid, 0))

    def _fork_spawner(self, descriptors: list[int]) -> Forked | None:
        root = os.getpid()
        try:
            # The spawner's programs inherit its rank, which they could not be given by a process that is confined already.
            with self._rank.of_workers():
                pid = fork_when_possible(fork_bare, on_wait=self._reap)
            if pid == 0:
                self._become_child(root)
                return Spawner(*descriptors, profile=self._profile, prepared=self._prepared)
            self._spawners.add(pid)
        except OSError as error:
            self._channel.send(Failed(f"cannot fork a spawner: {error}"))
        else:
            self._channel.send(SpawnerForked())
        close_all(descriptors)
        return None

    def _become_child(self, root: int) -> None:
        """Detach a forked child from the root's own business."""
        self._exits.close()
        self._rank.close()
        die_with_parent(root)
        self._channel.close()

    def _ports_needed(self) -> int:
        return backend_class(self._backend).ports_needed()

    def _new_worker(self, channel: int, stdout: int, stderr: int) -> Forked:
        # Imported here because submission roots do not need it.
        from coding_gym_server.worker.worker import Worker

        return Worker(
            Channel(socket.socket(fileno=channel)),
            stdout,
            stderr,
            self._layout if self._directory is None else Layout.below(self._directory),
            backend=self._backend,
            authorized_imports=self._authorized_imports,
            profile=self._profile,
            prepared=self._prepared,
        )

    def _try_to_fork(self) -> int:
        try:
            return self._fork_process()
        except OSError:
            # Killed processes count against the process limit until they are reaped.
            self._reap_all_but(*self._frozen)
            return fork_when_possible(self._fork_process)

    def _fork_process(self) -> int:
        return os.fork()

    def _interrupt(self, worker: int) -> None:
        """Interrupt the running cell; if the worker has not started it yet, as soon as it has."""
        deadline = time.monotonic() + _CELL_START_SECONDS
        while procfs.ignores(worker, signal.SIGINT) and time.monotonic() < deadline:
            time.sleep(0.002)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(worker, signal.SIGINT)

    def _record_exit(self, pid: int, status: int, usage: resource.struct_rusage) -> None:
        if pid == self._worker:
            self._worker, self._worker_status, self._has_exited = None, status, True
        elif pid in self._frozen:
            self._frozen.remove(pid)
        elif pid in self._spawners:
            self._spawners.remove(pid)
            self._spawners_cpu_time += usage.ru_utime + usage.ru_stime

    def _cpu_time(self) -> float:
        """Return the CPU seconds used by the session's processes, without the spawner and the programs below it."""
        alive = sum(procfs.cpu_time(pid) for pid in procfs.descendants(os.getpid(), without=self._spawners))
        return reaped_cpu_time() - self._spawners_cpu_time + alive
