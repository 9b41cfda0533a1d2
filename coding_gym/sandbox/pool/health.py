"""Health checks of pooled sandboxes."""

from __future__ import annotations

import contextlib
import threading
import weakref
from typing import Protocol

from coding_gym.sandbox.pool.lease import PooledMember

__all__ = ["HEALTH_TIMEOUT", "MAX_FAILED_CHECKS", "Checked", "check_regularly", "is_responsive"]

HEALTH_TIMEOUT = 2.0
MAX_FAILED_CHECKS = 2


class Checked(Protocol):
    """A pool, as its health checks use it."""

    def check_health(self) -> None:
        """Replace dead sandboxes."""


def is_responsive(member: PooledMember, *, timeout: float) -> bool:
    """Return whether a sandbox answers; a single timeout may only mean that it is busy."""
    return any(member.sandbox.is_healthy(timeout=timeout) for _ in range(MAX_FAILED_CHECKS))


def check_regularly(reference: weakref.ref[Checked], closing: threading.Event, interval: float) -> None:
    """Check a pool at intervals, until it is closed or garbage collected."""
    while not closing.wait(interval):
        pool = reference()
        if pool is None:
            return
        # No new threads can be started while the interpreter shuts down.
        with contextlib.suppress(RuntimeError):
            pool.check_health()
        del pool
