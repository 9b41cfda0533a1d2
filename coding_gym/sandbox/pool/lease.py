"""Sandboxes of a pool, and leases of their slots."""

from __future__ import annotations

import weakref
from types import TracebackType
from typing import Protocol

from coding_gym.sandbox import Sandbox

__all__ = ["Lease", "Lessor", "PooledMember"]


class Lessor(Protocol):
    """A pool, as its leases use it."""

    def begin_episode_in(self, member: PooledMember) -> bool:
        """Count an episode; return False if the sandbox is retired."""

    def return_lease(self, lease: Lease, member: PooledMember, *, dead: bool) -> None:
        """Free the slot of a lease."""


class PooledMember:
    """A sandbox of a pool."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        # Weak, so that a lost lease, for example after Ctrl-C between two lines, occupies no slot.
        self.leases: weakref.WeakSet[Lease] = weakref.WeakSet()
        self.episodes = 0

    @property
    def busy(self) -> int:
        return len(self.leases)


class Lease:
    """A slot of a pooled sandbox, occupied until ``release`` is called or the lease is garbage collected.

    As a context manager, it is released at the end of the block.
    """

    def __init__(self, pool: Lessor, member: PooledMember) -> None:
        self._pool = pool
        self._member = member
        self._released = False
        member.leases.add(self)

    @property
    def sandbox(self) -> Sandbox:
        """The sandbox, in which one session may be opened."""
        return self._member.sandbox

    def begin_episode(self) -> bool:
        """Count another episode; return False if the sandbox is retired, and the caller should acquire another lease."""
        return self._pool.begin_episode_in(self._member)

    def release(self, *, dead: bool = False) -> None:
        """Free the slot. Idempotent.

        Args:
            dead: Whether the sandbox does not answer and should be replaced.
        """
        if not self._released:
            self._released = True
            self._pool.return_lease(self, self._member, dead=dead)

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.release()
