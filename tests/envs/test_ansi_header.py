"""``render_mode="ansi"`` shows a header after the first reset, in every kind of environment."""

from __future__ import annotations

import asyncio
from contextlib import closing

import gymnasium as gym
import pytest

from coding_gym import AsyncCodingEnv, SandboxPool

FAST = {"render_mode": "ansi", "screen": None, "step_timeout": 2.5}
HEADER = "# CodingEnv-v0: default backend, no screen, 2.5 s per step"


@pytest.fixture(scope="module")
def pool():
    with SandboxPool(1, provider="local", preload=(), sessions=4, acquire_timeout=60) as pool:
        yield pool


def test_reset_shows_the_header(pool):
    with gym.make("CodingEnv-v0", pool=pool, **FAST) as env:
        for _ in range(2):
            env.reset(seed=1)
            assert env.render() == HEADER
            env.step("1 + 1")
            assert env.render().splitlines() == [HEADER, ">>> 1 + 1", "2"]


def test_async_reset_shows_the_header(pool):
    async def main():
        env = AsyncCodingEnv(pool=pool, backend="notebook", **FAST)
        await env.reset(seed=1)
        assert env.render() == HEADER.replace("default", "notebook")
        await env.aclose()

    asyncio.run(main())


def test_vector_reset_shows_the_headers(pool):
    with closing(gym.make_vec("CodingEnv-v0", num_envs=2, pool=pool, **FAST)) as envs:
        envs.reset(seed=1)
        assert envs.render() == (HEADER, HEADER)


def test_header_names_the_task(pool):
    with gym.make("CodingTask-v0", suite="basics", pool=pool, **FAST) as env:
        env.reset(options={"task_id": env.unwrapped.suite.ids[0]})
        assert env.render() == HEADER.replace("CodingEnv", "CodingTask") + f", task {env.unwrapped.suite.ids[0]}"
