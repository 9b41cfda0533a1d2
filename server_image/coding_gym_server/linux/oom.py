"""Priorities of the kernel's out-of-memory killer, detection of its kills, and the limit that causes them."""

from __future__ import annotations

import contextlib
from pathlib import Path

__all__ = ["has_killed", "memory_limit", "rank_root", "rank_worker"]

_WORKER_SCORE, _ROOT_SCORE = b"1000", b"500"

# cgroup v2, cgroup v1: both count the kills in a line "oom_kill N".
_COUNTERS = (Path("/sys/fs/cgroup/memory.events"), Path("/sys/fs/cgroup/memory/memory.oom_control"))

# cgroup v2, cgroup v1.
_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def _count() -> int:
    for counter in _COUNTERS:
        try:
            with open(counter, "rb", buffering=0) as file:
                lines = file.read().splitlines()
        except OSError:
            continue
        return sum(int(line.split()[1]) for line in lines if line.startswith(b"oom_kill "))
    return 0


_last_count = _count()


def has_killed() -> bool:
    """Return whether the out-of-memory killer has killed a process since the last call."""
    global _last_count
    before, _last_count = _last_count, _count()
    return _last_count > before


def memory_limit() -> int | None:
    """Return the memory limit of the container in bytes, None if it has none."""
    for limit in _LIMITS:
        # "max" if there is none.
        with contextlib.suppress(OSError, ValueError):
            return int(limit.read_text())
    return None


def rank_root() -> None:
    """Rank the calling process, a session root, before the server and after its worker. Must precede its confinement."""
    _rank("self", _ROOT_SCORE)


def rank_worker(pid: int) -> None:
    """Rank a worker and its descendants as the first to be killed. Has no effect in a confined server."""
    _rank(str(pid), _WORKER_SCORE)


def _rank(process: str, score: bytes) -> None:
    with contextlib.suppress(OSError), open(f"/proc/{process}/oom_score_adj", "wb", buffering=0) as file:
        file.write(score)
