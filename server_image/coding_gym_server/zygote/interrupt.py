"""``interrupt``: interrupts the cell of a worker, also one that is about to begin; ``end_loop``: one that keeps its windows."""

from __future__ import annotations

import contextlib
import os
import signal
import time

from coding_gym_server.ipc.messages import CLOSE_SIGNAL, EVENTS_SIGNAL
from coding_gym_server.linux import procfs

__all__ = ["end_loop", "interrupt"]

_START_SECONDS = 0.25
"""Maximum delay from the request to the first line of the cell on a busy machine."""

_CHECK_INTERVAL = 0.002


def interrupt(worker: int) -> None:
    """Interrupt the cell that has been sent to a worker; if the worker has not begun it yet, as soon as it has.

    Args:
        worker: Process id of the worker.
    """
    with contextlib.suppress(ProcessLookupError):
        if not _begins_cell(worker):
            # A handler of GUI events may keep it from that.
            os.kill(worker, EVENTS_SIGNAL)
            _begins_cell(worker)
        os.killpg(worker, signal.SIGINT)


def end_loop(worker: int, *, is_repeated: bool) -> None:
    """Interrupt the cell of a worker, which does not end by it.

    Args:
        worker: Process id of the worker.
        is_repeated: Whether SIGINT has had no effect.
    """
    with contextlib.suppress(ProcessLookupError):
        if procfs.handles(worker, signal.SIGINT) and not is_repeated:
            os.killpg(worker, signal.SIGINT)
        else:
            os.kill(worker, CLOSE_SIGNAL)


def _begins_cell(worker: int) -> bool:
    """Wait until a worker executes a cell, for a limited time, and return whether it does: it ignores SIGINT between cells."""
    deadline = time.monotonic() + _START_SECONDS
    while procfs.ignores(worker, signal.SIGINT):
        if time.monotonic() >= deadline:
            return False
        time.sleep(_CHECK_INTERVAL)
    return True
