"""Descriptors of backends, with numbers that do not collide with those of user code such as ``exec 3>file``."""

from __future__ import annotations

import fcntl
import os

__all__ = ["FIRST", "high_pipe"]

FIRST = 61
"""Lowest number."""


def high_pipe() -> tuple[int, int]:
    """Return the read end and the write end of a pipe."""
    ends = os.pipe2(os.O_CLOEXEC)
    moved = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, FIRST) for end in ends]
    for end in ends:
        os.close(end)
    return moved[0], moved[1]
