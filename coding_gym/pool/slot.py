"""Where an environment gets its sandbox: from a pool, or one of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from coding_gym.config import SandboxConfig, sandbox_config
from coding_gym.errors import ConfigurationError
from coding_gym.pool.sandbox_pool import Lease, SandboxPool
from coding_gym.providers import Sandbox, SandboxSlot

__all__ = ["make_slot", "resolve_config"]


class _PooledSlot(SandboxSlot):
    """A place for one sandbox that a pool provides.

    Args:
        pool: The pool.
    """

    def __init__(self, pool: SandboxPool) -> None:
        super().__init__(pool.config)
        self._pool = pool
        self._lease: Lease | None = None
        self._is_spent = False

    @property
    def sandbox(self) -> Sandbox | None:
        return self._lease.sandbox if self._lease is not None else None

    @property
    def _attempts(self) -> int:
        # Others of the pool may have died with the first.
        return self._pool.size + 1

    def obtain(self) -> Sandbox:
        if self._is_spent:
            self.close()
        if self._lease is None:
            self._lease = self._pool.acquire()
        return self._lease.sandbox

    async def obtain_async(self) -> Sandbox:
        if self._is_spent:
            self.close()
        if self._lease is None:
            self._lease = await self._pool.acquire_async()
        return self._lease.sandbox

    def give_up(self, sandbox: Sandbox) -> None:
        if self._lease is not None and self._lease.sandbox is sandbox:
            self._lease.release(dead=True)
            self._lease = None

    def begin_episode(self) -> bool:
        # The place is released when its session has ended, by the next that wants a sandbox.
        self._is_spent = self._lease is None or not self._lease.begin_episode()
        return not self._is_spent

    def close(self) -> None:
        self._is_spent = False
        if self._lease is not None:
            self._lease.release()
            self._lease = None


def make_slot(pool: SandboxPool | None, config: SandboxConfig) -> SandboxSlot:
    """Return a place for a sandbox: one of the pool's, or one of its own."""
    return SandboxSlot(config) if pool is None else _PooledSlot(pool)


def resolve_config(
    pool: SandboxPool | None,
    config: SandboxConfig | Mapping[str, Any] | None,
    sandbox_options: Mapping[str, Any],
    *,
    backend: str | None = None,
) -> SandboxConfig:
    """Return the configuration of an environment's sandbox, which is the pool's if there is one.

    Args:
        pool: The pool.
        config: The configuration, if it is given as a whole.
        sandbox_options: The configuration, if it is given as single settings.
        backend: What a sandbox of its own has ready from the start; what the configuration says if None.

    Raises:
        ConfigurationError: A setting cannot be, or there are settings beside a pool.
    """
    if pool is None:
        own = sandbox_config(config, sandbox_options)
        return own if backend is None else replace(own, backend=backend)
    if not isinstance(pool, SandboxPool):
        message = f"Expected pool= to be a SandboxPool, got {pool!r}"
        raise ConfigurationError(message)
    if config is not None or sandbox_options:
        names = ["config", *sandbox_options] if config is not None else list(sandbox_options)
        message = f"The sandboxes of a pool are configured by the pool: pass {', '.join(names)} to SandboxPool instead"
        raise ConfigurationError(message)
    return pool.config
