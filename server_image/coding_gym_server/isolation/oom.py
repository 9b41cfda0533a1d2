"""Whether the kernel has killed a process of this sandbox for want of memory."""

from __future__ import annotations

from pathlib import Path

__all__ = ["has_struck"]

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
