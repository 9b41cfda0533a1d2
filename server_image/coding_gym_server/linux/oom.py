"""Priorities of the kernel's out-of-memory killer, detection of its kills, and the limit that causes them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

__all__ = ["Rank", "has_killed", "memory_limit"]

_WORKER_SCORE, _ROOT_SCORE = b"1000", b"500"

_V2, _V1 = Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/memory")

_LIMITS = (_V2 / "memory.max", _V1 / "memory.limit_in_bytes")


def _counters() -> list[Path]:
    """Return the files that count kills of this process's control group in a line "oom_kill N", the best first."""
    # In a container, the root is its own group, and the path to it from the machine's root may not exist. That of version 2
    # counts also those of the groups of sessions; the machine's root has no such file.
    counters = [_V2 / "memory.events", _V1 / "memory.oom_control"]
    with contextlib.suppress(OSError):
        for line in os.fsdecode(Path("/proc/self/cgroup").read_bytes()).split("\n")[:-1]:
            _, controllers, group = line.split(":", 2)
            if controllers == "":
                counters.insert(1, _V2 / group.lstrip("/") / "memory.events")
            elif "memory" in controllers.split(","):
                counters.insert(0, _V1 / group.lstrip("/") / "memory.oom_control")
    return counters


_COUNTERS = _counters()


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


class Rank:
    """Priority of the calling process, a session root: killed before the server and after its workers.

    It must be created before the process is confined. Without permission, it has no effect.
    """

    def __init__(self) -> None:
        self._owner = os.getpid()
        self._file: int | None = None
        with contextlib.suppress(OSError):
            self._file = os.open("/proc/self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
        self._write(_ROOT_SCORE)

    @contextlib.contextmanager
    def of_workers(self) -> Iterator[None]:
        """Have the processes that are forked in the meantime, and their descendants, killed first."""
        self._write(_WORKER_SCORE)
        try:
            yield
        finally:
            # For the forked process, the file still refers to the root.
            if os.getpid() == self._owner:
                self._write(_ROOT_SCORE)

    def close(self) -> None:
        """Close the file: user code must not lower its priority. Idempotent."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _write(self, score: bytes) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                os.write(self._file, score)
