"""User namespaces and their maps (see user_namespaces(7))."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence

from coding_gym_server.linux import mounts
from coding_gym_server.linux.forking import fork_bare, fork_when_possible

__all__ = ["become", "enter", "fork_inside", "mapping"]

_PR_SET_DUMPABLE = 4

_libc = ctypes.CDLL(None, use_errno=True)


def fork_inside(ranges: Sequence[tuple[int, int, int]], run: Callable[[], None], *, fork: Callable[[], int] = os.fork) -> int:
    """Fork a process into a new user namespace, in which it has all capabilities; return its process id.

    Args:
        ranges: Users and groups of the namespace: first id inside, first id outside, and number of ids. The calling process
            requires the capabilities to set ids.
        run: What the process does; it exits when this returns.
        fork: Function that forks.

    Raises:
        OSError: If the kernel, its configuration or a seccomp filter does not permit it.
    """
    ready, is_ready = os.pipe()
    mapped, are_mapped = os.pipe()
    try:
        pid = fork_when_possible(fork)
    except OSError:
        for descriptor in (ready, is_ready, mapped, are_mapped):
            os.close(descriptor)
        raise
    if pid == 0:
        try:
            for descriptor in (ready, are_mapped):
                os.close(descriptor)
            mounts.unshare(mounts.NEW_USERS)
            os.write(is_ready, b"x")
            if os.read(mapped, 1):
                os.close(is_ready)
                run()
        except BaseException as error:  # noqa: BLE001
            os.write(2, f"user namespace: {error}\n".encode())
        finally:
            os._exit(1)
    os.close(is_ready)
    os.close(mapped)
    try:
        if not os.read(ready, 1):
            message = "this process may not create user namespaces"
            raise PermissionError(message)
        content = "".join(f"{inside} {outside} {count}\n" for inside, outside, count in ranges).encode()
        for name in ("uid_map", "gid_map"):
            _write(f"/proc/{pid}/{name}", content)
        os.write(are_mapped, b"x")
    except OSError:
        os.close(are_mapped)
        os.waitpid(pid, 0)
        raise
    finally:
        os.close(ready)
    os.close(are_mapped)
    return pid


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
    # Restore the access to the process's own files in /proc, which a change of its user removes.
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
    done, is_done = os.pipe()

    def wait() -> None:
        os.close(is_done)
        os.read(done, 1)

    pid = None
    try:
        # Without Python's hooks, because the process only makes system calls.
        pid = fork_inside([(inside, outside, 1)], wait, fork=fork_bare)
        return os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(done)
        os.close(is_done)
        if pid is not None:
            os.waitpid(pid, 0)


def _write(path: str, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        # The kernel accepts a map only in a single write.
        os.write(descriptor, content)
    finally:
        os.close(descriptor)
