"""Size of the files below a directory."""

from __future__ import annotations

import contextlib
import os
import stat

__all__ = ["measure"]

_BLOCK_BYTES = 512


def measure(directory: int) -> tuple[int, int]:
    """Return how many bytes of a disk the files below a directory take, and how many files and directories there are.

    Args:
        directory: Descriptor of the directory. What cannot be read below it is left out.
    """
    size = count = 0
    linked: set[int] = set()
    for _, directories, names, parent in os.fwalk(".", dir_fd=directory):
        for name in (*directories, *names):
            with contextlib.suppress(OSError):
                status = os.stat(name, dir_fd=parent, follow_symlinks=False)
                count += 1
                if status.st_nlink > 1 and not stat.S_ISDIR(status.st_mode):
                    if status.st_ino in linked:
                        continue
                    linked.add(status.st_ino)
                size += status.st_blocks * _BLOCK_BYTES
    return size, count
