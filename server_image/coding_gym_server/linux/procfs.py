"""Process information from ``/proc`` (see proc_pid_stat(5))."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections import Counter
from collections.abc import Collection, Iterable
from pathlib import Path

__all__ = [
    "ancestors",
    "children",
    "cpu_time",
    "depth",
    "descendants",
    "file_locks",
    "group_of",
    "has_capabilities",
    "has_exited",
    "identity_of",
    "ignores",
    "is_below",
    "is_mounted_in_memory",
    "is_runnable",
    "namespace_of",
    "netlink_sockets",
    "own_pid",
    "pid_in",
    "pid_of",
    "pid_outside",
    "private_bytes",
    "process_of",
    "proportional_bytes",
    "session_of",
    "tasks_below",
    "tasks_of_user",
    "waiting_times",
    "write_at_once",
]

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_RUNNABLE = (b"R", b"D")
_DEAD = (b"Z", b"X")
_HAS_CHILDREN_FILES = Path("/proc/thread-self/children").exists()
"""False on kernels without CONFIG_PROC_CHILDREN."""

_READ_BYTES = 4096
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_STATE, _PARENT, _GROUP, _SESSION, _UTIME, _CSTIME, _THREADS = 0, 1, 2, 3, 11, 14, 17


def children(parent: int) -> set[int]:
    """Return the pids of the children of the single-threaded process ``parent``, zombies included."""
    try:
        return set(map(int, _read(f"/proc/{parent}/task/{parent}/children").split()))
    except FileNotFoundError:
        # A kernel without CONFIG_PROC_CHILDREN.
        pids = (int(entry) for entry in os.listdir("/proc") if entry.isdigit())
        return {pid for pid in pids if (fields := _stat(pid)) and int(fields[_PARENT]) == parent}


def ancestors(pid: int) -> set[int]:
    """Return the pids of the parent of ``pid``, its parent, and so on."""
    found: set[int] = set()
    while pid and (fields := _stat(pid)):
        pid = int(fields[_PARENT])
        found.add(pid)
    return found


def descendants(ancestor: int, *, without: Collection[int] = ()) -> set[int]:
    """Return the pids of all children of ``ancestor``, their children, and so on, except zombies.

    Args:
        ancestor: The process.
        without: Descendants to leave out along with their own descendants.
    """
    if not _HAS_CHILDREN_FILES:
        return _descendants_of_all(ancestor, without)
    found = set()
    pending = [ancestor]
    while pending:
        for child in _children_of_all_threads(pending.pop()):
            if child not in without and (fields := _stat(child)) and fields[_STATE] not in _DEAD:
                found.add(child)
                pending.append(child)
    return found


def _children_of_all_threads(parent: int) -> list[int]:
    found: list[int] = []
    # The process may exit while its threads are read.
    with contextlib.suppress(OSError):
        for thread in _threads(parent):
            found += map(int, _read(f"/proc/{parent}/task/{thread}/children").split())
    return found


def _descendants_of_all(ancestor: int, without: Collection[int]) -> set[int]:
    children: dict[int, list[int]] = {}
    zombies = set()
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (fields := _stat(int(entry))):
            children.setdefault(int(fields[_PARENT]), []).append(int(entry))
            if fields[_STATE] in _DEAD:
                zombies.add(int(entry))
    found: list[int] = []
    pending = [ancestor]
    while pending:
        for child in children.get(pending.pop(), ()):
            if child not in without:
                pending.append(child)
                found.append(child)
    return set(found) - zombies


def netlink_sockets(pid: int) -> int:
    """Return the number of netlink sockets in the network namespace of a process, bound or not; 0 if it has exited."""
    try:
        lines = _read(f"/proc/{pid}/net/protocols").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[2]) for line in lines if line.startswith(b"NETLINK ")), 0)


def pid_outside(root: int, pid: int) -> int:
    """Return the pid, in the calling process's namespace, of a child of a process.

    Args:
        root: The process, which may be the init of another namespace.
        pid: The child's pid in that one.

    Returns:
        The pid, 0 if the child has been reaped.
    """
    level = len(_pids_of(root)) - 1
    # The newest ones are at the end of the kernel's list, and of most pids.
    for child in sorted(children(root), reverse=True):
        if _pids_of(child)[level : level + 1] == [pid]:
            return child
    return 0


def pid_in(root: int, pid: int) -> int:
    """Return the pid of a process in the namespace of another one, 0 if it has none there or has been reaped.

    Args:
        root: The other process.
        pid: The process's pid in the calling process's namespace.
    """
    level = len(_pids_of(root)) - 1
    return next(iter(_pids_of(pid)[level : level + 1]), 0)


def _pids_of(pid: int) -> list[int]:
    """Return the pids of a process, from the calling process's namespace to its own; empty if it has been reaped."""
    try:
        status = _read(f"/proc/{pid}/status")
    except OSError:
        return []
    _, found, rest = status.partition(b"\nNSpid:")
    # Kernels without it, such as gVisor's, have no nested namespaces.
    return list(map(int, rest.partition(b"\n")[0].split())) if found else [pid]


