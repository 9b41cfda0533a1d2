"""Process limiter: prevents one session or submission from exhausting the processes of a sandbox, or memory by locks.

All processes of a sandbox share its process limit because they share a control group, or a user id. When most of the limit is
used, the session or submission with the most processes is killed if it exceeds its fair share. Until then, a session that has a
user of its own cannot use the rest, either (see ``default_session_limit``).

What the kernel remembers of POSIX locks of files, any number of which a process can take of a single file, counts toward the
memory of no control group, so that a session or submission with very many of them is killed, too.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

from coding_gym_server.linux.procfs import ancestors, file_locks, tasks_below

__all__ = ["ProcessGroup", "ProcessLimiter", "default_session_limit"]

_INTERVAL = 0.1

_MAX_INTERVAL = 1.0
"""Maximum time between two counts by process, in seconds, if counting is cheap."""

_MAX_LOAD = 0.01
"""Maximum fraction of a processor that is spent on counting by process, unless most of the limit is used."""

_MAX_LOCKS = 5_000
"""Maximum number of POSIX locks of a session or submission, each of which takes about 200 bytes of the kernel's memory."""

# cgroup v2, cgroup v1.
_CONTROL_GROUPS = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/pids"))
_LOAD = Path("/proc/loadavg")


class ProcessGroup(Protocol):
    """Processes of one session or submission."""

    @property
    def is_recycling(self) -> bool:
        """Whether they are being replaced."""

    @property
    def root_pid(self) -> int:
        """Process id of their closest common ancestor."""

    def kill_with_reason(self, reason: str) -> None:
        """Kill all processes of the group, and report the reason."""


class ProcessLimiter:
    """Watch the number of tasks (processes and threads).

    Args:
        groups: Returns the groups to watch.
        limit: Maximum number of tasks in addition to the machine's other ones; None for the limit of the control group.
        group_count: Returns the number of groups that share the limit.
        apart: Returns the process ids of frozen copies, which are not counted for the group that they are below.
    """

    def __init__(
        self,
        groups: Callable[[], Iterable[ProcessGroup]],
        *,
        limit: int | None,
        group_count: Callable[[], int],
        apart: Callable[[], Iterable[int]] = tuple,
    ) -> None:
        self._groups = groups
        self._apart = apart
        self._group_count = group_count
        self._counter, self._limit = (_LOAD, limit) if limit is not None else _limit_of_control_group()
        self._others = self._count() if limit is not None else 0
        self._due = time.monotonic()

    @property
    def limit(self) -> int | None:
        """Maximum number of tasks, None if there is no limit."""
        return self._limit

    async def run(self) -> None:
        """Watch until canceled."""
        while True:
            await asyncio.sleep(_INTERVAL)
            self._limit_locks()
            if self._limit is None:
                continue
            group_count = self._group_count()
            threshold = _threshold(self._limit, group_count)
            count = self._count()
            # Other processes of the machine exit, too: were they still counted, they would hide as many of the sandbox.
            self._others = min(self._others, count)
            # Those that exit while the sandbox starts as many change nothing in the machine's count.
            is_due = self._counter is _LOAD and time.monotonic() >= self._due
            if is_due or count - self._others >= threshold:
                self._kill_largest(self._limit, threshold, fair=threshold // group_count, count=count)

    def _limit_locks(self) -> None:
        """Kill the groups with too many locks."""
        locks = file_locks(2 * _MAX_LOCKS)
        if locks.total() <= _MAX_LOCKS:
            return
        groups = {group.root_pid: group for group in self._groups()}
        held: Counter[int] = Counter()
        for pid, count in locks.items():
            for root in {pid, *ancestors(pid)} & groups.keys():
                held[root] += count
        for root, count in held.items():
            if count > _MAX_LOCKS and not groups[root].is_recycling:
                groups[root].kill_with_reason(f"{count} locks of files or more; the limit is {_MAX_LOCKS}")

    def _kill_largest(self, limit: int, threshold: int, *, fair: int, count: int) -> None:
        began = time.thread_time()
        groups = {group.root_pid: group for group in self._groups()}
        tasks = tasks_below([*groups, *self._apart()])
        if self._counter is _LOAD:
            # Not the time that passed: other processes, such as those of a fork bomb, may have had the processor.
            self._due = time.monotonic() + max(_MAX_INTERVAL, (time.thread_time() - began) / _MAX_LOAD)
            self._others = max(0, count - tasks.total())
            if tasks.total() < threshold:
                return
        if not groups:
            return
        pid = max(groups, key=lambda pid: tasks[pid])
        used = tasks[pid]
        if used >= fair and not groups[pid].is_recycling:
            groups[pid].kill_with_reason(f"{used} processes and threads; the sandbox's limit is {limit}")

    def _count(self) -> int:
        try:
            text = self._counter.read_text()
        except OSError:
            return 0
        # "0.20 0.18 0.12 1/80 11206": the number after the slash counts all tasks of the machine.
        return int(text.split()[3].partition("/")[2]) if self._counter is _LOAD else int(text)


def default_session_limit(sessions: int, limit: int | None) -> int | None:
    """Return how many tasks a session may have, so that the others can fork while it is being killed for them.

    Args:
        sessions: Number of sessions.
        limit: Limit on all tasks, None for that of the control group.

    Returns:
        The number, or None if it need not be limited.
    """
    if limit is not None:
        return _threshold(limit, sessions)
    _, limit = _limit_of_control_group()
    return None if limit is None or sessions == 1 else _threshold(limit, sessions)


def _threshold(limit: int, group_count: int) -> int:
    """Return how much of the limit groups may use: a single one all, several leave a quarter in reserve."""
    return limit if group_count == 1 else limit * 3 // 4


def _limit_of_control_group() -> tuple[Path, int | None]:
    for directory in _CONTROL_GROUPS:
        try:
            return directory / "pids.current", int((directory / "pids.max").read_text())
        except (OSError, ValueError):
            # Another cgroup version, or "max".
            continue
    return _LOAD, None
