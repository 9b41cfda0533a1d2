"""Sandboxes of environments: leased from a pool, or dedicated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from coding_gym.errors import ConfigurationError
from coding_gym.sandbox import ManagedSandbox, Sandbox
from coding_gym.sandbox.config import SandboxConfig, sandbox_config
from coding_gym.sandbox.pool.lease import Lease
from coding_gym.sandbox.pool.pool import SandboxPool

__all__ = ["managed_sandbox", "resolve_config"]


class PooledSandbox(ManagedSandbox):
    """A sandbox that is leased from a pool.

    Args:
        pool: The pool.
    """

    def __init__(self, pool: SandboxPool) -> None:
        super().__init__(pool.config)
        self._pool = pool
        self._lease: Lease | None = None
        self._is_retired = False

    @property
    def sandbox(self) -> Sandbox | None:
        return self._lease.sandbox if self._lease is not None else None

    @property
    def _attempts(self) -> int:
        # Other sandboxes of the pool may have died together with the first.
        return self._pool.size + 1

    def obtain(self) -> Sandbox:
        if self._is_retired:
            self.close()
        if self._lease is None:
            self._lease = self._pool.acquire()
        return self._lease.sandbox

    async def obtain_async(self) -> Sandbox:
        if self._is_retired:
            self.close()
        if self._lease is None:
            self._lease = await self._pool.acquire_async()
        return self._lease.sandbox

    def give_up(self, sandbox: Sandbox) -> None:
        if self._lease is not None and self._lease.sandbox is sandbox:
            self._lease.release(dead=True)
            self._lease = None

    def begin_episode(self) -> bool:
        # The lease is released after its session has ended, when the next sandbox is obtained.
        self._is_retired = self._lease is None or not self._lease.begin_episode()
        return not self._is_retired

    def close(self) -> None:
        self._is_retired = False
        if self._lease is not None:
            self._lease.release()
            self._lease = None


def managed_sandbox(pool: SandboxPool | None, config: SandboxConfig) -> ManagedSandbox:
    """Return a sandbox that is leased from the pool, or started if there is no pool."""
    return ManagedSandbox(config) if pool is None else PooledSandbox(pool)


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
        config: The complete configuration.
        sandbox_options: The configuration as single options.
        backend: Default backend of a sandbox without a pool; the configuration's if None.

    Raises:
        ConfigurationError: If an option is invalid, or combined with a pool.
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
