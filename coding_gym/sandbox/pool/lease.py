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
        """Count an episode; return False if the lease should be released."""

    def return_full(self, lease: Lease, member: PooledMember) -> bool:
        """Free the slot of a lease, if other clients of the server have taken it."""

    def return_lease(self, lease: Lease, member: PooledMember, *, dead: bool) -> None:
        """Free the slot of a lease."""


class PooledMember:
    """A sandbox of a pool.

    Args:
        sandbox: The sandbox.
        slots: Number of its slots.
        base_url: Address of a server that is not the pool's own; None for a sandbox that the pool has started.

    Attributes:
        is_leaving: Whether it gets no more episodes, because it is drained or has been replaced.
    """

    def __init__(self, sandbox: Sandbox, slots: int, *, base_url: str | None = None) -> None:
        self.sandbox = sandbox
        self.slots = slots
        self.base_url = base_url
        # Weak, so that a lost lease, for example after Ctrl-C between two lines, occupies no slot.
        self.leases: weakref.WeakSet[Lease] = weakref.WeakSet()
        self.episodes = 0
        self.is_leaving = False

    @property
    def busy(self) -> int:
        return len(self.leases)

    @property
    def free(self) -> int:
        """Number of free slots; negative if other clients of a server have taken some that are leased."""
        return self.slots - self.busy


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
        """Count another episode; return False if the caller should release this lease, and acquire another one."""
        return self._pool.begin_episode_in(self._member)

    def release_full(self) -> bool:
        """Free the slot because the server has no free session; return False, keeping it, if the sandbox is the pool's own."""
        self._released = self._released or self._pool.return_full(self, self._member)
        return self._released

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