def is_below(pid: int, ancestor: int) -> bool:
    """Return whether ``pid`` is a descendant of ``ancestor``; conservatively true if a process in between has exited."""
    above = ancestors(pid)
    return ancestor in above or 0 not in above


def is_runnable(pid: int) -> bool:
    """Return whether a thread of a process is running or ready to run; false if the process has exited."""
    return any((fields := _stat(f"{pid}/task/{thread}")) and fields[_STATE] in _RUNNABLE for thread in _threads(pid))


def has_exited(pid: int) -> bool:
    """Return whether a process has exited, reaped or not."""
    fields = _stat(pid)
    return not fields or fields[_STATE] in _DEAD


def is_mounted_in_memory(directory: str) -> bool:
    """Return whether a directory is the mount point of a tmpfs."""
    with open("/proc/self/mounts", "rb") as mounts:
        return any(mount.split()[1:3] == [os.fsencode(directory), b"tmpfs"] for mount in mounts)


def file_locks(most: int) -> Counter[int]:
    """Return the number of POSIX locks of files by the pid of the process that holds them or waits for them.

    Args:
        most: Maximum number of locks to count. To list very many takes the kernel seconds, in which no process can lock a file.
    """
    # "1: POSIX  ADVISORY  WRITE 7 00:2f:123 0 EOF", and with an arrow after the number if it waits.
    with open("/proc/locks", "rb") as file:
        lines = (line.replace(b" -> ", b" ").split() for line in itertools.islice(file, most))
        return Counter(int(fields[4]) for fields in lines if fields[1] == b"POSIX")


