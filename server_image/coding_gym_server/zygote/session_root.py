"""Session root: owns all processes of a session and of its forks, and can kill those of each at once.

It is the parent of the workers, of the spawners of other programs and, as a subreaper, of their orphans. It never runs
user code, so it stays as clean as the zygote that it was forked from, and a reset only has to kill the processes, empty the
workspace and fork.

A session and its forks are a process tree: one root is the parent of all their workers, because a copy of a worker is a child
of its parent. Each session has a slot. That of a fork has a user, a mount and an IPC namespace, and processes belong to the
slot whose user namespace they are in, which none of them can change.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import socket
import time
from collections.abc import Iterable
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
from coding_gym_server.ipc.system_messages import CreateSystem, EnterOwnSystem, Joined, JoinSystem, Mounted
from coding_gym_server.ipc.widget_messages import WIDGETS_SIGNAL, RequestWidgets, WidgetsRequested
from coding_gym_server.isolation import session_user
from coding_gym_server.isolation.gate import Gate
from coding_gym_server.isolation.profile import IsolationProfile
from coding_gym_server.linux import oom, procfs, user_namespaces
from coding_gym_server.linux.forking import adopt_orphans, die_with_parent, fork_bare, fork_when_possible
from coding_gym_server.linux.niceness import lower_priority
from coding_gym_server.linux.process_root import INIT, ProcessRoot, reaped_cpu_time
from coding_gym_server.linux.sigchld import ChildExits
from coding_gym_server.linux.wait_state import waits_without_limit
from coding_gym_server.workspace.layout import MOUNTED, PRIVATE, Layout
from coding_gym_server.zygote.interrupt import interrupt
from coding_gym_server.zygote.spawner import Spawner

__all__ = ["ForkSlot", "Forked", "SessionRoot"]

_CONVERGENCE_SECONDS = 3.0
"""Time after which processes that multiply while they are killed are killed together with the rest of the tree."""

_UNKNOWN = object()


class Forked(Protocol):
    """Process forked by a root."""

    def run(self) -> None:
        """Run the process; it exits when this returns."""


class ForkSlot:
    """One session of a process tree.

    Args:
        number: Its number.
        namespaces: Descriptors of its user, mount and IPC namespace; empty for the first slot, whose namespaces are the root's.

    Attributes:
        number: Its number.
        namespaces: Descriptors of its user, mount and IPC namespace; empty for the first slot.
        worker: Process id of its worker, None without one.
        worker_status: Wait status of its last worker, None before it has exited.
        has_exited: Whether the worker has exited, which was not reported yet.
        spawners: Process ids of its spawners.
        cpu_seconds: CPU time of its processes that have been reaped, except for the first slot.
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
        """Return whether a process of the tree is, or may be, in the user namespace of the slot."""
        identity = procfs.user_namespace_of(pid)
        # A process that hides its namespace belongs to every slot: it ends with the first one.
        return identity is None or identity == self.identity

    @property
    def identity(self) -> tuple[int, int] | None:
        """Device and inode of the user namespace."""
        if self._identity is None:
            # That of the root, which has entered it since the object was created.
            self._identity = procfs.user_namespace_of(os.getpid())
        return self._identity


