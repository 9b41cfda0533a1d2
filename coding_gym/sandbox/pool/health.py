"""Health checks of pooled sandboxes."""

from __future__ import annotations

import contextlib
import threading
import weakref
from typing import Any, Protocol

from coding_gym.client.address import Address
from coding_gym.client.http import get_json
from coding_gym.errors import CodingGymError, ProtocolError
from coding_gym.sandbox.pool.lease import PooledMember
from coding_gym.sandbox.remote import RemoteSandbox

__all__ = ["HEALTH_TIMEOUT", "MAX_FAILED_CHECKS", "Checked", "check", "check_regularly", "slots_of"]

HEALTH_TIMEOUT = 2.0
MAX_FAILED_CHECKS = 2


class Checked(Protocol):
    """A pool, as its health checks use it."""

    def check_health(self) -> None:
        """Replace dead sandboxes."""


def check(member: PooledMember, *, timeout: float) -> bool:
    """Return whether a sandbox answers; update the number of slots of a server that is not the pool's own.

    A single timeout may only mean that it is busy.
    """
    sandbox = member.sandbox
    for _ in range(MAX_FAILED_CHECKS):
        try:
            report = sandbox.health(timeout=timeout)
        except CodingGymError:
            continue
        if report["status"] == "healthy":
            if isinstance(sandbox, RemoteSandbox):
                with contextlib.suppress(ProtocolError):
                    member.slots = _slots_in(report, sandbox.address, busy=len(sandbox.open_sessions))
            return True
    return False


def slots_of(address: Address, *, busy: int, timeout: float) -> int:
    """Return the number of sessions that a server admits, without those of other clients.

    Args:
        address: The server.
        busy: Number of its open sessions that belong to the pool.
        timeout: Timeout in seconds.

    Raises:
        TransportError: If it does not answer in time.
        ProtocolError: If it does not report its sessions.
    """
    return _slots_in(get_json(address, "/health", timeout=timeout), address, busy=busy)


def _slots_in(report: Any, address: Address, *, busy: int) -> int:
    try:
        return int(report["max_sessions"]) - max(int(report["active_sessions"]) - busy, 0)
    except (KeyError, TypeError):
        message = f"{address} does not report its number of sessions: update coding_gym there"
        raise ProtocolError(message) from None


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
