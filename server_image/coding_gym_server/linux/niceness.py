"""Scheduling priority of user code."""

from __future__ import annotations

import contextlib
import os

__all__ = ["lower_priority"]

_NICENESS = 10


def lower_priority() -> None:
    """Lower the priority of the calling process to that of user code, so that the others can end a hundred busy processes.

    With the batch policy, the process does not preempt the server as soon as that has sent it something: a server that sends
    cells to 16 workers is interrupted less often (see sched(7)).
    """
    os.nice(_NICENESS)
    # gVisor has only the default policy.
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
