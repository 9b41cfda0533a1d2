from __future__ import annotations

import asyncio
import threading
import time
from contextlib import ExitStack, closing

import pytest

from coding_gym import AsyncCodingEnv, CodingEnv
from coding_gym.datasets import collect
from coding_gym.errors import ConfigurationError, PoolTimeoutError
from coding_gym.tasks import load_suite
from plugins.ray.tests.conftest import HOST, PLACES
from tests.support.requirements import import_extra
from tests.support.timing import eventually, promptly

ray = import_extra("ray")

from coding_gym_ray import RayGrader, RayPool  # noqa: E402 - requires the extra

ENV = {"screen": None, "step_timeout": 20}
SLOTS = 2 * PLACES


@pytest.fixture(scope="module")
def pool(cluster):
    cluster.set_nodes(2)
    with RayPool(**HOST) as pool:
        yield pool


def test_start_waits_until_the_pool_knows_all_hosts(cluster, monkeypatch):
    on_hosts = RayPool.on_hosts

    def learn_late(pool, servers):
        time.sleep(0.5)
        on_hosts(pool, servers)

    monkeypatch.setattr(RayPool, "on_hosts", learn_late)
    cluster.set_nodes(2)
    with RayPool(**HOST) as pool:
        assert sorted(pool.hosts.values()) == [PLACES, PLACES]


def test_each_node_has_a_host_with_its_places(pool):
    assert sorted(pool.hosts.values()) == [PLACES, PLACES]
    assert (pool.capacity, pool.stats.sandboxes, pool.stats.idle, pool.stats.busy) == (SLOTS, 2, SLOTS, 0)


def test_episodes_of_asynchronous_environments_share_the_places(pool):
    async def episode(number):
        async with AsyncCodingEnv(pool=pool, **ENV) as env:
            await env.reset(seed=number)
            await env.step(f"x = {number}")
            observation, *_ = await env.step("import time; time.sleep(0.05); print(x)")
            return int(observation["stdout"])

    async def main():
        return await asyncio.gather(*map(episode, range(3 * SLOTS)))

    assert asyncio.run(main()) == list(range(3 * SLOTS))
    assert pool.stats.waits > 0
    assert eventually(lambda: pool.stats.busy == 0)


def test_copies_in_tasks_use_the_same_hosts(pool):
    @ray.remote(num_cpus=0)
    def rollout(pool):
        with closing(pool), closing(CodingEnv(pool=pool, **ENV)) as env:
            env.reset(seed=1)
            return env.step("print(6 * 7)")[0]["stdout"], pool.capacity

    assert ray.get(rollout.remote(pool), timeout=60) == ("42\n", SLOTS)
    assert pool.stats.sandboxes == 2
    with closing(CodingEnv(pool=pool, **ENV)) as env:
        env.reset()


def test_callers_wait_in_order_and_not_longer_than_their_deadline(pool):
    order = []
    threads = []
    with ExitStack() as leases:
        taken = [leases.enter_context(pool.acquire()) for _ in range(SLOTS)]
        assert pool.acquire_free() is None
        with promptly(after=0.3), pytest.raises(PoolTimeoutError):
            pool.acquire(timeout=0.3)

        def wait(number):
            taken.append(pool.acquire(timeout=20))
            order.append(number)

        for number in range(5):
            threads.append(threading.Thread(target=wait, args=(number,)))
            threads[-1].start()
            assert eventually(lambda number=number: pool.stats.waiting == number + 1)
        for number in range(5):
            taken.pop(0).release()
            assert eventually(lambda number=number: len(order) == number + 1)
    for thread in threads:
        thread.join(20)
    for lease in taken:
        lease.release()
    assert order == list(range(5))


def test_grader_keeps_the_order_of_submissions(pool):
    tasks = list(load_suite("basics"))[:4]
    submissions = [(task, task.reference if number % 2 else "") for number, task in enumerate(tasks * 3)]
    with closing(RayGrader(pool=pool)) as grader:
        assert grader.workers == SLOTS
        verdicts = list(grader.grade_many(iter(submissions)))
    assert [verdict.task_id for verdict in verdicts] == [task.id for task, _ in submissions]
    assert [verdict.outcome.value == "passed" for verdict in verdicts] == [bool(number % 2) for number in range(12)]


def test_datasets_are_collected_in_order(pool, tmp_path):
    dataset = collect("CodingEnv-v0", ["print(1)"], 2 * SLOTS, seed=3, path=tmp_path / "data", pool=pool, env_options=ENV)
    assert [episode.index for episode in dataset] == list(range(2 * SLOTS))
    assert {episode.steps[1].observation["stdout"] for episode in dataset} == {"1\n"}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"base_url": "a:1", "provider": "remote"}, "servers that run already"),
        ({"places": 0}, "places"),
        ({"size": 2}, "Unknown option 'size'"),
    ],
)
def test_options_are_checked(options, expected):
    with pytest.raises(ConfigurationError, match=expected):
        RayPool(**options)
