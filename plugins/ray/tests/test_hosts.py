"""Hosts of a pool: when they start and end, and who waits for them."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing

import pytest

from coding_gym import CodingEnv
from coding_gym.errors import ConfigurationError, PoolClosedError, PoolTimeoutError
from plugins.ray.tests.conftest import HOST, PLACES
from tests.support.requirements import import_extra
from tests.support.sandbox_faults import is_gone
from tests.support.timing import eventually

import_extra("ray")

from coding_gym_ray import RayPool  # noqa: E402 - requires the extra

ENV = {"screen": None, "step_timeout": 20}


def test_nodes_that_join_get_a_host_and_drained_ones_lose_theirs_after_their_episodes(cluster):
    cluster.set_nodes(1)
    with RayPool(**HOST) as pool, closing(CodingEnv(pool=pool, **ENV)) as env:
        [first] = pool.hosts
        env.reset(seed=1)
        env.step("x = 1")
        cluster.set_nodes(2)
        assert eventually(lambda: sorted(pool.hosts.values()) == [PLACES, PLACES])
        pool.drain(first)
        assert pool.hosts[first] == 0
        assert env.step("print(x)")[0]["stdout"] == "1\n"
        env.reset(seed=2)
        [url] = [url for url, node_id in pool._nodes.items() if node_id != first]
        assert env._slot.sandbox.address.url == url
        assert eventually(lambda: list(pool.hosts.values()) == [PLACES])
        with pytest.raises(ConfigurationError, match="one of"):
            pool.drain(first)


def test_demand_is_that_of_the_queue(cluster):
    cluster.set_nodes(1)
    kv = import_extra("ray.experimental.internal_kv")
    with RayPool(**HOST) as pool, ExitStack() as leases:
        for _ in range(PLACES):
            leases.enter_context(pool.acquire())

        def requested():
            return kv._internal_kv_get(b"autoscaler_resource_request") or b""

        with ThreadPoolExecutor() as threads:
            waiting = threads.submit(pool.acquire, timeout=60)
            found = eventually(lambda: requested().count(b"sandbox") == PLACES + 1)
            leases.close()
            waiting.result().release()
        assert found, requested()
        assert eventually(lambda: b"sandbox" not in requested()), requested()


def test_second_pool_waits_for_places(cluster):
    cluster.set_nodes(1)
    with RayPool(**HOST) as first:
        second = RayPool(**HOST)
        with closing(second), pytest.raises(PoolTimeoutError):
            second.acquire(timeout=2)
        first.acquire().release()


def test_start_says_which_resource_is_missing(cluster):
    cluster.set_nodes(0)
    with closing(RayPool(**HOST)) as pool, pytest.raises(PoolTimeoutError, match="ray start --address"):
        pool.start(timeout=1)


def test_error_of_hosts_is_raised(cluster):
    cluster.set_nodes(1)
    with closing(RayPool(**{**HOST, "backend": "jupyter:none"})) as pool, pytest.raises(ConfigurationError, match="none"):
        pool.start()


def test_closed_pool_ends_waiting_callers_and_hosts(cluster, descendants):
    [node] = cluster.set_nodes(1)
    pool = RayPool(**HOST)
    pool.start()
    processes = descendants(pool, node)
    env = CodingEnv(pool=pool, **ENV)
    env.reset()
    taken = [pool.acquire() for _ in range(PLACES - 1)]
    errors = []

    def wait():
        try:
            pool.acquire(timeout=30)
        except PoolClosedError as error:
            errors.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    assert eventually(lambda: pool.stats.waiting == 1)
    pool.close()
    thread.join(30)
    assert len(errors) == 1
    assert taken
    assert env.step("1")[3]
    assert eventually(lambda: all(map(is_gone, processes)))
    with pytest.raises(PoolClosedError):
        pool.acquire()
