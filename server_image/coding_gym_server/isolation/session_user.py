"""System of a session: its namespaces, user, mounts and disk.

A session root is the first process of a pid, network, host name, mount and IPC namespace of its own. There the working
directory, ``/tmp`` and ``/dev/shm`` are parts of a file system with a limited size. Then it takes a separate user, if the
sandbox has users for sessions, and enters a user namespace in which its user has the same id as in every other session. The
server accesses the files through a descriptor of the file system, by which they appear to belong to the server's user (see
"ID-mapped mounts" in mount_setattr(2)). Session roots that share files, those of contexts, join the mounts and IPC objects that
another root has made. A test runner opens the files of submissions without entering their system.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import resource
import shutil
import socket
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from coding_gym_server.isolation import capabilities, namespaces, root_user
from coding_gym_server.linux import control_groups, mounts, procfs, user_namespaces
from coding_gym_server.linux.cloning import clone_into
from coding_gym_server.linux.forking import ask_child, fork_bare
from coding_gym_server.linux.network import bring_up_loopback, open_low_ports

__all__ = [
    "RESERVED_USERS",
    "SLOTS",
    "USER",
    "SessionUsers",
    "are_joined",
    "borrow",
    "enter",
    "enter_as_root",
    "enter_slot",
    "fork_into_namespaces",
    "join",
    "join_slot",
    "links",
    "open_mounts",
    "open_namespaces",
    "pid_namespace_in",
    "shared_namespaces_in",
    "slot_paths",
    "try_to_enter",
]

USER = 10001
"""Id of a session's user as the session sees it. The list of users has an entry for it."""

RESERVED_USERS = 2
"""Number of users, after those of the sessions, that the launcher and the zygotes have."""

_LAYERS = "layers"

SLOTS = "slots"
"""Directory in the file system of a session with the files of its forks, below their numbers."""

_MIN_TASKS_OF_FORK = 16
_TEMPORARY = "/tmp"
_TERMINALS, _MAX_TERMINALS = "/dev/pts", 64
_WATCHES = ("instances", "watches")
_MASKED = (
    *("/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/scsi"),
    *("/proc/sched_debug", "/proc/timer_list", "/proc/timer_stats", "/sys/devices/virtual/powercap", "/sys/firmware"),
)
_READ_ONLY = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")
"""What engines protect in the ``/proc`` of their containers; that of a session is a new one."""
_SLOT_NAMESPACES = {
    "user": mounts.NEW_USERS,
    "mnt": mounts.NEW_MOUNTS,
    "ipc": mounts.NEW_IPC,
    "uts": mounts.NEW_HOST_NAME,
    "pid": mounts.NEW_PROCESSES,
    "net": mounts.NEW_NETWORK,
}
"""Kinds of the namespaces of a fork by their names below ``/proc/PID/ns``, in the order in which they are joined."""

_NAMESPACES = {"mnt": mounts.NEW_MOUNTS, "ipc": mounts.NEW_IPC}


