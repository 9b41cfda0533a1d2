"""User namespaces and their maps (see user_namespaces(7))."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence

from coding_gym_server.linux import mounts
from coding_gym_server.linux.cloning import idle_child
from coding_gym_server.linux.procfs import write_at_once

__all__ = ["allow_inspection", "become", "create", "enter", "forbid_inspection"]

_PR_SET_DUMPABLE = 4

_Range = tuple[int, int, int]

_libc = ctypes.CDLL(None, use_errno=True)


def create(users: Sequence[_Range], groups: Sequence[_Range] | None = None) -> int:
    """Return a descriptor of a new user namespace, which the user of the calling process can join with all capabilities.

    Args:
        users: Users of the namespace: first id inside, first id outside, and number of ids. A calling process without the
            capability to set ids may give its own user only.
        groups: Groups of the namespace in the same form. Defaults to the ids of the users.

    Raises:
        OSError: If the kernel, its configuration or a seccomp filter does not permit it.
    """
    try:
        with idle_child(mounts.NEW_USERS) as pid:
            write_at_once(f"/proc/{pid}/uid_map", _lines(users))
            try:
                write_at_once(f"/proc/{pid}/gid_map", _lines(groups or users))
            except PermissionError:
                # A process without capabilities may write the map of groups only then.
                write_at_once(f"/proc/{pid}/setgroups", b"deny")
                write_at_once(f"/proc/{pid}/gid_map", _lines(groups or users))
            return os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        message = f"this process may not create user namespaces: {error.strerror}"
        raise OSError(error.errno, message) from error


def _lines(ranges: Sequence[_Range]) -> bytes:
    return "".join(f"{inside} {outside} {count}\n" for inside, outside, count in ranges).encode()


def become(user: int, group: int | None = None, groups: Sequence[int] = ()) -> None:
    """Change the user and the groups of the calling process permanently.

    Args:
        user: Id of the user.
        group: Id of its group; that of the user if None.
        groups: Ids of its supplementary groups.

    Raises:
        OSError: If the calling process may not.
    """
    group = user if group is None else group
    os.setgroups(groups)
    os.setresgid(group, group, group)
    os.setresuid(user, user, user)
    # Restore the access to the process's own files in /proc, which a change of its user removes.
    allow_inspection()


def allow_inspection() -> None:
    """Let processes of the same user, including the calling one, read its files in ``/proc``."""
    _libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)


def forbid_inspection() -> None:
    """Keep processes of the same user from reading and writing the memory of the calling one, and what it forks."""
    _libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


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
    write_at_once("/proc/self/setgroups", b"deny")
    write_at_once("/proc/self/uid_map", b"%d %d 1" % (user, own_user))
    write_at_once("/proc/self/gid_map", b"%d %d 1" % (group, own_group))
