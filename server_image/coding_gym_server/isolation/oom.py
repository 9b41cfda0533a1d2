"""Whom the kernel kills when a sandbox has no memory left, and whether it has."""

from __future__ import annotations

import contextlib
from pathlib import Path

__all__ = ["has_struck", "rank_root", "rank_worker"]

_FIRST, _AFTER_WORKERS = b"1000", b"500"

# cgroup v2, cgroup v1: both count the kills in a line "oom_kill N".
_COUNTERS = (Path("/sys/fs/cgroup/memory.events"), Path("/sys/fs/cgroup/memory/memory.oom_control"))


def _count() -> int:
    for counter in _COUNTERS:
        try:
            with open(counter, "rb", buffering=0) as file:
                lines = file.read().splitlines()
        except OSError:
            continue
        return sum(int(line.split()[1]) for line in lines if line.startswith(b"oom_kill "))
    return 0


_seen = _count()


def has_struck() -> bool:
    """Say whether the out-of-memory killer has killed something since the last call."""
    global _seen
    before, _seen = _seen, _count()
    return _seen > before


def rank_root() -> None:
    """Let the calling process, a session root, be killed before the server, and after its worker. It is not confined yet."""
    _rank("self", _AFTER_WORKERS)


def rank_worker(pid: int) -> None:
    """Let a worker, and what it will start, be the first to be killed; a server that is confined itself may not do so."""
    _rank(str(pid), _FIRST)


def _rank(process: str, rank: bytes) -> None:
    with contextlib.suppress(OSError), open(f"/proc/{process}/oom_score_adj", "wb", buffering=0) as file:
        file.write(rank)
