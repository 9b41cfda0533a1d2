"""Losses after a sandbox, a host or a node is killed, which are soon noticed and made up for."""

from __future__ import annotations

import asyncio
import threading
from contextlib import closing

import numpy as np
import pytest

from coding_gym import AsyncCodingEnv
from coding_gym.datasets import collect
from coding_gym.tasks import load_suite
from plugins.ray.tests.conftest import HOST, PLACES
from tests.support.requirements import import_extra
from tests.support.sandbox_faults import is_gone
from tests.support.timing import eventually, promptly

import_extra("ray")

from coding_gym_ray import RayGrader, RayPool, RayVectorEnv  # noqa: E402 - requires the extra

ENV = {"screen": None, "step_timeout": 60}
KINDS = ["sandbox", "host", "node"]


@pytest.fixture
def pool(two_nodes):
    # Nothing waits that long.
    with RayPool(acquire_timeout=60, **HOST) as pool:
        yield pool


@pytest.mark.parametrize("kind", KINDS)
def test_lost_environments_are_truncated_and_the_others_continue(pool, kill, descendants, kind):
    with closing(RayVectorEnv(2 * PLACES, pool=pool, **ENV)) as envs:
        envs.reset(seed=1)
        envs.step(["x = 0"] * envs.num_envs)
        victim = next(iter(pool.hosts))
        hit = [pool._nodes[slot.sandbox.address.url] == victim for slot in envs._slots]
        processes = descendants(pool, victim)
        steps = 0

        def step():
            nonlocal steps
            with promptly():
                observations, _, _, truncated, infos = envs.step(["x += 1; print(x)"] * envs.num_envs)
            steps += 1
            assert not truncated[~np.array(hit)].any()
            assert [text for text, is_hit in zip(observations["stdout"], hit, strict=True) if not is_hit] == [
                f"{steps}\n"
            ] * PLACES
            if truncated.any():
                # Lost environments may continue one after another.
                assert truncated.tolist() == infos["lost"].tolist()
                assert set(infos["outcome"][truncated]) == {"infrastructure"}
            return truncated.any()

        kill(kind, pool, victim)
        assert eventually(step)
        if kind == "sandbox":
            assert eventually(lambda: not step())
        else:
            while steps < 6:
                step()
            assert eventually(lambda: all(map(is_gone, processes)))


@pytest.mark.parametrize("kind", KINDS)
def test_lost_environments_continue_elsewhere_if_there_is_room(pool, kill, kind):
    with closing(RayVectorEnv(PLACES, pool=pool, **ENV)) as envs:
        envs.reset(seed=1)
        victim = pool._nodes[envs._slots[0].sandbox.address.url]
        kill(kind, pool, victim)
        assert eventually(lambda: envs.step(["1"] * PLACES)[3].any())
        assert eventually(lambda: not envs.step(["1"] * PLACES)[3].any())


@pytest.mark.parametrize("kind", KINDS)
def test_asynchronous_episodes_end_truncated_and_begin_again(pool, kill, kind):
    async def main():
        async with AsyncCodingEnv(pool=pool, **ENV) as env:
            await env.reset(seed=1)
            victim = pool._nodes[env.sandbox.address.url]
            step = asyncio.create_task(env.step("import time; time.sleep(60)"))
            await asyncio.sleep(0.3)
            with promptly():
                await asyncio.to_thread(kill, kind, pool, victim)
                _, _, _, truncated, info = await step
            await env.reset(seed=2)
            observation, *_ = await env.step("print(1)")
            return truncated, info["outcome"], info["lost"], observation["stdout"]

    assert asyncio.run(main()) == (True, "infrastructure", True, "1\n")


@pytest.mark.parametrize("kind", KINDS)
def test_submissions_are_graded_again_elsewhere(pool, kill, kind):
    task = load_suite("basics")["basics/add_up"]
    slow = f"import time; time.sleep(0.2)\n{task.reference}"
    with closing(RayGrader(pool=pool)) as grader:
        verdicts = grader.grade_many([(task, slow)] * 30, regrade=True)
        first = next(verdicts)
        kill(kind, pool, next(iter(pool.hosts)))
        outcomes = [first.outcome.value, *(verdict.outcome.value + verdict.message for verdict in verdicts)]
    assert outcomes == ["passed"] * 30


@pytest.mark.parametrize("kind", KINDS)
def test_collections_run_lost_episodes_again(pool, kill, kind, tmp_path):
    timer = threading.Timer(0.5, kill, (kind, pool, next(iter(pool.hosts))))
    timer.start()
    code = "import time; time.sleep(0.1); print(1)"
    dataset = collect("CodingEnv-v0", [code], 24, seed=3, path=tmp_path / "data", pool=pool, env_options=ENV)
    timer.join()
    assert len(dataset) == 24
    assert {episode.steps[1].observation["stdout"] for episode in dataset} == {"1\n"}


def test_nothing_restarts_empty(pool, kill):
    with closing(RayVectorEnv(1, pool=pool, autoreset_mode="Disabled", **ENV)) as envs:
        envs.reset(seed=1)
        envs.step(["x = 1"])
        kill("host", pool, pool._nodes[envs._slots[0].sandbox.address.url])
        assert eventually(lambda: envs.step(["x"])[3].any())