class SessionUsers(msgspec.Struct, kw_only=True, frozen=True):
    """Users and disks of the sessions of a sandbox.

    Attributes:
        server: Id of the server's user.
        first: Id of the first session's user.
        count: Number of users: those of sessions, of tests, of submissions and, the last one, of the contexts; 0 if all of them
            run as the server's user.
        graders: Number of users of submissions, and of tests.
        directories: Directories of a session's file system by name, each with its mount point and mode.
        disk_bytes: Size of a session's file system.
        inodes: Maximum number of files and directories in it.
        max_tasks: Limit on a session's processes and threads, None for no limit.
        systems: Number of sessions, submissions and tests that run at the same time.
        have_root: Whether programs of sessions are root of a user namespace, see ``root_user``.
        network: Whether sessions have the network of the sandbox.
        have_groups: Whether sessions have control groups of their own, see ``control_groups``.
        hidden: Directories of the server, and those with secrets.
        shown: Directories below them that sessions may read.
        read_only: Mount points of directories that sessions of root see as they are.
        layers: Directory on a disk for files that sessions of root change; in memory if empty, which requires Linux 6.6.
    """

    server: int
    first: int
    count: int
    graders: int
    directories: dict[str, tuple[str, int]]
    disk_bytes: int
    inodes: int
    max_tasks: int | None
    systems: int
    have_root: bool = False
    network: bool = False
    have_groups: bool = False
    hidden: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()
    read_only: tuple[str, ...] = ()
    layers: str = ""

    @property
    def mount_points(self) -> list[str]:
        """Paths where sessions see their directories."""
        return [mount_point for mount_point, _ in self.directories.values()]

    @property
    def own(self) -> tuple[range, range]:
        """Ids of the server's user, and of all others of the sandbox, which no root of a session can become."""
        return range(self.server, self.server + 1), range(self.first, self.first + self.count + RESERVED_USERS)

    @property
    def of_zygotes(self) -> int:
        """Id of the user of the zygotes, who are root in a user namespace."""
        return self.first + self.count + 1

    @property
    def of_sessions(self) -> range:
        """Ids of the users that sessions with their own system take, empty if they run as the server's user."""
        return range(self.first, self.of_submissions.start - self.graders) if self.count else range(0)

    @property
    def of_submissions(self) -> range:
        """Ids of the users that grading workers take for their submissions, empty if these run as the server's user."""
        return range(self.first + self.count - 1 - self.graders, self.first + self.count - 1) if self.count else range(0)

    def of_tests(self, user: int) -> int:
        """Return the id of the user of the tests of a user's submissions: the kernel counts some resources per user.

        Args:
            user: Id of the submissions' user; the server's if there are no others.
        """
        return user - self.graders if self.count else self.server

    @property
    def of_contexts(self) -> int:
        """Id of the user of all contexts of the code-interpreter API, which share a system."""
        return self.first + self.count - 1 if self.count else self.server


def fork_into_namespaces(users: SessionUsers) -> int:
    """Fork a child in new namespaces, for ``enter``, ``join`` or ``borrow``; return its pid, and 0 in it.

    Args:
        users: Users and disks of the sandbox.

    Raises:
        OSError: If the process limit is reached, or the kernel, its configuration or a seccomp filter does not permit it.
    """
    kinds = mounts.NEW_PROCESSES | mounts.NEW_HOST_NAME | mounts.NEW_MOUNTS | mounts.NEW_IPC
    return clone_into(kinds if users.network else kinds | mounts.NEW_NETWORK)


def enter(users: SessionUsers, user: int, *, slots: int = 0) -> tuple[int, int]:
    """Give the calling process, a session root with capabilities in its user namespace, a user and file system of its own.

    Args:
        users: Users and disks of the sandbox.
        user: The user's id: the server's, unless the sandbox has users for sessions.
        slots: Maximum number of forks of the session that exist at the same time.

    Returns:
        Descriptors for the server, which the session must not inherit: of the root directory of the file system, and of the
        parent directory of those of forks.

    Raises:
        OSError: If the kernel, its configuration or a seccomp filter does not permit it.
    """
    _join_group(users, user)
    tree, parent_of_slots = _create(users, user)
    _become(users, user)
    before = os.umask(0)
    # In advance, because Landlock rules apply to directories that exist.
    for slot in slot_paths(parent_of_slots, slots):
        os.mkdir(slot, 0o700)
        for name, (_, mode) in users.directories.items():
            os.mkdir(f"{slot}/{name}", mode)
    os.umask(before)
    return tree, parent_of_slots


def enter_as_root(users: SessionUsers, user: int, *, owner: int = 0) -> tuple[int, int | None]:
    """Give the calling process, a session root with capabilities in its user namespace, a system in which it is root.

    Args:
        users: Users and disks of the sandbox.
        user: Id that the session has for the sandbox.
        owner: Id in the system of the user whose directories those of the session are.

    Returns:
        Descriptors: for the server, of the root directory of the session's own file system; and of the directory of changed
        files if it lies on a disk, else None.

    Raises:
        OSError: If the kernel, its configuration or a seccomp filter does not permit it.
    """
    _join_group(users, user)
    disk = mounts.clone_tree(users.layers) if users.layers else None
    tree, parent_of_slots = _create(users, root_user.ROOT + owner, is_root=True, disk=disk, layer=str(user))
    os.close(parent_of_slots)
    changes = None if disk is None else os.open(str(user), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=disk)
    if disk is not None:
        os.close(disk)
    root_user.become(users.own)
    os.chdir("/")
    return tree, changes


