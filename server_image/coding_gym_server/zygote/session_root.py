"""Session root: owns all processes of a session and of its forks, and can kill those of each at once.

It is the parent of the workers, of the spawners of other programs and, as a subreaper, of their orphans. It never runs
user code, so it stays as clean as the zygote that it was forked from, and a reset only has to kill the processes, empty the
workspace and fork.

A session and its forks are a process tree: one root is the parent of all their workers, because a copy of a worker is a child
of its parent. Each session has a slot. That of a fork has namespaces of its own, and processes belong to the slot whose pid
namespace they are in, which none of them can change. Its init adopts the orphans there.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import socket
import time
from collections.abc import Callable, Iterable
from typing import Protocol

import msgspec

from coding_gym_server.ipc.channel import Channel, close_all
from coding_gym_server.ipc.messages import (
    CheckWaiting,
    CpuTime,
    CpuTimeUsed,
    DiskMeasured,
    Failed,
    ForkFileOpener,
    ForkSpawner,
    ForkWorker,
    HelperForked,
    Interrupted,
    InterruptWorker,
    Kill,
    Killed,
    MeasureDisk,
    MeasureUsage,
    ToProcess,
    UsageMeasured,
    Waiting,
    WorkerExited,
    WorkerForked,
)
from coding_gym_server.ipc.snapshot_messages import (
    FIRST_SLOT,
    AdoptCopy,
    CheckAlone,
    CloseSlot,
    CopyAdopted,
    KillCopy,
    NamespacesShared,
    OpenSlot,
    SealSlot,
    ShareNamespaces,
)
from coding_gym_server.ipc.system_messages import (
    CreateSystem,
    EnterOwnSystem,
    Joined,
    JoinSystem,
    Mounted,
    ShareSystem,
    SystemShared,
)
from coding_gym_server.ipc.widget_messages import WIDGETS_SIGNAL, RequestWidgets, WidgetsRequested
from coding_gym_server.isolation import session_user
from coding_gym_server.isolation.gate import Gate
from coding_gym_server.isolation.profile import IsolationProfile
from coding_gym_server.isolation.signal_gate import SignalGates
from coding_gym_server.linux import oom, procfs, user_namespaces
from coding_gym_server.linux.cloning import clone_sibling
from coding_gym_server.linux.disk_usage import measure
from coding_gym_server.linux.forking import adopt_orphans, die_with_parent, fork_bare, fork_when_possible
from coding_gym_server.linux.niceness import lower_priority
from coding_gym_server.linux.process_root import INIT, ProcessRoot, reaped_cpu_time
from coding_gym_server.linux.sigchld import ChildExits
from coding_gym_server.linux.wait_state import waits_without_limit
from coding_gym_server.workspace.image_programs import ImagePrograms
from coding_gym_server.workspace.layout import PRIVATE, Layout
from coding_gym_server.zygote.file_opener import FileOpener
from coding_gym_server.zygote.interrupt import end_loop, interrupt
from coding_gym_server.zygote.spawner import Spawner

__all__ = ["CONVERGENCE_SECONDS", "ForkSlot", "Forked", "SessionRoot"]

CONVERGENCE_SECONDS = 1.0
"""CPU time of the root after which processes that multiply while they are killed are killed together with the rest of the tree.

