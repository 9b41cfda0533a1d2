"""Control groups of sessions, in a container that may write its own (see cgroups(7), version 2).

The container's group is divided into one of the server and its zygotes, and one in which each session root makes its own,
before it becomes a user that may not. The kernel then grants each session its share of the processors, stops a fork bomb at the
session's own limit, and takes memory from sessions that use more than their share first.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path

from coding_gym_server.linux.procfs import write_at_once

__all__ = ["join_own", "share_out"]

_ROOT = Path("/sys/fs/cgroup")
_CONTROLLERS = {"cpu", "memory", "pids"}
_SERVER, _SESSIONS = "server", "sessions"
_SERVER_WEIGHT = b"1000"
"""Ten times that of a session, by default 100: the server must be able to end them."""

_RESERVED_FRACTION = 8
_MAX_ATTEMPTS = 100


def share_out(owner: int, *, root: Path = _ROOT) -> str:
    """Divide the control group of the calling process's container.

    Args:
        owner: Id of the user, and of his group, that makes the groups of sessions.
        root: Where the group is mounted.

    Returns:
        The reason why sessions have no groups, empty if they have.
    """
    try:
        available = (root / "cgroup.controllers").read_text().split()
    except OSError:
        return "the container has no control groups of version 2"
    if missing := sorted(_CONTROLLERS.difference(available)):
        return f"the container's control group lacks {', '.join(missing)}"
    sessions = root / _SESSIONS
    try:
        for group in (root / _SERVER, sessions):
            group.mkdir(exist_ok=True)
        # A group with processes cannot pass controllers on.
        for pid in (root / "cgroup.procs").read_bytes().split():
            with contextlib.suppress(ProcessLookupError):
                write_at_once(root / _SERVER / "cgroup.procs", pid)
        for group in (root, sessions):
            write_at_once(group / "cgroup.subtree_control", b" ".join(b"+%b" % name.encode() for name in sorted(_CONTROLLERS)))
        write_at_once(root / _SERVER / "cpu.weight", _SERVER_WEIGHT)
        if (of_sessions := _memory_of_sessions(root)) is not None:
            # What is below is protected up to this only.
            write_at_once(sessions / "memory.low", b"%d" % of_sessions)
            write_at_once(sessions / "memory.max", b"%d" % of_sessions)
        # Who moves a process must be able to write its new group, and the one above both.
        _share(owner, sessions, sessions / "cgroup.procs", root / "cgroup.procs")
    except OSError as error:
        return f"the container's control group cannot be changed: {error.strerror}"
    return ""


def _share(group: int, *paths: Path) -> None:
    """Let a group of users write files: root of the container may change their group to its own, but not their owner."""
    own = os.getegid()
    os.setegid(group)
    try:
        for path in paths:
            os.chown(path, -1, group)
            path.chmod(path.stat().st_mode | stat.S_IWGRP)
    finally:
        os.setegid(own)


def join_own(name: str, *, max_tasks: int | None, systems: int, root: Path = _ROOT) -> None:
    """Move the calling process, which is single-threaded, to a control group of its own.

    Args:
        name: Name of the group.
        max_tasks: Limit on its processes and threads, None for none.
        systems: Number of groups that have a share of the memory.
        root: Where the container's group is mounted.

    Raises:
        OSError: If the group cannot be made.
    """
    sessions = root / _SESSIONS
    for other in sessions.iterdir():
        # Those that are in use, and files, remain.
        with contextlib.suppress(OSError):
            other.rmdir()
    group = sessions / name
    for attempt in range(_MAX_ATTEMPTS):
        try:
            group.mkdir(exist_ok=True)
            _limit(group, max_tasks, _memory_of_sessions(root), systems)
            write_at_once(group / "cgroup.procs", b"0")
        except OSError as error:
            # Another session root has removed it, as above.
            if error.errno not in (errno.ENOENT, errno.ENODEV) or attempt == _MAX_ATTEMPTS - 1:
                raise
        else:
            return


def _limit(group: Path, max_tasks: int | None, memory: int | None, systems: int) -> None:
    write_at_once(group / "pids.max", b"max" if max_tasks is None else b"%d" % max_tasks)
    if memory is not None:
        write_at_once(group / "memory.max", b"%d" % memory)
        write_at_once(group / "memory.low", b"%d" % (memory // systems))


def _memory_of_sessions(root: Path) -> int | None:
    """Return how much memory sessions have in bytes, without that of the server; None if the container has no limit."""
    text = (root / "memory.max").read_text().strip()
    return None if text == "max" else int(text) * (_RESERVED_FRACTION - 1) // _RESERVED_FRACTION
