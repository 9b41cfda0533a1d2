"""Keeps one session, or one submission, from using up the processes of all.

All of a sandbox share its limit of processes, for they share a user id and a control group. When most of it is used, the one
with the most processes is ended, if it has more than its share.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

from coding_gym_server.workers.process_table import tasks_below

__all__ = ["ProcessGroup", "ProcessGuard"]

_INTERVAL = 0.1

# cgroup v2, cgroup v1.
_CONTROL_GROUPS = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/pids"))
_LOAD = Path("/proc/loadavg")


class ProcessGroup(Protocol):
    """Processes that belong together.

    Attributes:
        root_pid: The process that all others descend from.
        being_replaced: Whether they are being exchanged for others.
    """

    root_pid: int
    being_replaced: bool

    def overrun(self, what: str) -> None:
        """End them, for they have used up what is for all."""


class ProcessGuard:
    """Watches how many tasks, processes and their threads, there are.

    Args:
        groups: Returns whose processes to watch.
        limit: The most there may be beyond those of the machine now; None for the limit of the control group.
        sharers: Returns how many groups share it, now or soon.
    """

    def __init__(self, groups: Callable[[], Iterable[ProcessGroup]], *, limit: int | None, sharers: Callable[[], int]) -> None:
        self._groups = groups
        self._sharers = sharers
        self._counter, self._limit = (_LOAD, limit) if limit is not None else _limit_of_control_group()
        self._before = self._count() if limit is not None else 0

    @property
    def limit(self) -> int | None:
        """The most tasks there may be, None if there is no limit to watch."""
        return self._limit

    async def run(self) -> None:
        """Watch until cancelled."""
        while self._limit is not None:
            await asyncio.sleep(_INTERVAL)
            sharers = self._sharers()
            # A single one may have it all; among several there is a quarter to spare while the biggest is being ended.
            threshold = self._limit if sharers == 1 else self._limit * 3 // 4
            if self._count() - self._before >= threshold:
                self._end_the_biggest(self._limit, threshold, fair=threshold // sharers)

    def _end_the_biggest(self, limit: int, threshold: int, *, fair: int) -> None:
        groups = {group.root_pid: group for group in self._groups()}
        tasks = tasks_below(groups)
        if not tasks or (self._counter is _LOAD and tasks.total() < threshold):
            return
        pid, count = tasks.most_common(1)[0]
        if count >= fair and not groups[pid].being_replaced:
            groups[pid].overrun(f"{count} processes and threads, and the sandbox may have {limit} in all")

    def _count(self) -> int:
        try:
            text = self._counter.read_text()
        except OSError:
            return 0
        # "0.20 0.18 0.12 1/80 11206": the number after the slash is that of all tasks of the machine.
        return int(text.split()[3].partition("/")[2]) if self._counter is _LOAD else int(text)


def _limit_of_control_group() -> tuple[Path, int | None]:
    for directory in _CONTROL_GROUPS:
        try:
            return directory / "pids.current", int((directory / "pids.max").read_text())
        except (OSError, ValueError):
            # Not this version, or "max".
            continue
    return _LOAD, None
