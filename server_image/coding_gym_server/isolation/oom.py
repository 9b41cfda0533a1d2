"""Whom the kernel kills when a sandbox has no memory left, and whether it has."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

__all__ = ["Shield", "has_struck"]

_FIRST, _NEXT = b"1000", b"500"

# cgroup v2, cgroup v1: both count the kills in a line "oom_kill N".
_COUNTERS = (Path("/sys/fs/cgroup/memory.events"), Path("/sys/fs/cgroup/memory/memory.oom_control"))


def _count() -> int:
    for counter in _COUNTERS:
        try:
            lines = counter.read_text().splitlines()
        except OSError:
            continue
        return sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))
    return 0


_seen = _count()


def has_struck() -> bool:
    """Say whether the out-of-memory killer has killed something since the last call."""
    global _seen
    before, _seen = _seen, _count()
    return _seen > before


class Shield:
    """Lets the children of the calling process be killed before it is, and it before what is not shielded at all.

    To be made before the process is confined: later it may not open the file any more.
    """

    def __init__(self) -> None:
        self._file: int | None = None
        with contextlib.suppress(OSError):
            self._file = os.open("/proc/self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
        self._rank(_NEXT)

    def fork(self) -> int:
        """Fork a child that cannot change its own rank, nor this process's.

        Raises:
            OSError: As ``os.fork``.
        """
        # A child inherits its rank.
        self._rank(_FIRST)
        pid = -1
        try:
            pid = os.fork()
        finally:
            if pid != 0:
                self._rank(_NEXT)
            elif self._file is not None:
                os.close(self._file)
        return pid

    def _rank(self, rank: bytes) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                os.write(self._file, rank)
