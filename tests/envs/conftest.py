"""Environments that tests of snapshots and replays share."""

from __future__ import annotations

from contextlib import closing

import gymnasium as gym
import pytest

from tests.support.environments import OPTIONS


@pytest.fixture(scope="module")
def pooled_env(pool):
    with closing(gym.make("CodingEnv-v0", pool=pool, render_mode="ansi", **OPTIONS).unwrapped) as env:
        yield env


@pytest.fixture
def env(pooled_env):
    """Environment in a new episode."""
    pooled_env.reset(seed=1)
    return pooled_env


@pytest.fixture(scope="module")
def vector_env(pool):
    with closing(gym.make_vec("CodingEnv-v0", num_envs=2, pool=pool, **OPTIONS)) as envs:
        yield envs
