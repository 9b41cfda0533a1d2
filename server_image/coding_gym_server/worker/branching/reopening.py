"""Replacement of what a copy of a process shares with the original: positions of files, and descriptors of event loops."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from coding_gym_server.worker.branching.census import OpenFile

__all__ = ["renew_loops", "reopen"]


def reopen(files: Iterable[OpenFile]) -> None:
    """Open files again at their positions, under the same descriptors."""
    for file in files:
        try:
            status = os.fstat(file.descriptor)
            if (status.st_dev, status.st_ino) != file.identity:
                continue
            # Read before the descriptor is replaced.
            inheritable = os.get_inheritable(file.descriptor)
            opened = os.open(file.path, (file.flags & ~(os.O_CREAT | os.O_TRUNC | os.O_EXCL)) | os.O_CLOEXEC)
        except OSError:
            # A fork hook has closed it, as matplotlib's does with fonts; or the file is gone.
            continue
        if file.offset:
            os.lseek(opened, file.offset, os.SEEK_SET)
        os.dup2(opened, file.descriptor, inheritable)
        os.close(opened)


def renew_loops(loops: Iterable[Any]) -> None:
    """Give idle event loops a selector and a pipe of their own."""
    for loop in loops:
        selector, ours, theirs = loop._selector, loop._ssock, loop._csock
        loop._selector = type(selector)()
        loop._internal_fds -= 1
        loop._make_self_pipe()
        selector.close()
        ours.close()
        theirs.close()
