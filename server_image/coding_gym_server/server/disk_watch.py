"""Limit of the files that sessions change on a disk, which has no limit for each of them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable
from typing import Protocol

__all__ = ["DiskGroup", "DiskWatch"]

_INTERVAL = 1.0
_MAX_LOAD = 0.05
"""Maximum fraction of the time in which a session is measured."""


class DiskGroup(Protocol):
    """A session with files on a disk."""

    @property
    def is_recycling(self) -> bool:
        """Whether its processes are being replaced."""

    async def measure_disk(self) -> tuple[int, int] | None:
        """Return the bytes and the number of the files that it has changed; None if they are in memory, or it has ended."""

    def kill_with_reason(self, reason: str) -> None:
        """Kill all of its processes, and report the reason."""


class DiskWatch:
    """Kills the processes of sessions that exceed the size of their disk.

    Args:
        groups: Returns the sessions.
        max_bytes: Size of the disk of each.
        max_inodes: Maximum number of files and directories.
    """

    def __init__(self, groups: Callable[[], Iterable[DiskGroup]], *, max_bytes: int, max_inodes: int) -> None:
        self._groups = groups
        self._max_bytes = max_bytes
        self._max_inodes = max_inodes

    async def run(self) -> None:
        """Watch until canceled."""
        pause = _INTERVAL
        while True:
            await asyncio.sleep(pause)
            began = time.monotonic()
            for group in list(self._groups()):
                await self._limit(group)
            pause = max(_INTERVAL, (time.monotonic() - began) / _MAX_LOAD)

    async def _limit(self, group: DiskGroup) -> None:
        used = None
        with contextlib.suppress(TimeoutError):
            used = await group.measure_disk()
        if used is None or group.is_recycling:
            return
        size, count = used
        if size > self._max_bytes:
            group.kill_with_reason(f"{size:,} bytes of changed files; the disk has {self._max_bytes:,}")
        elif count > self._max_inodes:
            group.kill_with_reason(f"{count:,} changed files and directories; the limit is {self._max_inodes:,}")
