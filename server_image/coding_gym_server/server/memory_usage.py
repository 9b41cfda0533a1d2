"""Memory of the sandbox: of its control group, or of its processes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

from coding_gym_server.linux.oom import memory_limit
from coding_gym_server.linux.procfs import descendants, private_bytes

__all__ = ["MemoryUsage"]

_V2, _V1 = Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/memory")
_CONTROL_GROUPS = (
    (_V2 / "memory.current", _V2 / "memory.stat", "inactive_file"),
    (_V1 / "memory.usage_in_bytes", _V1 / "memory.stat", "total_inactive_file"),
)
"""Files of the usage and of its parts, and the part that the kernel drops before it kills a process."""

_UNLIMITED = 1 << 60
"""Bytes from which a limit is none: cgroup v1 reports the largest number that it can represent."""


class MemoryUsage:
    """Reads how much memory the sandbox uses.

    Args:
        is_container: Whether the control group of the server is that of the sandbox alone, which other processes of a machine
            may share otherwise.
    """

    def __init__(self, *, is_container: bool) -> None:
        self._is_container = is_container

    @property
    def limit(self) -> int | None:
        """Limit of the container in bytes, None without one."""
        limit = memory_limit() if self._is_container else None
        return None if limit is None or limit >= _UNLIMITED else limit

    def read(self, roots: Iterable[int]) -> int:
        """Return the number of bytes in use, in a container with its files in memory; takes some milliseconds.

        Args:
            roots: Process ids below which all sessions and submissions are, which outlive the zygote that they are children of.
        """
        if self._is_container:
            for current, statistics, cache in _CONTROL_GROUPS:
                with contextlib.suppress(OSError, ValueError, KeyError):
                    pages = dict(line.split() for line in statistics.read_text().splitlines())
                    return max(int(current.read_text()) - int(pages[cache]), 0)
        own = os.getpid()
        found = {own, *descendants(own)}
        for root in roots:
            # Most are below the server.
            if root not in found:
                found |= {root, *descendants(root)}
        return sum(map(_bytes_of, found))


def _bytes_of(pid: int) -> int:
    """Return the share of a process in the memory that it has, 0 if it has exited."""
    try:
        # Pages that several processes share count in parts, so that the sum is what they occupy together.
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    # Of another user, or not dumpable: what it does not share with files and shared memory.
    return private_bytes(pid)
