"""Files that sessions leave behind in ``/dev/shm``, where POSIX shared memory and semaphores live.

All sessions of a sandbox share that directory, for the C library knows no other place; they can neither list it nor, but by
chance, name another session's file. Nothing says whose a file is, so what no living process has open or mapped is removed.
"""

from __future__ import annotations

import contextlib
import os
from fnmatch import fnmatch
from pathlib import Path

__all__ = ["exists", "sweep"]

_DIRECTORY = Path("/dev/shm")  # noqa: S108 - the name that POSIX shared memory has on Linux


def exists(patterns: tuple[str, ...]) -> bool:
    """Say whether there is any file that matches one of the patterns."""
    return bool(_matching(patterns))


def sweep(patterns: tuple[str, ...], since: float) -> list[str]:
    """Remove files that nothing uses any more; returns their names.

    Args:
        patterns: Names as ``fnmatch`` takes them; others are left alone.
        since: Files older than this time, in seconds since the epoch, are left alone.
    """
    candidates = {name for name in _matching(patterns) if _is_ours(_DIRECTORY / name, since)}
    if candidates:
        candidates -= _in_use()
    for name in candidates:
        path = _DIRECTORY / name
        with contextlib.suppress(OSError):
            path.unlink()
    return sorted(candidates)


def _matching(patterns: tuple[str, ...]) -> list[str]:
    try:
        names = os.listdir(_DIRECTORY)
    except OSError:
        return []
    return [name for name in names if any(fnmatch(name, pattern) for pattern in patterns)]


def _is_ours(path: Path, since: float) -> bool:
    try:
        status = path.lstat()
    except OSError:
        return False
    return status.st_uid == os.getuid() and status.st_ctime >= since


def _in_use() -> set[str]:
    """Return the names below ``/dev/shm`` that some process has open or mapped."""
    prefix = f"{_DIRECTORY}/"
    used = set()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            for line in (process / "maps").read_text(errors="replace").splitlines():
                if prefix in line:
                    used.add(line[line.index(prefix) + len(prefix) :].split("/")[0])
        with contextlib.suppress(OSError):
            for descriptor in os.scandir(process / "fd"):
                with contextlib.suppress(OSError):
                    target = os.readlink(descriptor.path)
                    if target.startswith(prefix):
                        used.add(target[len(prefix) :].split("/")[0])
    return used