def create_for_roots(users: SessionUsers, user: int, *, owner: int) -> int:
    """Give the calling process, as for ``enter_as_root``, a system that several may share, without becoming root of it.

    Args:
        users: As for ``enter_as_root``.
        user: As for ``enter_as_root``.
        owner: As for ``enter_as_root``.

    Returns:
        Descriptor for the server of the root directory of the system's own file system.

    Raises:
        OSError: As for ``enter_as_root``, and if changed files lie on a disk.
    """
    if users.layers:
        raise OSError(errno.EOPNOTSUPP, "systems of several interpreters that are root require Linux 6.6")
    _join_group(users, user)
    tree, parent_of_slots = _create(users, root_user.ROOT + owner, is_root=True)
    os.close(parent_of_slots)
    return tree


def slot_paths(parent: int, count: int) -> list[str]:
    """Return the paths of the directories of forks, valid in the calling process.

    Args:
        parent: Descriptor of their parent directory.
        count: Number of forks.
    """
    return [f"/proc/self/fd/{parent}/{number}" for number in range(1, count + 1)]


def _create(
    users: SessionUsers, user: int, *, is_root: bool = False, disk: int | None = None, layer: str = ""
) -> tuple[int, int]:
    """Make the file system of a session.

    Args:
        users: Users and disks of the sandbox.
        user: The session's user.
        is_root: Whether it covers the files of the sandbox; then a process of the session opens its files for the server.
        disk: A detached mount of a disk for what changes there; None for memory.
        layer: Name of the directory of the changes on the disk, where there may be those of a session that has ended.

    Returns:
        As ``enter``.
    """
    _separate(users)
    namespace = None if is_root or user == users.server else user_namespaces.create([(user, users.server, 1)])
    # Root's session has what the image has in the other directory.
    base = next(filter(os.path.isdir, users.hidden), _TEMPORARY) if is_root else _TEMPORARY
    limits = f"size={users.disk_bytes},nr_inodes={users.inodes}"
    # Sessions of root cannot see this directory. The server, another user, needs to reach the display sockets below it.
    permissions = "0711" if is_root else "0700"
    mounts.mount_tmpfs(base, f"{limits},mode={permissions},uid={user},gid={user}")
    for name, (_, mode) in users.directories.items():
        path = f"{base}/{name}"
        os.mkdir(path)
        # Those that all users share are root's, if there is one.
        owner = root_user.ROOT if is_root and mode & stat.S_ISVTX else user
        os.chown(path, owner, owner)
        os.chmod(path, mode)
    os.mkdir(f"{base}/{SLOTS}", 0o700)
    os.chown(f"{base}/{SLOTS}", user, user)
    slots = os.open(f"{base}/{SLOTS}", os.O_PATH | os.O_CLOEXEC)
    tree = mounts.clone_tree(base)
    if namespace is not None:
        mounts.map_owner(tree, namespace)
        os.close(namespace)
    if is_root:
        own = [(f"{base}/{name}", target) for name, (target, _) in users.directories.items()]
        changes = base if disk is None else _make_layer(f"{base}/{_LAYERS}", disk, layer)
        root_user.cover(base, own, changes=changes, hidden=users.hidden, read_only=users.read_only)
        return tree, slots
    # The mount over the file system's own mount point, which hides it, must be the last.
    for name, (target, _) in sorted(users.directories.items(), key=lambda item: item[1][0] == _TEMPORARY):
        mounts.bind(f"{_TEMPORARY}/{name}", target)
        for link, covered in links(target).items():
            os.symlink(covered, link)
            os.lchown(link, user, user)
    return tree, slots


def _make_layer(target: str, disk: int, name: str) -> str:
    """Return the path of a new directory on a disk, which is attached at another one."""
    os.mkdir(target, 0o700)
    mounts.attach(disk, target)
    path = f"{target}/{name}"
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(path)
    os.mkdir(path, 0o700)
    # Who measures it.
    os.chown(path, root_user.ROOT, root_user.ROOT)
    return path


