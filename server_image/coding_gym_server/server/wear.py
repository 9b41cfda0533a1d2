"""Wear of a server: what it has taken, and does not give back when its sessions end."""

from __future__ import annotations

import os
import resource

from coding_gym_server.linux.procfs import children, private_bytes

__all__ = ["Wear"]


class Wear:
    """Finds out whether a server should be replaced, once its sessions have ended.

    Sessions and submissions leave nothing: their processes, files and memory go with their namespaces. What can grow is the
    server itself, and the zygotes that they are forked from.

    Args:
        max_growth_bytes: By how much the memory of a process may grow.
        max_open_files: Maximum number of open files of the server; three quarters of its limit by default.
    """

    def __init__(self, *, max_growth_bytes: int = 512 << 20, max_open_files: int | None = None) -> None:
        self._max_growth_bytes = max_growth_bytes
        self._max_open_files = max_open_files or resource.getrlimit(resource.RLIMIT_NOFILE)[0] * 3 // 4
        self._least: dict[int, int] = {}

    def reason(self) -> str:
        """Return why the server should be replaced, in a few words; empty if it should not."""
        if (count := len(os.listdir("/proc/self/fd"))) > self._max_open_files:
            return f"it has {count:,} open files"
        used = {pid: private_bytes(pid) for pid in (os.getpid(), *children(os.getpid()))}
        self._least = {pid: min(size, self._least.get(pid, size)) for pid, size in used.items()}
        growth = max(size - self._least[pid] for pid, size in used.items())
        return f"its memory has grown by {growth >> 20:,} MiB" if growth > self._max_growth_bytes else ""
