"""Warm sandboxes for many environments."""

from __future__ import annotations

from coding_gym.sandbox.pool.lease import Lease
from coding_gym.sandbox.pool.pool import SandboxPool
from coding_gym.sandbox.pool.pooled import managed_sandbox, resolve_config
from coding_gym.sandbox.pool.stats import PoolStats

__all__ = ["Lease", "PoolStats", "SandboxPool", "managed_sandbox", "resolve_config"]
