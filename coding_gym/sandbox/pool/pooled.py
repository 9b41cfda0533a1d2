"""Sandboxes of environments: leased from a pool, or dedicated."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from coding_gym._validation import CLOSED_ENVIRONMENT
from coding_gym.errors import ConfigurationError, SandboxStartError
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
        self._obtaining = threading.Lock()

    @property
    def sandbox(self) -> Sandbox | None:
        lease = self._lease
        return lease.sandbox if lease is not None else None

    @property
    def may_lose_servers(self) -> bool:
        return self._pool.uses_servers

    @property
    def _attempts(self) -> int:
        # Other sandboxes of the pool may have died together with the first.
        return self._pool.size + 1

    def obtain(self) -> Sandbox:
        # One thread at a time: a full pool has no second lease.
        with self._obtaining:
            lease = self._valid_lease()
            if lease is None:
                lease = self._keep(self._pool.acquire())
            return lease.sandbox

    def obtain_free(self) -> Sandbox | None:
        """Return the sandbox, dead or alive, or lease one that is free; None if there is none."""
        with self._obtaining:
            lease = self._valid_lease() or self._pool.acquire_free()
            return None if lease is None else self._keep(lease).sandbox

    async def obtain_async(self) -> Sandbox:
        lease = self._valid_lease()
        if lease is None:
            lease = self._keep(await self._pool.acquire_async())
        return lease.sandbox

    def give_up(self, sandbox: Sandbox) -> None:
        with self._lock:
            lease = self._lease
            if lease is None or lease.sandbox is not sandbox:
                return
            self._lease = None
        lease.release(dead=True)

    def leave_full(self) -> bool:
        if self._lease is None or not self._lease.release_full():
            return False
        self._lease = None
        return True

    def begin_episode(self) -> bool:
        # The lease is released after its session has ended, when the next sandbox is obtained.
        lease = self._lease
        self._is_retired = lease is None or not lease.begin_episode()
        return not self._is_retired

    def _valid_lease(self) -> Lease | None:
        lease = self._lease
        if self._is_retired or (lease is not None and lease.sandbox.is_closed):
            self._release()
        with self._lock:
            # Graders close their slots while they are idle.
            self._closed = False
            return self._lease

    def _keep(self, lease: Lease) -> Lease:
        with self._lock:
            if not self._closed:
                self._lease = lease
                return lease
        # It was closed while it waited.
        lease.release()
        raise SandboxStartError(CLOSED_ENVIRONMENT)

    def _release(self) -> None:
        self._is_retired = False
        with self._lock:
            lease, self._lease = self._lease, None
        if lease is not None:
            lease.release()

    def _remove(self) -> None:
        with self._lock:
            self._closed = True
        self._release()


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
