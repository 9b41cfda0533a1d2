"""Environments of the tests of ``send`` and ``recv``."""

from __future__ import annotations

import functools
from contextlib import ExitStack, closing, suppress

import gymnasium as gym
import pytest

from coding_gym import SandboxPool
from coding_gym.errors import CodingGymError
from tests.envs.first_come.answers import ENV, FAST
from tests.support.environments import make_envs


@pytest.fixture(scope="module")
def shared():
    """Four environments in one sandbox."""
    with closing(gym.make_vec("CodingEnv-v0", num_envs=4, **FAST)) as envs:
        yield envs


@pytest.fixture
def envs(shared):
    """Four environments in new episodes; the test may leave some of them pending."""
    shared.reset(seed=1)
    yield shared
    while shared.pending.size:
        with suppress(CodingGymError):
            shared.recv(min_ready=shared.pending.size)


@pytest.fixture(scope="module")
def roomy_pool():
    with SandboxPool(provider="local", preload=(), sessions=8, max_episodes=None, acquire_timeout=60) as pool:
        yield pool


@pytest.fixture
def make(roomy_pool):
    """Make environments in the shared pool."""
    with ExitStack() as stack:
        yield functools.partial(make_envs, stack, **{**ENV, "pool": roomy_pool})


@pytest.fixture
def make_own():
    """Make environments with dedicated sandboxes."""
    with ExitStack() as stack:
        yield functools.partial(make_envs, stack, **FAST)