def tasks_below(ancestors: Iterable[int]) -> Counter[int]:
    """Return the number of tasks (processes and threads) below each of ``ancestors``, without those below another of them."""
    parents, threads = {}, {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        if fields := _stat(int(entry)):
            parents[int(entry)], threads[int(entry)] = int(fields[_PARENT]), int(fields[_THREADS])
    owners: dict[int, int] = {pid: pid for pid in ancestors}

    def owner_of(pid: int) -> int:
        path = []
        while pid not in owners and pid in parents:
            path.append(pid)
            pid = parents[pid]
        owner = owners.get(pid, 0)
        owners.update(dict.fromkeys(path, owner))
        return owner

    tasks: Counter[int] = Counter()
    for pid, count in threads.items():
        tasks[owner_of(pid)] += count
    return Counter({ancestor: tasks[ancestor] for ancestor in ancestors})


def tasks_of_user(user: int) -> int:
    """Return the number of tasks (processes and threads) of a user id, which ``RLIMIT_NPROC`` limits."""
    tasks = 0
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if os.stat(f"/proc/{entry}").st_uid == user:
                tasks += len(os.listdir(f"/proc/{entry}/task"))
    return tasks


def cpu_time(pid: int) -> float:
    """Return the CPU seconds that a process and its reaped children have used; 0 if it has exited."""
    fields = _stat(pid)
    return sum(map(int, fields[_UTIME : _CSTIME + 1])) / _TICKS_PER_SECOND if fields else 0.0


def session_of(pid: int) -> int | None:
    """Return the session id of a process, None if it has exited."""
    fields = _stat(pid)
    return int(fields[_SESSION]) if fields else None


def group_of(pid: int) -> int | None:
    """Return the process group of a process, None if it has exited."""
    fields = _stat(pid)
    return int(fields[_GROUP]) if fields else None


def process_of(thread: int) -> int:
    """Return the pid of the process of a thread, 0 if it has exited."""
    try:
        status = _read(f"/proc/{thread}/status")
    except OSError:
        return 0
    return int(status.partition(b"\nTgid:\t")[2].split(None, 1)[0])


def private_bytes(pid: int) -> int:
    """Return how much memory of a process is neither files nor shared, 0 if it has exited."""
    try:
        _, resident, shared, *_ = map(int, _read(f"/proc/{pid}/statm").split())
    except (OSError, ValueError):
        return 0
    return (resident - shared) * _PAGE_BYTES


def proportional_bytes(pid: int) -> int:
    """Return the memory of a process with its share of the pages that others have as well, 0 if it has exited.

    If the kernel does not let the caller see that, the memory that is neither files nor shared.
    """
    try:
        rollup = _read(f"/proc/{pid}/smaps_rollup")
    except OSError:
        return private_bytes(pid)
    return sum(int(line.split()[1]) for line in rollup.splitlines() if line.startswith(b"Pss:")) << 10


def waiting_times(pid: int) -> dict[int, int]:
    """Return how long each thread of a process has been runnable without a processor, in nanoseconds by thread id.

    Empty if the process has exited, or if the kernel does not report it.
    """
    found = {}
    with contextlib.suppress(OSError, IndexError):
        for thread in _threads(pid):
            found[int(thread)] = int(_read(f"/proc/{pid}/task/{thread}/schedstat").split()[1])
    return found


def ignores(pid: int, number: int) -> bool:
    """Return whether a process ignores a signal; false if it has exited or the kernel does not report it."""
    return bool(_mask(pid, b"SigIgn") >> (number - 1) & 1)


def handles(pid: int, number: int) -> bool:
    """Return whether a process has a handler of a signal; false if it has exited or the kernel does not report it."""
    return bool(_mask(pid, b"SigCgt") >> (number - 1) & 1)


def has_capabilities(pid: int) -> bool:
    """Return whether a thread of a process has, or can regain, capabilities in its user namespace; false if it has exited."""
    return any(_mask(f"{pid}/task/{thread}", b"CapPrm") for thread in _threads(pid))


def _mask(task: int | str, field: bytes) -> int:
    """Return a bit mask of /proc/TASK/status, 0 if the task has exited or the kernel does not report it."""
    try:
        status = _read(f"/proc/{task}/status")
    except OSError:
        return 0
    # The first line is the name, which the task chooses. The kernel escapes line feeds in it, and no other bytes.
    _, found, rest = status.partition(b"\n%s:\t" % field)
    return int(rest.split(None, 1)[0], 16) if found else 0


def namespace_of(pid: int, name: str) -> tuple[int, int] | None:
    """Return device and inode of a namespace of a process, None if it has exited or may not be inspected.

    Args:
        pid: The process.
        name: Name of the namespace in ``/proc/PID/ns``.
    """
    try:
        return identity_of(f"/proc/{pid}/ns/{name}")
    except OSError:
        return None


def own_pid(pid: int) -> int:
    """Return the pid of a process in its own namespace, 0 if it has been reaped."""
    return next(iter(_pids_of(pid)[-1:]), 0)


def depth(pid: int) -> int:
    """Return in how many pid namespaces, from the calling process's on, a process has a pid; 0 if it has been reaped."""
    return len(_pids_of(pid))


def pid_of(descriptor: int, *, of: int | str = "self") -> int:
    """Return the pid of the process of a pidfd in the calling process's namespace, -1 if it has been reaped.

    Args:
        descriptor: The pidfd.
        of: The process that has it, the calling one by default.

    Raises:
        OSError: If the process may not be inspected, or has no such descriptor.
        IndexError: If the descriptor is not a pidfd.
    """
    _, _, rest = _read(f"/proc/{of}/fdinfo/{descriptor}").partition(b"\nPid:")
    return int(rest.split(None, 1)[0])


def identity_of(file: int | str) -> tuple[int, int]:
    """Return device and inode of a file or descriptor.

    Raises:
        OSError: If it cannot be accessed.
    """
    status = os.stat(file)
    return status.st_dev, status.st_ino


def write_at_once(path: str | Path, content: bytes) -> None:
    """Write to a file of the kernel, which accepts a value, or a map of ids, in a single write only.

    Raises:
        OSError: If it is not accepted.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, content)
    finally:
        os.close(descriptor)


def _threads(pid: int) -> list[str]:
    """Return the ids of the threads of a process; empty if it has exited."""
    try:
        return os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []


def _stat(task: int | str) -> list[bytes]:
    """Return the fields of /proc/TASK/stat after the name, which the task chooses; empty if it has exited."""
    try:
        return _read(f"/proc/{task}/stat").rpartition(b")")[2].split()
    except OSError:
        return []


def _read(path: str) -> bytes:
    """Return the content of a file, with less overhead than ``open``."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        found = b""
        # A read that returns less than it may is not the last one: the kernel returns whole lines.
        while more := os.read(descriptor, _READ_BYTES):
            found += more
        return found
    finally:
        os.close(descriptor)
