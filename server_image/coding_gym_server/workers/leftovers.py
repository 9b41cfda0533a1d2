"""What sessions leave behind outside of their workspaces: in ``/tmp``, if it is theirs alone, and in ``/dev/shm``.

``/dev/shm`` is where POSIX shared memory and semaphores live, and the C library knows no other place: all sessions of a
sandbox share it. They can neither list it nor, but by chance, name another session's file. Nothing says whose a file is, so
with several sessions what no living process has open or mapped is removed; with one, everything.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from fnmatch import fnmatch
from pathlib import Path

import msgspec

from coding_gym_server.workers import workspace

__all__ = ["Leftovers"]

_SHARED_MEMORY = Path("/dev/shm")


class Leftovers(msgspec.Struct, kw_only=True, frozen=True):
    """Where sessions can leave something.

    Attributes:
        private: Directories that belong to the one session of this sandbox.
        shared_memory: Names of files in ``/dev/shm``, as ``fnmatch`` takes them, that sessions may have made.
        since: Files in ``/dev/shm`` that are older than this, in seconds since the epoch, are left alone.
    """

    private: tuple[str, ...] = ()
    shared_memory: tuple[str, ...] = ("*",)
    since: float = 0.0

    def exist(self) -> bool:
        """Say whether there may be anything to remove. Costs next to nothing."""
        return any(map(os.listdir, self.private)) or bool(self._shared_memory_files())

    def remove(self) -> None:
        """Remove what is left."""
        for directory in self.private:
            with contextlib.suppress(OSError):
                workspace.clear(Path(directory))
        names = {name for name in self._shared_memory_files() if self._is_ours(_SHARED_MEMORY / name)}
        if names and str(_SHARED_MEMORY) not in self.private:
            names -= _in_use()
        for name in names:
            with contextlib.suppress(OSError):
                (_SHARED_MEMORY / name).unlink()

    def _shared_memory_files(self) -> list[str]:
        try:
            names: Iterable[str] = os.listdir(_SHARED_MEMORY)
        except OSError:
            return []
        return [name for name in names if any(fnmatch(name, pattern) for pattern in self.shared_memory)]

    def _is_ours(self, path: Path) -> bool:
        try:
            status = path.lstat()
        except OSError:
            return False
        return status.st_uid == os.getuid() and status.st_ctime >= self.since


def _in_use() -> set[str]:
    """Return the names below ``/dev/shm`` that some process has open or mapped."""
    prefix = f"{_SHARED_MEMORY}/"
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
