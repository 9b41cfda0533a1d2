"""User namespaces and their maps (see user_namespaces(7))."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence

from coding_gym_server.linux import mounts
from coding_gym_server.linux.forking import fork_bare, fork_when_possible

__all__ = ["become", "enter", "make_dumpable", "mapping", "write_maps"]

_PR_SET_DUMPABLE = 4

_libc = ctypes.CDLL(None, use_errno=True)


def write_maps(pid: int, ranges: Sequence[tuple[int, int, int]]) -> None:
    """Write the maps of user and group ids of a process's namespace, which can be written only once.

    Args:
        pid: The process.
        ranges: First id inside, first id outside, and number of ids.

    Raises:
        OSError: If the calling process may not map these ids.
    """
    content = "".join(f"{inside} {outside} {count}\n" for inside, outside, count in ranges).encode()
    for name in ("uid_map", "gid_map"):
        _write(f"/proc/{pid}/{name}", content)


def become(user: int) -> None:
    """Change the user and the group of the calling process permanently, without supplementary groups.

    Args:
        user: The id of both.

    Raises:
        OSError: If the calling process may not.
    """
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    make_dumpable()


def make_dumpable() -> None:
    """Restore the access of the calling process to its own files in ``/proc``, which a change of its user removes."""
    _libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)


def enter(user: int, group: int) -> None:
    """Move the calling, single-threaded process into a new user namespace, in which only its own user and group exist.

    Args:
        user: Id of the user in the namespace.
        group: Id of the group in the namespace.

    Raises:
        OSError: If the kernel or its configuration does not permit it.
    """
    own_user, own_group = os.geteuid(), os.getegid()
    mounts.unshare(mounts.NEW_USERS)
    # A process without capabilities may write the map of groups only then.
    _write("/proc/self/setgroups", b"deny")
    _write("/proc/self/uid_map", b"%d %d 1" % (user, own_user))
    _write("/proc/self/gid_map", b"%d %d 1" % (group, own_group))


def mapping(inside: int, outside: int) -> int:
    """Return a descriptor of a new user namespace that maps one user and group, for ``mounts.map_owner``.

    Args:
        inside: Their id in the namespace.
        outside: Their id in the namespace of the calling process, which requires the capabilities to set ids.

    Raises:
        OSError: If the kernel or its configuration does not permit it.
    """
    ready, is_ready = os.pipe()
    done, is_done = os.pipe()
    pid = fork_when_possible(fork_bare)
    if pid == 0:
        # Only system calls, since the interpreter's state is that of before the fork.
        os.close(is_done)
        try:
            mounts.unshare(mounts.NEW_USERS)
            os.write(is_ready, b"x")
            os.read(done, 1)
        finally:
            os._exit(0)
    os.close(is_ready)
    try:
        if not os.read(ready, 1):
            message = "cannot create a user namespace"
            raise OSError(message)
        write_maps(pid, [(inside, outside, 1)])
        return os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        for descriptor in (ready, done, is_done):
            os.close(descriptor)
        os.waitpid(pid, 0)


def _write(path: str, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        # The kernel accepts a map only in a single write.
        os.write(descriptor, content)
    finally:
        os.close(descriptor)
