"""A pool whose sandbox is not replaced, and with it the snapshots, at a reset."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from coding_gym.sandbox.pool import SandboxPool


@pytest.fixture(scope="session")
def pool() -> Iterator[SandboxPool]:
    with SandboxPool(1, provider="local", preload=(), sessions=4, max_episodes=None, acquire_timeout=60) as pool:
        yield pool