On a busy machine, others take the time of a wall clock."""

_UNKNOWN = object()

_Identity = tuple[int, int]

_init_responses = msgspec.msgpack.Decoder(Killed)


class Forked(Protocol):
    """Process forked by a root."""

    def run(self) -> None:
        """Run the process; it exits when this returns."""


class _Init:
    """Init of the pid namespace of a fork, which must outlive all processes, and all other namespaces, in there.

    Args:
        pid: Its process id in the root's pid namespace.
        channel: Channel of requests to it.
        namespace: Device and inode of its pid namespace.
        above: Device and inode of the one that this is in.
    """

    def __init__(self, pid: int, channel: Channel[Killed], namespace: _Identity, above: _Identity | None) -> None:
        self.pid = pid
        self.channel = channel
        self.namespace = namespace
        self.above = above


class ForkSlot:
    """One session of a process tree.

    Args:
        number: Its number.
        namespaces: Descriptors of its namespaces; empty for the first slot, whose namespaces are the root's.
        init: Init of its pid namespace, None for the first slot.

    Attributes:
        number: Its number.
        namespaces: Descriptors of its namespaces; empty for the first slot.
        init: Init of its pid namespace, None for the first slot, of which it is the root.
        worker: Process id of its worker, None without one.
        worker_status: Wait status of its last worker, None before it has exited.
        worker_peak_bytes: The most memory that its last worker had in use.
        has_exited: Whether the worker has exited, which was not reported yet.
        helpers: Process ids of its spawners and file openers.
        entering: Process id of a copy that is about to continue in its namespaces, None without one.
        cpu_seconds: CPU time of its processes that have been reaped, except for the first slot.
    """

    def __init__(self, number: int, namespaces: tuple[int, ...] = (), init: _Init | None = None) -> None:
        self.number = number
        self.namespaces = namespaces
        self.init = init
        self.worker: int | None = None
        self.worker_status: int | None = None
        self.worker_peak_bytes = 0
        self.has_exited = False
        self.helpers: set[int] = set()
        self.entering: int | None = None
        self.cpu_seconds = 0.0
        self._identity = None if init is None else init.namespace
        self._depth = 1 if init is None else procfs.depth(init.pid)

    def contains(self, pid: int) -> bool:
        """Return whether a process of the tree is, or may be, in the pid namespace of the slot."""
        identity = procfs.namespace_of(pid, "pid")
        if identity is None:
            # It hides its namespace, but not how many there are above it.
            return procfs.depth(pid) == self._depth
        return identity == self.identity

    @property
    def identity(self) -> _Identity | None:
        """Device and inode of the pid namespace."""
        if self._identity is None:
            self._identity = procfs.namespace_of(os.getpid(), "pid")
        return self._identity


class SessionRoot(ProcessRoot):
    """Root process of one session and its forks.

    Args:
        channel: Channel of the server's requests.
        profile: Isolation profile of the session.
        directory: Parent of the session's directories, None for those of its user.
        backend: Name of the backend that executes the cells.
        user: Id of the session's user, None if it is the server's.
        authorized_imports: Modules that a backend with an import allowlist permits in addition to its own.
        image: How programs run if they are those of another image, else None.
    """

    def __init__(
        self,
        channel: Channel[ToProcess],
        profile: IsolationProfile,
        directory: str | None,
        *,
        backend: str,
        user: int | None,
        authorized_imports: tuple[str, ...],
        image: ImagePrograms | None = None,
    ) -> None:
        super().__init__(scopes_signals=profile.scopes_signals, adopted_by_init=profile.adopted_by_init)
        self._slots = {FIRST_SLOT: ForkSlot(FIRST_SLOT)}
        self._frozen: set[int] = set()
        # Of forks that have been closed, while something is left in their namespaces.
        self._idle_inits: list[_Init] = []
        self._ended_inits: set[int] = set()
        # Killed, but possibly not reaped yet; with their slots, or None for frozen copies.
        self._doomed: dict[int, ForkSlot | None] = {}
        self._cpu_seconds_of_others = 0.0
        self._gate: Gate | None = None
        self._signal_gates: SignalGates | None = None
        self._channel = channel
        self._profile = profile
        self._layout = PRIVATE if directory is None else Layout.below(directory)
        self._user = user
        self._backend = backend
        self._authorized_imports = authorized_imports
        self._image = image
        # The same, in a session of its own.
        self._programs: ImagePrograms | None = None
        self._parent_of_slots: int | None = None
        self._slot_count = 0
        # Directory of changed files on a disk.
        self._changes: int | None = None
        # Of the copy whose namespaces were shared last.
        self._shared_pid_namespace: _Identity | None = None

    def run(self) -> None:
        """Serve until the server exits. Returns only in a forked worker at its end, never in the root."""
        self._apply_profile()
        exits = self._exits = ChildExits()
        poll = select.poll()
        poll.register(self._channel.fileno(), select.POLLIN)
        poll.register(exits.fileno(), select.POLLIN)
        if self._gate is not None:
            poll.register(self._gate.fileno(), select.POLLIN)
        if self._signal_gates is not None:
            self._signal_gates.register(poll)
        while True:
            events = poll.poll()
            ready = [descriptor for descriptor, _ in events]
            if self._signal_gates is not None:
                for descriptor, happened in events:
                    self._signal_gates.handle(descriptor, happened, poll)
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
        for slot in self._slots.values():
            if slot.has_exited:
                slot.has_exited = False
                with contextlib.suppress(OSError):
                    shared_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
                    self._channel.send(WorkerExited(slot.worker_status or 0, slot.number, slot.worker_peak_bytes, shared_bytes))

    def _apply_profile(self) -> None:
        os.setsid()
        adopt_orphans()
        if self._user is not None:
            self._enter_system(self._user)
        # Its zygote may have forbidden it, but the next steps write files of the process.
        user_namespaces.allow_inspection()
        self._rank = oom.Rank()
        directories = [*self._layout.writable()]
        if self._parent_of_slots is not None:
            slots = session_user.slot_paths(self._parent_of_slots, self._slot_count)
            assert self._profile.users is not None
            directories += [f"{slot}/{name}" for slot in slots for name in self._profile.users.directories]
        listener = self._profile.apply_to_root(*directories, changes=self._changes)
        if self._parent_of_slots is not None:
            # Else the session could access the files of its forks.
            os.close(self._parent_of_slots)
        if listener is not None:
            self._gate = Gate(listener)
        if self._profile.gates_signals:
            self._signal_gates = SignalGates()
        self._prepared = self._profile.prepare_workers()
        # In other namespaces, only that of a session has its user.
        if os.getpid() == INIT or self._profile.users is None:
            user_namespaces.forbid_inspection()

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
        if isinstance(request, CreateSystem):
            os._exit(0)
        close_all((*namespaces, *descriptors))
        self._layout = msgspec.structs.replace(self._layout, others=tuple(self._profile.users.mount_points))
        # The kernel counts tasks per user and user namespace, of which the session has one of its own.
        self._profile = msgspec.structs.replace(self._profile, max_tasks=self._profile.users.max_tasks)

    def _enter(self, request: ToProcess, user: int, namespaces: list[int]) -> tuple[Mounted | Joined, tuple[int, ...]]:
        """Enter a system; return the response, and the descriptors to pass along with it."""
        users = self._profile.users
        assert users is not None
        if isinstance(request, JoinSystem):
            session_user.join(users, user, namespaces, is_root=self._image is not None)
            if self._image is not None:
                self._become_root()
            self._layout = msgspec.structs.replace(self._layout, authority=request.authority)
            return Joined(), ()
        assert isinstance(request, EnterOwnSystem | CreateSystem)
        owner = 0 if self._image is None else self._image.account.user
        if isinstance(request, EnterOwnSystem) and request.is_root:
            tree, self._changes = session_user.enter_as_root(users, user, owner=owner)
            self._become_root()
            return Mounted(), (tree,)
        if isinstance(request, CreateSystem) and self._image is not None:
            return Mounted(), (session_user.create_for_roots(users, user, owner=owner), *session_user.open_namespaces())
        slots = request.slots if isinstance(request, EnterOwnSystem) else 0
        tree, parent = session_user.enter(users, user, slots=slots)
        if slots:
            self._parent_of_slots, self._slot_count = os.dup(parent), slots
            return Mounted(), (tree, parent)
        os.close(parent)
        if isinstance(request, CreateSystem):
            return Mounted(), (tree, *session_user.open_namespaces())
        return Mounted(), (tree, session_user.open_mounts()) if request.shares_files else (tree,)

    def _become_root(self) -> None:
        """Run programs as those of the image, if it is another one, in a system of which the process has become root."""
        self._profile = msgspec.structs.replace(self._profile, is_root=True)
        if self._image is not None:
            self._programs, self._layout = self._image, self._image.layout
            # Programs have the image's variables only.
            os.environ.clear()

    def _handle_requests(self) -> None:
        worker = None
        try:
            for message, descriptors in self._channel.requests():
                worker = self._handle(message, descriptors)
                if worker is not None:
                    break
        except (EOFError, ConnectionError):
            # The end of the first process of a namespace ends all others, also the inits of forks, which it may not signal.
            if os.getpid() != INIT:
                self._kill()
                self._reap_all()
            os._exit(0)
        if worker is not None:
            worker.run()

    def _handle(self, message: ToProcess, descriptors: list[int]) -> Forked | None:
        """Handle a request; return the worker in the forked process, None in the root."""
        if getattr(message, "slot", FIRST_SLOT) not in self._slots and not isinstance(message, OpenSlot):
            self._channel.send(Failed("the fork has ended"))
            close_all(descriptors)
            return None
        match message:
            case ForkWorker(number):
                return self._fork(self._slots[number], descriptors)
            case ForkSpawner(number):
                return self._fork_helper(self._slots[number], descriptors, self._new_spawner)
            case ForkFileOpener(number):
                return self._fork_helper(self._slots[number], descriptors, self._new_file_opener)
            case InterruptWorker(number, is_closing, is_repeated):
                if (worker := self._slots[number].worker) is not None:
                    end_loop(worker, is_repeated=is_repeated) if is_closing else interrupt(worker)
                self._channel.send(Interrupted())
            case RequestWidgets(number):
                if (worker := self._slots[number].worker) is not None:
                    with contextlib.suppress(ProcessLookupError):
                        # Other programs than the worker ignore this signal by default.
                        os.kill(worker, WIDGETS_SIGNAL)
                self._channel.send(WidgetsRequested())
            case Kill(number):
                self._kill_slot(self._slots[number])
                self._channel.send(Killed())
            case CpuTime(number):
                slot = self._slots[number]
                # Without programs beside the worker.
                self._channel.send(CpuTimeUsed(self._cpu_time(slot, self._processes_of(slot, without=slot.helpers))))
            case MeasureUsage(number):
                self._channel.send(self._usage(self._slots[number]))
            case MeasureDisk():
                self._channel.send(DiskMeasured(None) if self._changes is None else DiskMeasured(*measure(self._changes)))
            case CheckWaiting(pids):
                # The server may run as another user, which the kernel tells nothing about a process's system calls.
                self._channel.send(Waiting(all(map(waits_without_limit, pids))))
            case ShareSystem(number):
                self._share_system(self._slots[number])
            case _:
                self._handle_branching(message, descriptors)
        return None

    def _share_system(self, slot: ForkSlot) -> None:
        if self._user is None or self._profile.is_root:
            reason = "it is root" if self._user is not None else "it has no namespaces"
            self._channel.send(Failed(f"a session has only one interpreter if {reason}"))
        elif slot.namespaces:
            self._channel.send(SystemShared(), session_user.shared_namespaces_in(slot.namespaces))
        else:
            namespaces = session_user.open_namespaces()
            self._channel.send(SystemShared(), namespaces)
            close_all(namespaces)

    def _handle_branching(self, message: ToProcess, descriptors: list[int]) -> None:
        """Handle a request about copies of a worker, or slots for them."""
        match message:
            case AdoptCopy(pid, original, is_worker, number):
                self._send_adopted(self._adopt(pid, original, self._slots[number], is_worker=is_worker))
            case CheckAlone(number):
                self._send_adopted(self._check_alone(self._slots[number]))
            case KillCopy(pid):
                self._kill_copy(pid)
                self._end_idle_inits()
                self._channel.send(Killed())
            case ShareNamespaces(pid):
                self._share_namespaces(pid)
            case OpenSlot(number):
                self._slots[number] = self._open_slot(number, *descriptors)
                self._channel.send(CopyAdopted())
            case SealSlot(number):
                self._send_adopted(self._seal(self._slots[number]))
            case CloseSlot(number):
                self._close_slot(self._slots[number])
                self._channel.send(Killed())

    def _send_adopted(self, adopted: int | str) -> None:
        """Send the process id of what has been adopted, or the reason why nothing was."""
        self._channel.send(Failed(adopted) if isinstance(adopted, str) else CopyAdopted(adopted))

    def _open_slot(self, number: int, control: int, own: int, *namespaces: int) -> ForkSlot:
        connection = socket.socket(fileno=control)
        connection.setblocking(True)
        namespace = procfs.identity_of(session_user.pid_namespace_in(namespaces))
        try:
            pid = procfs.pid_of(own)
        except PermissionError:
            # Before Linux 5.14, a process that forbids inspection may not read this of itself, either.
            user_namespaces.allow_inspection()
            pid = procfs.pid_of(own)
            user_namespaces.forbid_inspection()
        os.close(own)
        return ForkSlot(
            number, namespaces, _Init(pid, Channel(connection, _init_responses), namespace, self._shared_pid_namespace)
        )

    def _share_namespaces(self, pid: int) -> None:
        if pid not in self._frozen or (self._gate is None and self._profile.seccomp):
            self._channel.send(Failed("the kernel does not permit forks of a session beside it"))
            return
        try:
            paths = (f"/proc/{pid}/ns/user", "/proc/self/ns/mnt", f"/proc/{pid}/ns/pid")
            self._shared_pid_namespace = procfs.namespace_of(pid, "pid")
            shared = [os.open(path, os.O_RDONLY | os.O_CLOEXEC) for path in paths]
        except OSError as error:
            self._channel.send(Failed(f"the copy of the interpreter has ended: {error.strerror}"))
            return
        self._channel.send(NamespacesShared(), tuple(shared))
        close_all(shared)

    def _fork(self, slot: ForkSlot, descriptors: list[int]) -> Forked | None:
        """Replace all running processes of a slot, except frozen copies, by a new worker."""
        self._kill_slot(slot)
        if slot.worker is None:
            # It may have run out of memory: free that of the remaining processes first.
            self._reap_killed()
        try:
            # Fork before reaping, so that the new worker starts up while the old processes exit.
            with self._rank.of_workers():
                pid = self._fork_in(slot, self._try_to_fork)
            if pid == 0:
                lower_priority()
                return self._new_worker(*descriptors)
            self._reap_killed(pid)
            previous_status, slot.worker, slot.worker_status = slot.worker_status, pid, None
            slot.has_exited = False
        except OSError as error:
            self._channel.send(Failed(f"cannot fork a worker: {error}"))
        else:
            self._channel.send(WorkerForked(pid, previous_status, reaped_cpu_time()))
        close_all(descriptors)
        return None

    def _fork_helper(self, slot: ForkSlot, descriptors: list[int], make: Callable[[int], Forked]) -> Forked | None:
        try:
            # The programs of a spawner inherit its rank, which they could not be given by a process that is confined already.
            with self._rank.of_workers():
                pid = self._fork_in(slot, lambda: fork_when_possible(fork_bare, on_wait=self._reap))
            if pid == 0:
                return make(*descriptors)
            slot.helpers.add(pid)
        except OSError as error:
            self._channel.send(Failed(f"cannot fork a process: {error}"))
        else:
            self._channel.send(HelperForked())
        close_all(descriptors)
        return None

    def _new_spawner(self, requests: int) -> Forked:
        return Spawner(requests, profile=self._profile, prepared=self._prepared, programs=self._programs)

    def _new_file_opener(self, connection: int) -> Forked:
        account = None if self._programs is None else self._programs.account
        return FileOpener(connection, directory=self._layout.work, account=account)

    def _fork_in(self, slot: ForkSlot, fork: Callable[[], int]) -> int:
        """Fork a child of the root in the namespaces of a slot; return its process id, and 0 in it.

        Raises:
            OSError: If the process limit is reached, memory is exhausted, or the namespaces of the slot have ended.
        """
        if not slot.namespaces:
            root = os.getpid()
            pid = fork()
            if pid == 0:
                self._become_child()
                die_with_parent(root)
            return pid
        answer, report = os.pipe()
        try:
            helper = fork()
        except OSError:
            close_all((answer, report))
            raise
        if helper == 0:
            os.close(answer)
            return self._continue_in(slot, report)
        os.close(report)
        assert self._gate is not None
        self._gate.admit(helper, len(slot.namespaces))
        pid = self._receive_pid(answer)
        self._gate.revoke(helper)
        os.close(answer)
        self._record_exit(*os.wait4(helper, 0))
        if not pid:
            message = "the namespaces of the fork have ended"
            raise OSError(message)
        return pid

    def _continue_in(self, slot: ForkSlot, report: int) -> int:
        """Continue in a child in the namespaces of a slot, whose parent is the root; return 0 in it."""
        try:
            self._become_child(slot)
            session_user.join_slot(slot.namespaces, max_tasks=self._profile.max_tasks)
            if (pid := fork_when_possible(clone_sibling)) == 0:
                os.close(report)
                return 0
            os.write(report, b"%d" % pid)
        except OSError as error:
            os.write(2, f"cannot join a fork: {error}\n".encode())
        os._exit(0)

    def _receive_pid(self, answer: int) -> int:
        """Return the process id that a helper reports, 0 if it has failed; admit it in the meantime."""
        assert self._gate is not None
        poll = select.poll()
        poll.register(answer, select.POLLIN)
        poll.register(self._gate.fileno(), select.POLLIN)
        while True:
            ready = [descriptor for descriptor, _ in poll.poll()]
            if answer in ready:
                return int(os.read(answer, 32) or 0)
            self._gate.answer()

    def _become_child(self, slot: ForkSlot | None = None) -> None:
        """Detach a forked child from the root's own business, and from other slots."""
        for other in self._slots.values():
            if other is not slot:
                close_all(other.namespaces)
        for init in self._opened_inits:
            init.channel.close()
        self._exits.close()
        self._rank.close()
        if self._gate is not None:
            self._gate.close()
        if self._changes is not None:
            # Programs must not see past the overlay, nor what is beside the directory.
            os.close(self._changes)
        self._channel.close()
        user_namespaces.allow_inspection()
        if self._signal_gates is not None:
            self._signal_gates.install()

    def _new_worker(self, channel: int, stdout: int, stderr: int) -> Forked:
        # Imported here because submission roots do not need it.
        from coding_gym_server.worker.worker import Worker

        return Worker(
            Channel(socket.socket(fileno=channel)),
            stdout,
            stderr,
            self._layout,
            backend=self._backend,
            authorized_imports=self._authorized_imports,
            profile=self._profile,
            prepared=self._prepared,
            programs=self._programs,
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

    # The slots, their workers and frozen copies, and the end of their processes.

    @property
    def _is_alone(self) -> bool:
        """Whether all processes belong to the first slot, and none is a frozen copy."""
        return not self._frozen and len(self._slots) == 1

    def _adopt(self, pid: int, original: int, slot: ForkSlot, *, is_worker: bool) -> int | str:
        """Take over a child that a worker, or a frozen copy, claims to have made.

        A worker can become a frozen copy, and a copy a worker.

        Args:
            pid: The child's process id in its own pid namespace, as it claims; 0 for the worker or copy itself.
            original: Process id of the worker or copy.
            slot: The slot that it is a worker of, or a copy of the worker of.
            is_worker: Whether it is the worker.

        Returns:
            Its process id, or the reason why it is not taken over.
        """
        namespace = procfs.namespace_of(original, "pid")
        if pid == 0:
            found = [child for child in (slot.worker, *self._frozen) if child == original]
        else:
            found = [
                child
                for child in self._new_children()
                if procfs.own_pid(child) == pid and procfs.namespace_of(child, "pid") == namespace
            ]
        if namespace is None or len(found) != 1:
            return f"{pid} is not a new child of the session's root"
        [child] = found
        if is_worker:
            self._frozen.discard(child)
            if slot.contains(child):
                slot.worker, slot.worker_status, slot.has_exited = child, None, False
            else:
                slot.entering = child
                if self._gate is not None:
                    self._gate.admit(child, len(slot.namespaces))
        else:
            if child == slot.worker:
                if procfs.descendants(child):
                    return "the interpreter has child processes"
                slot.worker = None
            self._frozen.add(child)
        return child

    def _check_alone(self, slot: ForkSlot) -> int | str:
        """Return the reason why a copy of a slot's worker would not be one of the session; 0 if there is none."""
        unknown = self._new_children()
        if slot.init is not None:
            unknown |= procfs.descendants(slot.init.pid, without=self._inits()) - self._doomed.keys()
        others = [pid for pid in unknown if slot.contains(pid) and not self._is_unborn(pid) and not procfs.has_exited(pid)]
        return f"{len(others)} background processes" if others else 0

    def _is_unborn(self, pid: int) -> bool:
        """Return whether a child was forked from a frozen copy and is not adopted yet.

        It belongs to the session of the copy until the root has adopted it. An announcement of the fork could not tell the root
        which of its new children it is, and would delay each restore.
        """
        return procfs.session_of(pid) in self._frozen

    def _known(self) -> set[int]:
        """Return the children that the root has forked or adopted."""
        single = (pid for slot in self._slots.values() for pid in (slot.worker, slot.entering) if pid is not None)
        return self._frozen.union(single, *(slot.helpers for slot in self._slots.values()))

    def _new_children(self) -> set[int]:
        """Return the children that the root has neither forked, adopted nor killed, except for inits."""
        return procfs.children(os.getpid()) - self._known() - self._doomed.keys() - self._inits()

    @property
    def _opened_inits(self) -> list[_Init]:
        """The inits of forks that have not been ended."""
        return [*self._idle_inits, *(slot.init for slot in self._slots.values() if slot.init is not None)]

    def _inits(self) -> set[int]:
        """Return the inits of forks, which code cannot make.

        Their makers exit, so that they are children of the root, or of the init of the fork that a fork was made of.
        """
        parents = {os.getpid(), *(init.pid for init in self._opened_inits)}
        return {child for parent in parents for child in procfs.children(parent) if procfs.own_pid(child) == INIT}

    def _seal(self, slot: ForkSlot) -> int | str:
        """Let the child of the copy that has entered a slot be its worker; return its process id, or why it is not confined."""
        entered, slot.entering = slot.entering, None
        if entered is not None:
            if self._gate is not None:
                self._gate.revoke(entered)
            self._end_copy(entered)
        found = [pid for pid in self._new_children() if procfs.namespace_of(pid, "pid") == slot.identity]
        suspects = set(found).union(*map(procfs.descendants, found))
        if slot.init is not None:
            suspects |= procfs.descendants(slot.init.pid, without=self._inits())
        is_confined = len(found) == 1 and session_user.are_joined(found[0], slot.namespaces)
        if not is_confined or any(map(procfs.has_capabilities, suspects)):
            self._kill_at_once(slot)
            return "the copy of the interpreter is not confined to the namespaces of the fork"
        slot.worker, slot.worker_status, slot.has_exited = found[0], None, False
        return found[0]

    def _close_slot(self, slot: ForkSlot) -> None:
        self._kill_slot(slot)
        if slot.number != FIRST_SLOT and self._slots.pop(slot.number, None) is not None:
            if slot.entering is not None:
                self._end_copy(slot.entering)
            for descriptor in slot.namespaces:
                os.close(descriptor)
            assert slot.init is not None
            self._idle_inits.append(slot.init)
            self._end_idle_inits()

    def _end_idle_inits(self) -> None:
        """End the pid namespaces of closed forks in which nothing is left: neither a frozen copy nor another namespace."""
        # The end of one may leave nothing in the namespace that it was in.
        while ended := [init for init in self._idle_inits if init.namespace not in self._namespaces_in_use()]:
            for init in ended:
                self._idle_inits.remove(init)
                init.channel.close()
                self._ended_inits.add(init.pid)

    def _namespaces_in_use(self) -> set[_Identity | None]:
        """Return the pid namespaces of frozen copies, and those that the namespaces of forks are in."""
        return {procfs.namespace_of(pid, "pid") for pid in self._frozen} | {init.above for init in self._opened_inits}

    def _kill_slot(self, slot: ForkSlot) -> None:
        """Kill all processes of a slot except frozen copies; afterwards none of them executes user code."""
        if self._is_alone:
            self._kill()
            return
        if slot.init is not None and slot.init.namespace not in self._namespaces_in_use():
            killed = self._processes_of(slot) & procfs.children(os.getpid())
            self._kill_at_once(slot)
            self._doomed |= dict.fromkeys(killed, slot)
            return
        deadline = time.process_time() + CONVERGENCE_SECONDS
        killed = set()
        # A process with a pending SIGKILL forks no more. One that forks and exits may be missed each time, but not its child,
        # which becomes one of the root.
        while (found := self._processes_of(slot) - killed) or self._has_strangers(slot, killed):
            for pid in found:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            killed |= found
            self._reap()
            if time.process_time() > deadline:
                # Only a signal to all processes at once ends those that fork faster than they are found.
                self._kill_at_once(slot)
                break
        self._doomed |= dict.fromkeys(killed, slot)

    def _has_strangers(self, slot: ForkSlot, killed: set[int]) -> bool:
        """Return whether a slot has children that the root neither knows nor has killed, and so may have more processes."""
        return any(slot.contains(pid) and not self._is_unborn(pid) for pid in self._new_children() - killed)

    def _kill_at_once(self, slot: ForkSlot) -> None:
        """Kill all processes in the namespace of a slot, and in those below it."""
        if slot.init is None:
            # The inits of forks are in no signal scope of the root: they end with their slots.
            self._kill()
            self._reap_all_but()
            return
        with contextlib.suppress(OSError, EOFError):
            slot.init.channel.send(Kill())
            slot.init.channel.receive()

    def _processes_of(self, slot: ForkSlot, *, without: Iterable[int] = ()) -> set[int]:
        """Return the processes of a slot except frozen copies.

        Args:
            slot: The slot.
            without: Processes to leave out along with their descendants.
        """
        others = [other for other in self._slots.values() if other is not slot]
        # Workers of other slots may not have joined their namespaces yet.
        hidden = self._frozen.union(
            without,
            self._inits(),
            (pid for other in others for pid in (other.worker, *other.helpers) if pid is not None),
        )
        found = procfs.descendants(os.getpid(), without=hidden)
        if slot.init is not None:
            found |= procfs.descendants(slot.init.pid, without=hidden)
        if self._frozen:
            found = {pid for pid in found if not self._is_unborn(pid)}
        return {pid for pid in found if slot.contains(pid)} if others else found

    def _kill_copy(self, pid: int) -> None:
        """Kill a frozen copy."""
        if pid in self._frozen:
            self._frozen.remove(pid)
            self._end_copy(pid)

    def _end_copy(self, pid: int) -> None:
        """Kill a copy, without waiting for its end: freeing its memory takes milliseconds."""
        self._doomed[pid] = None
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    def _reap_killed(self, *survivors: int) -> None:
        """Wait until the killed processes have exited; in a tree without forks, all but ``survivors``."""
        if self._is_alone:
            self._reap_all_but(*survivors)
            return
        # Those whose parents were killed, too, become children of the root only then.
        while pids := self._doomed.keys() & procfs.children(os.getpid()):
            for pid in pids:
                with contextlib.suppress(ChildProcessError):
                    self._record_exit(*os.wait4(pid, 0))
        # The init of a fork reaps the orphans there.
        self._doomed = {pid: slot for pid, slot in self._doomed.items() if not procfs.has_exited(pid)}

    def _reap_all_but(self, *survivors: int) -> None:
        """Wait until all children have exited, except for some and for inits, of which another one may appear at any time."""
        # An init ends only when the root has reaped what was below it.
        while orphans := procfs.children(os.getpid()).difference(survivors) - self._inits():
            for pid in orphans:
                self._record_exit(*os.wait4(pid, 0))

    def _record_exit(self, pid: int, status: int, usage: resource.struct_rusage) -> None:
        if pid in self._frozen or self._doomed.get(pid, _UNKNOWN) is None or pid in self._ended_inits:
            # Its CPU time is that of steps in the past.
            self._count(usage, None)
        self._frozen.discard(pid)
        self._ended_inits.discard(pid)
        doomed_of = self._doomed.pop(pid, None)
        for slot in self._slots.values():
            if pid == slot.worker:
                slot.worker, slot.worker_status, slot.has_exited = None, status, True
                slot.worker_peak_bytes = usage.ru_maxrss << 10
                self._count(usage, slot)
            elif pid in slot.helpers:
                slot.helpers.remove(pid)
                self._count(usage, None)
            elif doomed_of is slot:
                self._count(usage, slot)

    def _count(self, usage: resource.struct_rusage, slot: ForkSlot | None) -> None:
        """Count the CPU time of a process that has been reaped, unless the first slot has used it; None for no slot."""
        if slot is not None and slot.number == FIRST_SLOT:
            return
        seconds = usage.ru_utime + usage.ru_stime
        self._cpu_seconds_of_others += seconds
        if slot is not None:
            slot.cpu_seconds += seconds

    def _usage(self, slot: ForkSlot) -> UsageMeasured:
        processes = self._processes_of(slot)
        return UsageMeasured(self._cpu_time(slot, processes), sum(map(procfs.proportional_bytes, processes)))

    def _cpu_time(self, slot: ForkSlot, processes: Iterable[int]) -> float:
        """Return the CPU seconds used by processes of a slot, and by those that have ended."""
        is_first = slot.number == FIRST_SLOT
        reaped = reaped_cpu_time() - self._cpu_seconds_of_others if is_first else slot.cpu_seconds
        if slot.init is not None:
            # What it has reaped.
            reaped += procfs.cpu_time(slot.init.pid)
        return reaped + sum(map(procfs.cpu_time, processes))
