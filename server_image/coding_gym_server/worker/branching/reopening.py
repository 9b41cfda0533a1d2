"""Replacement of what a copy of a process shares with the original: positions of files, and descriptors of event loops."""

from __future__ import annotations

import contextlib
import os
import select
import socket
from collections.abc import Iterable

from coding_gym_server.worker.branching.census import IdleLoop
from coding_gym_server.worker.branching.open_files import OpenFile

__all__ = ["renew_loops", "reopen"]


def reopen(files: Iterable[OpenFile], *, in_fork: bool) -> None:
    """Open files again at their positions, under the same descriptors; duplicates of descriptors stay duplicates.

    Args:
        files: The files.
        in_fork: Whether they belong to another session: what cannot be opened again is closed.
    """
    for file in files:
        try:
            status = os.fstat(file.descriptor)
            if (status.st_dev, status.st_ino) != file.identity:
                continue
            # Read before the descriptor is replaced.
            inheritable = os.get_inheritable(file.descriptor)
            if file.original is not None:
                os.dup2(file.original, file.descriptor, inheritable)
                continue
            opened = os.open(file.path, file.flags | os.O_CLOEXEC)
        except OSError:
            # A fork hook has closed it, as matplotlib's does with fonts; or the file is gone.
            if in_fork:
                with contextlib.suppress(OSError):
                    os.close(file.descriptor)
            continue
        if file.offset:
            os.lseek(opened, file.offset, os.SEEK_SET)
        os.dup2(opened, file.descriptor, inheritable)
        os.close(opened)


def renew_loops(loops: Iterable[IdleLoop]) -> None:
    """Give idle event loops a selector and a pipe of their own, under the same descriptors: signals are written to the pipe."""
    for loop, pending in loops:
        selector, pipe = loop._selector, (loop._ssock, loop._csock)
        for ours, new in zip(pipe, socket.socketpair(), strict=True):
            with new:
                new.setblocking(False)
                os.dup2(new.fileno(), ours.fileno(), inheritable=False)
        with select.epoll() as new_selector:
            os.dup2(new_selector.fileno(), selector.fileno(), inheritable=False)
        selector._selector.register(loop._ssock.fileno(), select.EPOLLIN)
        loop._csock.send(pending)
