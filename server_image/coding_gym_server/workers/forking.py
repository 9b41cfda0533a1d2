"""Forks, even while somebody else uses up all processes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

__all__ = ["fork_when_possible"]

_PATIENCE_SECONDS = 1.0
"""What uses up the processes of a sandbox is ended sooner; see ``ProcessGuard``."""

_INTERVAL = 0.02


def fork_when_possible(*, meanwhile: Callable[[], None] | None = None) -> int:
    """Return what ``os.fork`` returns, and wait a while if there are too many processes for it now.

    Args:
        meanwhile: Called again and again while it waits.

    Raises:
        OSError: There still are, or there is no memory.
    """
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            return os.fork()
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise
        if meanwhile is not None:
            meanwhile()
        time.sleep(_INTERVAL)
