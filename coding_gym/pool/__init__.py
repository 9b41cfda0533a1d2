"""Warm sandboxes for many environments."""

from __future__ import annotations

from coding_gym.pool.sandbox_pool import Lease, SandboxPool
from coding_gym.pool.slot import make_slot, resolve_config
from coding_gym.pool.stats import PoolStats

__all__ = ["Lease", "PoolStats", "SandboxPool", "make_slot", "resolve_config"]
