"""Session root: owns all processes of a session and of its forks, and can kill those of each at once.

It is the parent of the workers, of the spawners of other programs and, as a subreaper, of their orphans. It never runs
user code, so it stays as clean as the zygote that it was forked from, and a reset only has to kill the processes, empty the
workspace and fork.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
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
from coding_gym_server.ipc.snapshot_messages import (
    FIRST_SEAT,
    AdoptCopy,
    CheckAlone,
    CloseSeat,
    CopyAdopted,
    KillCopy,
    LendNamespaces,
    NamespacesLent,
    OpenSeat,
    SealSeat,
)
from coding_gym_server.ipc.system_messages import EnterOwnSystem, FoundSystem, Joined, JoinSystem, Mounted
from coding_gym_server.ipc.widget_messages import WIDGETS_SIGNAL, RequestWidgets, WidgetsRequested
from coding_gym_server.isolation import session_user
from coding_gym_server.isolation.gate import NamespaceGate
from coding_gym_server.isolation.ports import reserve_ports
from coding_gym_server.isolation.profile import IsolationProfile
from coding_gym_server.linux import oom
from coding_gym_server.linux.forking import adopt_orphans, die_with_parent, fork_bare, fork_when_possible
from coding_gym_server.linux.niceness import lower_priority
from coding_gym_server.linux.process_root import reaped_cpu_time
from coding_gym_server.linux.sigchld import ChildExits
from coding_gym_server.linux.wait_state import waits_without_limit
from coding_gym_server.worker.backends.registry import backend_class
from coding_gym_server.workspace.layout import MOUNTED, PRIVATE, Layout
from coding_gym_server.zygote.family_root import FamilyRoot, Seat
from coding_gym_server.zygote.interrupting import interrupt
from coding_gym_server.zygote.spawner import Spawner

__all__ = ["Forked", "SessionRoot"]


class Forked(Protocol):
    """Process forked by a root."""

    def run(self) -> None:
        """Run the process; it exits when this returns."""


class SessionRoot(FamilyRoot):
    """Root process of one session and its forks.

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
        self._parent_of_seats: int | None = None
        self._seat_count = 0

    def run(self) -> None:
        """Serve until the server exits. Returns only in a forked worker at its end, never in the root."""
        self._apply_profile()
        exits = self._exits = ChildExits()
        poll = select.poll()
        poll.register(self._channel.fileno(), select.POLLIN)
        poll.register(exits.fileno(), select.POLLIN)
        if self._gate is not None:
            poll.register(self._gate.fileno(), select.POLLIN)
        while True:
            ready = [descriptor for descriptor, _ in poll.poll()]
            if self._gate is not None and self._gate.fileno() in ready:
                self._gate.answer()
            if exits.fileno() in ready:
                exits.clear()
                self._reap()
            self._report_exits()
            if self._channel.fileno() in ready:
                self._handle_requests()

    def _report_exits(self) -> None:
        """Report the exits of workers, which may have been reaped while something was forked."""
        for seat in self._seats.values():
            if seat.has_exited:
                seat.has_exited = False
                with contextlib.suppress(OSError):
                    self._channel.send(WorkerExited(seat.worker_status or 0, seat.number))

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
        if self._parent_of_seats is not None:
            seats = session_user.seat_paths(self._parent_of_seats, self._seat_count)
            directories += [f"{seat}/{name}" for seat in seats for name in MOUNTED]
        listener = self._profile.apply_to_root(
            *directories,
            *([self._shared] if self._shared else []),
            owns_user=self._owns_user,
            can_fork=self._seat_count > 0,
        )
        if self._parent_of_seats is not None:
            # Else the session could access the files of its forks.
            os.close(self._parent_of_seats)
        if listener is not None:
            self._gate = NamespaceGate(listener)
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
        users = self._profile.users
        assert users is not None
        if isinstance(request, JoinSystem):
            session_user.join(user, namespaces)
            self._layout = msgspec.structs.replace(PRIVATE, authority=request.authority)
            return Joined(), ()
        assert isinstance(request, EnterOwnSystem | FoundSystem)
        if isinstance(request, EnterOwnSystem) and request.is_root:
            tree = session_user.enter_as_root(users, MOUNTED)
            self._profile = msgspec.structs.replace(self._profile, is_root=True)
            return Mounted(), (tree,)
        seats = request.seats if isinstance(request, EnterOwnSystem) else 0
        tree, parent = session_user.enter(users, user, MOUNTED, seats=seats)
        if seats:
            self._parent_of_seats, self._seat_count = os.dup(parent), seats
            return Mounted(), (tree, parent)
        os.close(parent)
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
        if getattr(message, "seat", FIRST_SEAT) not in self._seats and not isinstance(message, OpenSeat):
            self._channel.send(Failed("the fork has ended"))
            close_all(descriptors)
            return None
        match message:
            case ForkWorker(directory, number):
                self._directory = directory
                return self._fork(self._seats[number], descriptors)
            case ForkSpawner(number):
                return self._fork_spawner(self._seats[number], descriptors)
            case InterruptWorker(number):
                if (worker := self._seats[number].worker) is not None:
                    interrupt(worker)
                self._channel.send(Interrupted())
            case RequestWidgets(number):
                if (worker := self._seats[number].worker) is not None:
                    with contextlib.suppress(ProcessLookupError):
                        # Other programs than the worker ignore this signal by default.
                        os.kill(worker, WIDGETS_SIGNAL)
                self._channel.send(WidgetsRequested())
            case Kill(number):
                self._kill_seat(self._seats[number])
                self._channel.send(Killed())
            case CpuTime(number):
                self._channel.send(CpuTimeUsed(self._cpu_time(self._seats[number])))
            case CheckWaiting(pids):
                # The server may run as another user, which the kernel tells nothing about a process's system calls.
                self._channel.send(Waiting(all(map(waits_without_limit, pids))))
            case _:
                self._handle_branching(message, descriptors)
        return None

    def _handle_branching(self, message: ToProcess, descriptors: list[int]) -> None:
        """Handle a request about copies of a worker, or seats for them."""
        match message:
            case AdoptCopy(pid, is_worker, number):
                self._send_adopted(self._adopt(pid, self._seats[number], is_worker=is_worker))
            case CheckAlone(number):
                self._send_adopted(self._check_alone(self._seats[number]))
            case KillCopy(pid):
                self._kill_copy(pid)
                self._channel.send(Killed())
            case LendNamespaces(pid):
                self._lend_namespaces(pid)
            case OpenSeat(number):
                self._seats[number] = Seat(number, tuple(descriptors))
                self._channel.send(CopyAdopted())
            case SealSeat(number):
                self._send_adopted(self._seal(self._seats[number]))
            case CloseSeat(number):
                self._close_seat(self._seats[number])
                self._channel.send(Killed())

    def _send_adopted(self, refusal: str | None) -> None:
        self._channel.send(CopyAdopted() if refusal is None else Failed(refusal))

    def _lend_namespaces(self, pid: int) -> None:
        if pid not in self._frozen or (self._gate is None and self._profile.seccomp):
            self._channel.send(Failed("the kernel does not permit forks of a session beside it"))
            return
        try:
            lent = [os.open(path, os.O_RDONLY | os.O_CLOEXEC) for path in (f"/proc/{pid}/ns/user", "/proc/self/ns/mnt")]
        except OSError as error:
            self._channel.send(Failed(f"the copy of the interpreter has ended: {error.strerror}"))
            return
        self._channel.send(NamespacesLent(), tuple(lent))
        close_all(lent)

    def _fork(self, seat: Seat, descriptors: list[int]) -> Forked | None:
        """Replace all running processes of a seat, except frozen copies, by a new worker."""
        self._kill_seat(seat)
        if seat.worker is None:
            # It may have run out of memory: free that of the remaining processes first.
            self._reap_killed()
        root = os.getpid()
        try:
            # Fork before reaping, so that the new worker starts up while the old processes exit.
            with self._rank.of_workers():
                pid = self._try_to_fork()
            if pid == 0:
                self._become_child(root, seat)
                lower_priority()
                return self._new_worker(*descriptors, seat=seat)
            self._reap_killed(pid)
            previous_status, seat.worker, seat.worker_status = seat.worker_status, pid, None
            seat.has_exited = False
            self._admit(pid, seat)
        except OSError as error:
            self._channel.send(Failed(f"cannot fork a worker: {error}"))
        else:
            self._channel.send(WorkerForked(pid, previous_status, reaped_cpu_time()))
        close_all(descriptors)
        return None

    def _fork_spawner(self, seat: Seat, descriptors: list[int]) -> Forked | None:
        root = os.getpid()
        try:
            # The spawner's programs inherit its rank, which they could not be given by a process that is confined already.
            with self._rank.of_workers():
                pid = fork_when_possible(fork_bare, on_wait=self._reap)
            if pid == 0:
                self._become_child(root, seat)
                return Spawner(*descriptors, profile=self._profile, prepared=self._prepared, namespaces=seat.namespaces)
            seat.spawners.add(pid)
            self._admit(pid, seat)
        except OSError as error:
            self._channel.send(Failed(f"cannot fork a spawner: {error}"))
        else:
            self._channel.send(SpawnerForked())
        close_all(descriptors)
        return None

    def _become_child(self, root: int, seat: Seat) -> None:
        """Detach a forked child from the root's own business, and from other seats."""
        for other in self._seats.values():
            if other is not seat:
                close_all(other.namespaces)
        self._exits.close()
        self._rank.close()
        if self._gate is not None:
            self._gate.close()
        die_with_parent(root)
        self._channel.close()

    def _ports_needed(self) -> int:
        return backend_class(self._backend).ports_needed()

    def _new_worker(self, channel: int, stdout: int, stderr: int, *, seat: Seat) -> Forked:
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
            namespaces=seat.namespaces,
        )

    def _try_to_fork(self) -> int:
        try:
            return self._fork_process()
        except OSError:
            # Killed processes count against the process limit until they are reaped.
            self._reap_killed()
            return fork_when_possible(self._fork_process, on_wait=self._reap)

    def _fork_process(self) -> int:
        return os.fork()