def _separate(users: SessionUsers) -> None:
    """Set up the new namespaces of the calling process, without what belongs to the server and the sandbox."""
    proc = _begin(users)
    # Where the session runs as the server's user, it owns the server's files.
    mounts.protect()
    _cover_system(proc)
    _hide_server(users)


def _join_group(users: SessionUsers, user: int) -> None:
    """Move the calling process to the control group of a user, before its mounts are read-only."""
    if users.have_groups:
        control_groups.join_own(str(user), max_tasks=users.max_tasks, systems=users.systems)


def _begin(users: SessionUsers) -> int:
    """Set up the new namespaces of the calling process; return a descriptor of a mount with their processes."""
    socket.sethostname(namespaces.HOST_NAME)
    if not users.network:
        bring_up_loopback()
        open_low_ports()
    mounts.make_private()
    return mounts.make_proc()


def _cover_system(proc: int) -> None:
    """Cover the processes and terminals of the sandbox by those of the calling process's namespaces.

    Args:
        proc: Descriptor from ``_begin``, which is closed.
    """
    mounts.attach(proc, "/proc")
    os.close(proc)
    mounts.mask(*_MASKED)
    mounts.read_only(*_READ_ONLY)
    mounts.mount_devpts(_TERMINALS, _MAX_TERMINALS)
    if not os.path.islink("/dev/ptmx"):
        mounts.bind(f"{_TERMINALS}/ptmx", "/dev/ptmx")


def _hide_server(users: SessionUsers) -> None:
    """Cover the directories of the server."""
    shown = {path: mounts.clone_tree(path) for path in users.shown}
    for directory in filter(os.path.isdir, users.hidden):
        mounts.mount_tmpfs(directory, "mode=0111,nr_inodes=16")
    for path, tree in shown.items():
        os.makedirs(path)
        mounts.attach(tree, path)
        os.close(tree)
    for directory in filter(os.path.isdir, users.hidden):
        # Its owner may be the user of the session.
        mounts.seal(directory)


def enter_slot(
    users: SessionUsers,
    slots: int,
    number: int,
    *,
    user_namespace: int,
    mount_namespace: int,
    pid_namespace: int,
) -> tuple[int, ...] | None:
    """Fork a child in new namespaces for a fork of a session. The caller has a zygote's privileges, and mounts of its own.

    A process of the session can join them: its user owns the new user namespace, which is below that of the process, and the
    other namespaces belong to this one. The child is the init of the new pid namespace, which is below that of the session.

    Args:
        users: Users and disks of the sandbox.
        slots: Descriptor of the parent directory of those of forks.
        number: Number of the fork.
        user_namespace: Descriptor of the user namespace of the process that is to join.
        mount_namespace: Descriptor of the mount namespace of the session that ``enter`` has made.
        pid_namespace: Descriptor of the pid namespace of the process that is to join.

    Returns:
        In the child: descriptors of the namespaces for ``join_slot``. In the calling process: None.

    Raises:
        OSError: If the kernel or a seccomp filter does not permit it.
    """
    mounts.join(pid_namespace, mounts.NEW_PROCESSES)
    # Only a process that is in a pid namespace can create another one in there.
    if fork_bare():
        return None
    mounts.make_private()
    with _entered(mount_namespace):
        trees = {name: mounts.clone_tree(f"{number}/{name}", directory=slots) for name in users.directories}
    mounts.join(user_namespace, mounts.NEW_USERS)
    os.setresgid(USER, USER, USER)
    os.setresuid(USER, USER, USER)
    user_namespaces.allow_inspection()
    user_namespaces.enter(USER, USER)
    if fork_into_namespaces(users):
        return None
    _separate(users)
    # As in ``enter``, the mount that hides the others must be the last.
    for name, (mount_point, _) in sorted(users.directories.items(), key=lambda item: item[1][0] == _TEMPORARY):
        mounts.attach(trees[name], mount_point)
        os.close(trees[name])
    names = [name for name in _SLOT_NAMESPACES if name != "net" or not users.network]
    return tuple(os.open(f"/proc/self/ns/{name}", os.O_RDONLY | os.O_CLOEXEC) for name in names)


