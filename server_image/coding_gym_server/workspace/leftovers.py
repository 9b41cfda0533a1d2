"""Removal of files that sessions leave outside their workspaces: in a private ``/tmp`` and in ``/dev/shm``.

The C library keeps POSIX shared memory and semaphores in ``/dev/shm``, which sessions without their own mounts share. They
cannot list it, so they can open another session's file only by guessing its name. A file does not record its session, so with
several sessions only files that no process has open or mapped are removed; with a single session, all files are.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from fnmatch import fnmatch
from pathlib import Path

import msgspec

from coding_gym_server.workspace import directory as workspace

__all__ = ["ResidualFiles"]

_SHARED_MEMORY = Path("/dev/shm")


class ResidualFiles(msgspec.Struct, kw_only=True, frozen=True):
    """Locations of residual files.

    Attributes:
        private: Directories that belong to the only session of this sandbox.
        shared_memory: ``fnmatch`` patterns of files in ``/dev/shm`` that sessions may have created.
        since: Time in seconds since the epoch; older files in ``/dev/shm`` are not removed.
    """

    private: tuple[str, ...] = ()
    shared_memory: tuple[str, ...] = ("*",)
    since: float = 0.0

    def exist(self) -> bool:
        """Return whether there may be files to remove, at negligible cost."""
        return any(map(os.listdir, self.private)) or bool(self._shared_memory_files())

    def remove(self) -> None:
        """Remove all residual files."""
        for directory in self.private:
            with contextlib.suppress(OSError):
                workspace.clear(Path(directory))
        names = {name for name in self._shared_memory_files() if self._is_removable(_SHARED_MEMORY / name)}
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

    def _is_removable(self, path: Path) -> bool:
        try:
            status = path.lstat()
        except OSError:
            return False
        return status.st_uid == os.getuid() and status.st_ctime >= self.since


def _in_use() -> set[str]:
    """Return the names below ``/dev/shm`` that a process has open or mapped."""
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