class SessionRoot(ProcessRoot):
    """Root process of one session and its forks.

    Args:
        channel: Channel of the server's requests.
        profile: Isolation profile of the session.
        workspace: The session's existing directory, None if it has its own file system.
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
        self._slots = {FIRST_SLOT: ForkSlot(FIRST_SLOT)}
        self._frozen: set[int] = set()
        # Killed, but possibly not reaped yet; with their slots, or None for frozen copies.
        self._doomed: dict[int, ForkSlot | None] = {}
        self._cpu_seconds_of_others = 0.0
        self._gate: Gate | None = None
        self._channel = channel
        self._profile = profile
        self._directory = workspace
        self._layout = PRIVATE
        self._user = user
        self._backend = backend
        self._shared = shared
        self._authorized_imports = authorized_imports
        self._parent_of_slots: int | None = None
        self._slot_count = 0

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
        for slot in self._slots.values():
            if slot.has_exited:
                slot.has_exited = False
                with contextlib.suppress(OSError):
                    self._channel.send(WorkerExited(slot.worker_status or 0, slot.number))

    def _apply_profile(self) -> None:
        os.setsid()
        adopt_orphans()
        if self._user is not None:
            self._enter_system(self._user)
        self._rank = oom.Rank()
        directories = [mount_point for mount_point, _ in MOUNTED.values()] if self._directory is None else [self._directory]
        if self._parent_of_slots is not None:
            slots = session_user.slot_paths(self._parent_of_slots, self._slot_count)
            directories += [f"{slot}/{name}" for slot in slots for name in MOUNTED]
        listener = self._profile.apply_to_root(*directories, *([self._shared] if self._shared else []))
        if self._parent_of_slots is not None:
            # Else the session could access the files of its forks.
            os.close(self._parent_of_slots)
        if listener is not None:
            self._gate = Gate(listener)
        self._prepared = self._profile.prepare_workers()
        if os.getpid() == INIT:
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
        # The kernel counts tasks per user and user namespace, of which the session has one of its own.
        self._profile = msgspec.structs.replace(self._profile, max_tasks=self._profile.users.max_tasks)

    def _enter(self, request: ToProcess, user: int, namespaces: list[int]) -> tuple[Mounted | Joined, tuple[int, ...]]:
        """Enter a system; return the response, and the descriptors to pass along with it."""
        users = self._profile.users
        assert users is not None
        if isinstance(request, JoinSystem):
            session_user.join(users, user, namespaces)
            self._layout = msgspec.structs.replace(PRIVATE, authority=request.authority)
            return Joined(), ()
        assert isinstance(request, EnterOwnSystem | CreateSystem)
        if isinstance(request, EnterOwnSystem) and request.is_root:
            tree = session_user.enter_as_root(users, MOUNTED)
            self._profile = msgspec.structs.replace(self._profile, is_root=True)
            return Mounted(), (tree,)
        slots = request.slots if isinstance(request, EnterOwnSystem) else 0
        tree, parent = session_user.enter(users, user, MOUNTED, slots=slots)
        if slots:
            self._parent_of_slots, self._slot_count = os.dup(parent), slots
            return Mounted(), (tree, parent)
        os.close(parent)
        if isinstance(request, CreateSystem):
            return Mounted(), (tree, *session_user.open_namespaces())
        return Mounted(), (tree, session_user.open_mounts()) if request.shares_files else (tree,)

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
        if getattr(message, "slot", FIRST_SLOT) not in self._slots and not isinstance(message, OpenSlot):
            self._channel.send(Failed("the fork has ended"))
            close_all(descriptors)
            return None
        match message:
            case ForkWorker(directory, number):
                self._directory = directory
                return self._fork(self._slots[number], descriptors)
            case ForkSpawner(number):
                return self._fork_spawner(self._slots[number], descriptors)
            case InterruptWorker(number):
                if (worker := self._slots[number].worker) is not None:
                    interrupt(worker)
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
                self._channel.send(CpuTimeUsed(self._cpu_time(self._slots[number])))
            case CheckWaiting(pids):
                # The server may run as another user, which the kernel tells nothing about a process's system calls.
                self._channel.send(Waiting(all(map(waits_without_limit, pids))))
            case _:
                self._handle_branching(message, descriptors)
        return None

    def _handle_branching(self, message: ToProcess, descriptors: list[int]) -> None:
        """Handle a request about copies of a worker, or slots for them."""
        match message:
            case AdoptCopy(pid, is_worker, number):
                self._send_adopted(self._adopt(pid, self._slots[number], is_worker=is_worker))
            case CheckAlone(number):
                self._send_adopted(self._check_alone(self._slots[number]))
            case KillCopy(pid):
                self._kill_copy(pid)
                self._channel.send(Killed())
            case ShareNamespaces(pid):
                self._share_namespaces(pid)
            case OpenSlot(number):
                self._slots[number] = ForkSlot(number, tuple(descriptors))
                self._channel.send(CopyAdopted())
            case SealSlot(number):
                self._send_adopted(self._seal(self._slots[number]))
            case CloseSlot(number):
                self._close_slot(self._slots[number])
                self._channel.send(Killed())

    def _send_adopted(self, refusal: str | None) -> None:
        self._channel.send(CopyAdopted() if refusal is None else Failed(refusal))

    def _share_namespaces(self, pid: int) -> None:
        if pid not in self._frozen or (self._gate is None and self._profile.seccomp):
            self._channel.send(Failed("the kernel does not permit forks of a session beside it"))
            return
        try:
            paths = (f"/proc/{pid}/ns/user", "/proc/self/ns/mnt", "/proc/self/ns/pid")
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
        root = os.getpid()
        try:
            # Fork before reaping, so that the new worker starts up while the old processes exit.
            with self._rank.of_workers():
                pid = self._try_to_fork()
            if pid == 0:
                self._become_child(root, slot)
                lower_priority()
                return self._new_worker(*descriptors, slot=slot)
            self._reap_killed(pid)
            previous_status, slot.worker, slot.worker_status = slot.worker_status, pid, None
            slot.has_exited = False
            self._admit(pid, slot)
        except OSError as error:
            self._channel.send(Failed(f"cannot fork a worker: {error}"))
        else:
            self._channel.send(WorkerForked(pid, previous_status, reaped_cpu_time()))
        close_all(descriptors)
        return None

    def _fork_spawner(self, slot: ForkSlot, descriptors: list[int]) -> Forked | None:
        root = os.getpid()
        try:
            # The spawner's programs inherit its rank, which they could not be given by a process that is confined already.
            with self._rank.of_workers():
                pid = fork_when_possible(fork_bare, on_wait=self._reap)
            if pid == 0:
                self._become_child(root, slot)
                return Spawner(*descriptors, profile=self._profile, prepared=self._prepared, namespaces=slot.namespaces)
            slot.spawners.add(pid)
            self._admit(pid, slot)
        except OSError as error:
            self._channel.send(Failed(f"cannot fork a spawner: {error}"))
        else:
            self._channel.send(SpawnerForked())
        close_all(descriptors)
        return None

    def _become_child(self, root: int, slot: ForkSlot) -> None:
        """Detach a forked child from the root's own business, and from other slots."""
        for other in self._slots.values():
            if other is not slot:
                close_all(other.namespaces)
        self._exits.close()
        self._rank.close()
        if self._gate is not None:
            self._gate.close()
        die_with_parent(root)
        self._channel.close()
        user_namespaces.allow_inspection()

    def _new_worker(self, channel: int, stdout: int, stderr: int, *, slot: ForkSlot) -> Forked:
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
            namespaces=slot.namespaces,
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

    def _adopt(self, pid: int, slot: ForkSlot, *, is_worker: bool) -> str | None:
        """Take over a child that a worker, or a frozen copy, claims to have made; return the reason why not.

        A worker can become a frozen copy, and a copy a worker.
        """
        is_known = pid == slot.worker or pid in self._frozen
        if not is_known and pid not in procfs.children(os.getpid()) - self._known():
            return f"{pid} is not a new child of the session's root"
        if is_worker:
            self._frozen.discard(pid)
            slot.worker, slot.worker_status, slot.has_exited = pid, None, False
            self._admit(pid, slot)
        else:
            if pid == slot.worker:
                if procfs.descendants(pid):
                    return "the interpreter has child processes"
                slot.worker = None
            self._frozen.add(pid)
        return None

    def _check_alone(self, slot: ForkSlot) -> str | None:
        """Return the reason why a copy of a slot's worker would not be one of the session; None if there is none."""
        unknown = procfs.children(os.getpid()) - self._known() - self._doomed.keys()
        others = [pid for pid in unknown if slot.contains(pid) and not self._is_unborn(pid)]
        return f"{len(others)} background processes" if others else None

    def _is_unborn(self, pid: int) -> bool:
        """Return whether a child was forked from a frozen copy and is not adopted yet.

        It belongs to the session of the copy until the root has adopted it. An announcement of the fork could not tell the root
        which of its new children it is, and would delay each restore.
        """
        return procfs.session_of(pid) in self._frozen

    def _known(self) -> set[int]:
        """Return the children that the root has forked or adopted."""
        workers = (slot.worker for slot in self._slots.values() if slot.worker is not None)
        return self._frozen.union(workers, *(slot.spawners for slot in self._slots.values()))

    def _admit(self, pid: int, slot: ForkSlot) -> None:
        """Let a process join the namespaces of a slot, once."""
        if self._gate is not None and slot.namespaces:
            self._gate.admit(pid, len(slot.namespaces))

    def _seal(self, slot: ForkSlot) -> str | None:
        """Return why the new worker of a slot is not confined to it; None if it is."""
        if slot.worker is None:
            return "the copy of the interpreter has ended"
        if self._gate is not None:
            self._gate.revoke(slot.worker)
        # Those of other slots are checked there, or have not run any user code yet.
        unknown = procfs.children(os.getpid()) - self._known()
        suspects = {slot.worker, *unknown}.union(*map(procfs.descendants, (slot.worker, *unknown)))
        privileged = [pid for pid in suspects if procfs.has_capabilities(pid)]
        for pid in privileged:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if privileged or procfs.user_namespace_of(slot.worker) != slot.identity:
            return "the copy of the interpreter is not confined to the files of the fork"
        return None

    def _close_slot(self, slot: ForkSlot) -> None:
        self._kill_slot(slot)
        if slot.number != FIRST_SLOT and self._slots.pop(slot.number, None) is not None:
            for descriptor in slot.namespaces:
                os.close(descriptor)

    def _kill_slot(self, slot: ForkSlot) -> None:
        """Kill all processes of a slot except frozen copies; afterwards none of them executes user code."""
        if self._is_alone:
            self._kill()
            return
        deadline = time.monotonic() + _CONVERGENCE_SECONDS
        killed: set[int] = set()
        # A process with a pending SIGKILL forks no more.
        while found := self._processes_of(slot) - killed:
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
        self._doomed |= dict.fromkeys(killed, slot)

    def _processes_of(self, slot: ForkSlot, *, without: Iterable[int] = ()) -> set[int]:
        """Return the processes of a slot except frozen copies.

        Args:
            slot: The slot.
            without: Processes to leave out along with their descendants.
        """
        others = [other for other in self._slots.values() if other is not slot]
        # Workers of other slots may not have joined their namespaces yet.
        hidden = self._frozen.union(without, (other.worker for other in others if other.worker is not None))
        found = procfs.descendants(os.getpid(), without=hidden)
        if self._frozen:
            found = {pid for pid in found if not self._is_unborn(pid)}
        return {pid for pid in found if slot.contains(pid)} if others else found

    def _kill_copy(self, pid: int) -> None:
        """Kill a frozen copy, without waiting for its end: freeing its memory takes milliseconds."""
        if pid in self._frozen:
            self._frozen.remove(pid)
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
        self._doomed.clear()

    def _record_exit(self, pid: int, status: int, usage: resource.struct_rusage) -> None:
        if pid in self._frozen or self._doomed.get(pid, _UNKNOWN) is None:
            # Its CPU time is that of steps in the past.
            self._count(usage, None)
        self._frozen.discard(pid)
        doomed_of = self._doomed.pop(pid, None)
        for slot in self._slots.values():
            if pid == slot.worker:
                slot.worker, slot.worker_status, slot.has_exited = None, status, True
                self._count(usage, slot)
            elif pid in slot.spawners:
                slot.spawners.remove(pid)
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

    def _cpu_time(self, slot: ForkSlot) -> float:
        """Return the CPU seconds used by a slot's processes, without the spawner and the programs below it."""
        is_first = slot.number == FIRST_SLOT
        reaped = reaped_cpu_time() - self._cpu_seconds_of_others if is_first else slot.cpu_seconds
        return reaped + sum(map(procfs.cpu_time, self._processes_of(slot, without=slot.spawners)))