def join_slot(namespaces: Iterable[int], *, max_tasks: int | None) -> None:
    """Move the calling, single-threaded process of a session into the namespaces of a fork, without capabilities in them.

    Its next child is a process of the fork; itself, it keeps its pid namespace.

    Args:
        namespaces: Descriptors from ``enter_slot``, which are closed.
        max_tasks: Limit on the processes and threads of the session that the fork was made of, None for no limit. That of the
            fork is a fraction, because its tasks count for both.

    Raises:
        OSError: If the session root does not admit it.
    """
    # Without the last one, the fork has the network of the sandbox.
    for namespace, kind in zip(namespaces, _SLOT_NAMESPACES.values(), strict=False):
        mounts.join(namespace, kind)
        os.close(namespace)
    capabilities.drop_all()
    if max_tasks is not None:
        limit = max(_MIN_TASKS_OF_FORK, max_tasks // 4)
        resource.setrlimit(resource.RLIMIT_NPROC, (limit, limit))
    # Gaining capabilities has undone it.
    user_namespaces.allow_inspection()


def are_joined(pid: int, namespaces: Sequence[int]) -> bool:
    """Return whether a process is in the namespaces of a fork; false if it has exited.

    Args:
        pid: The process.
        namespaces: Descriptors from ``enter_slot``.
    """
    names = list(_SLOT_NAMESPACES)[: len(namespaces)]
    return [procfs.namespace_of(pid, name) for name in names] == list(map(procfs.identity_of, namespaces))


def pid_namespace_in(namespaces: Sequence[int]) -> int:
    """Return the descriptor of the pid namespace among those from ``enter_slot``."""
    return namespaces[list(_SLOT_NAMESPACES).index("pid")]


def shared_namespaces_in(namespaces: Sequence[int]) -> tuple[int, ...]:
    """Return the descriptors among those from ``enter_slot`` by which other session roots can join the system of the fork."""
    return tuple(namespaces[list(_SLOT_NAMESPACES).index(name)] for name in _NAMESPACES)


def open_namespaces() -> tuple[int, ...]:
    """Return descriptors of the calling process's namespaces, by which other session roots can join its system."""
    return tuple(os.open(f"/proc/self/ns/{name}", os.O_RDONLY | os.O_CLOEXEC) for name in _NAMESPACES)


def join(users: SessionUsers, user: int, namespaces: Iterable[int], *, is_root: bool = False) -> None:
    """Give the calling process, a session root with capabilities in its user namespace, files and IPC objects of another one.

    Args:
        users: Users and disks of the sandbox.
        user: The user's id, as for ``enter``.
        namespaces: Descriptors from ``open_namespaces``.
        is_root: Whether the system is one of ``create_for_roots``, of which the process becomes root.

    Raises:
        OSError: If the kernel or a seccomp filter does not permit it.
    """
    _join_group(users, user)
    proc = _begin(users)
    for namespace, kind in zip(namespaces, _NAMESPACES.values(), strict=True):
        mounts.join(namespace, kind)
    # Of the mounts, only the files are common.
    mounts.unshare(mounts.NEW_MOUNTS)
    _cover_system(proc)
    if is_root:
        root_user.become(users.own)
        os.chdir("/")
    else:
        _become(users, user)


def open_mounts() -> int:
    """Return a descriptor of the calling process's mount namespace, by which other processes can borrow its files."""
    return os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)


@contextlib.contextmanager
def _entered(mount_namespace: int) -> Iterator[None]:
    """Enter a mount namespace for a block: only there can its mounts be cloned."""
    own = open_mounts()
    mounts.join(mount_namespace, mounts.NEW_MOUNTS)
    yield
    mounts.join(own, mounts.NEW_MOUNTS)
    os.close(own)


def borrow(users: SessionUsers, user: int, mount_namespace: int, directories: Sequence[str]) -> list[str]:
    """Give the calling process, which has a session root's privileges, a user for tests and the files of a session.

    The process does not enter the session's system, in which code of the session could replace what leads to Python (see
    ``links``): it has its own mounts, in which the files of the session belong to its user.

    Args:
        users: Users and disks of the sandbox.
        user: Id of the session's user; the server's if there are no others.
        mount_namespace: Descriptor of the session's, from ``open_mounts``.
        directories: Mount points of the session's directories.

    Returns:
        Paths of the directories: their mount points, except for those above Python.

    Raises:
        OSError: If the kernel or a seccomp filter does not permit it.
    """
    targets = _borrow(users, user, mount_namespace, directories)
    _become(users, users.of_tests(user))
    return targets


def _borrow(users: SessionUsers, user: int, mount_namespace: int, directories: Sequence[str]) -> list[str]:
    own_user = users.of_tests(user)
    _join_group(users, own_user)
    _separate(users)
    with _entered(mount_namespace):
        trees = [mounts.clone_tree(directory) for directory in directories]
    targets = [f"{namespaces.BESIDE}{directory}" if links(directory) else directory for directory in directories]
    namespace = None if user == own_user else user_namespaces.create([(user, own_user, 1)])
    for tree, target in zip(trees, targets, strict=True):
        if namespace is not None:
            mounts.map_owner(tree, namespace)
        mounts.attach(tree, target)
        os.close(tree)
    if namespace is not None:
        os.close(namespace)
    return targets


def _become(users: SessionUsers, user: int) -> None:
    # In which the settings are not covered yet.
    proc = mounts.clone_tree("/proc")
    if user != os.geteuid():
        user_namespaces.become(user)
    user_namespaces.enter(USER, USER)
    _limit_watches(proc, users.systems)
    os.close(proc)
    with contextlib.suppress(OSError):
        os.chdir("/")


def _limit_watches(proc: int, systems: int) -> None:
    """Limit the directory watches of the calling process's new user namespace.

    Above, the kernel counts those of all sessions for the one user that has made the namespace of the zygotes.
    """
    for name in _WATCHES:
        # Not all kernels have it.
        with contextlib.suppress(OSError):
            most = int(Path(f"/proc/sys/fs/inotify/max_user_{name}").read_text())
            descriptor = os.open(f"sys/user/max_inotify_{name}", os.O_WRONLY | os.O_CLOEXEC, dir_fd=proc)
            try:
                os.write(descriptor, b"%d" % max(1, most // (systems + 1)))
            finally:
                os.close(descriptor)


def links(directory: str) -> dict[str, str]:
    """Return links that make readable directories accessible again after a session's own directory has covered them.

    Args:
        directory: Path of the session's directory.

    Returns:
        Targets by the paths of the links.
    """
    covered = f"{namespaces.COVERED}{directory}"
    names = os.listdir(covered) if os.path.isdir(covered) else ()
    return {f"{directory}/{name}": f"{covered}/{name}" for name in names}


def try_to_enter(users: SessionUsers, readable: Iterable[str]) -> str:
    """Call what ``enter``, ``borrow`` and ``join`` do in children of a process that has a zygote's privileges.

    Args:
        users: Users and disks of the sandbox.
        readable: Files and directories that a session must be able to read.

    Returns:
        What prevents it or what sessions lack, empty if nothing.
    """
    fork = functools.partial(fork_into_namespaces, users)

    def try_root() -> str:
        enter_as_root(users, users.of_sessions[0])
        return ""

    def try_user() -> str:
        _join_group(users, users.of_contexts)
        for descriptor in _create(users, users.of_contexts):
            os.close(descriptor)
        system = open_namespaces()
        socket.send_fds(theirs, [b"."], system)
        return ""

    def try_to_borrow() -> str:
        submissions = users.of_submissions[0] if users.count else users.server
        borrow(users, submissions, system[0], users.mount_points)
        return ""

    def try_to_join() -> str:
        join(users, users.of_contexts, system)
        hidden = [path for path in sorted(readable) if not os.access(path, os.R_OK)]
        return f"a session cannot read {hidden[0]}: install Python where all users can read it" if hidden else ""

    if users.have_root and (obstacle := ask_child(try_root, fork=fork)):
        return obstacle
    if users.layers:
        # The kernel may permit no others.
        return ""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        if obstacle := ask_child(try_user, fork=fork):
            return obstacle
        system = socket.recv_fds(ours, 1, len(_NAMESPACES))[1]
    try:
        return ask_child(try_to_borrow, fork=fork) or ask_child(try_to_join, fork=fork)
    finally:
        for descriptor in system:
            os.close(descriptor)
