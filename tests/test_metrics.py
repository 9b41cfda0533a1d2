"""Metrics of pools."""

from __future__ import annotations

import gc
import threading

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from coding_gym import CodingEnv, SandboxPool
from coding_gym.errors import ConfigurationError, PoolTimeoutError, ProviderError, SandboxStartError
from coding_gym.metrics import PoolCollector, serve_metrics
from coding_gym.sandbox import pool as pool_state
from tests.support.metrics import scrape
from tests.support.sandbox_faults import kill_sandbox
from tests.support.timing import eventually

FAST = {"provider": "local", "preload": (), "spare_workers": 0}


def registry_of(pools):
    registry = CollectorRegistry()
    registry.register(PoolCollector(pools))
    return registry


def value(registry, name, **labels):
    return registry.get_sample_value(f"coding_gym_pool_{name}", {"pool": "default", **labels})


def test_metrics_follow_the_pool():
    with SandboxPool(size=1, max_episodes=2, **FAST) as pool:
        registry = registry_of(pool)
        assert value(registry, "sandboxes") == value(registry, "sandboxes_wanted") == value(registry, "started_total") == 1
        assert value(registry, "start_duration_seconds_count") == 1
        assert value(registry, "start_duration_seconds_sum") > 0
        lease = pool.acquire()
        assert value(registry, "places", state="busy") == 1
        assert value(registry, "places", state="idle") == 0
        assert value(registry, "waits_total") == 0
        with pytest.raises(PoolTimeoutError):
            pool.acquire(timeout=0.1)
        assert value(registry, "waits_total") == value(registry, "timeouts_total") == 1
        waiter = threading.Thread(target=lambda: pool.acquire(timeout=30).release())
        waiter.start()
        assert eventually(lambda: value(registry, "waiting") == 1)
        lease.release()
        waiter.join()
        assert value(registry, "waiting") == 0
        assert value(registry, "waits_total") == value(registry, "wait_seconds_count") == 2
        assert value(registry, "wait_seconds_sum") > 0.1
        assert value(registry, "episodes_total") == 2
        assert eventually(lambda: value(registry, "recycled_total") == 1)
        assert eventually(lambda: value(registry, "started_total") == 2)


def test_lost_sandboxes_are_counted():
    with SandboxPool(size=1, **FAST) as pool:
        registry = registry_of(pool)
        env = CodingEnv(pool=pool, screen=None)
        env.reset()
        kill_sandbox(env.sandbox)
        *_, truncated, info = env.step("1")
        assert (truncated, info["outcome"]) == (True, "infrastructure")
        env.reset()
        assert value(registry, "lost_total") == 1
        env.close()


def test_failed_starts_are_counted(monkeypatch):
    def fail(config):
        message = "no engine"
        raise SandboxStartError(message)

    monkeypatch.setattr(pool_state, "start_sandbox", fail)
    pool = SandboxPool(size=1, **FAST)
    registry = registry_of(pool)
    with pytest.raises(ProviderError):
        pool.start()
    assert value(registry, "failed_total") >= 1
    assert value(registry, "started_total") == value(registry, "start_duration_seconds_count") == 0
    pool.close()


def test_pools_have_names_and_are_not_kept_alive():
    first, second = SandboxPool(size=1, **FAST), SandboxPool(size=2, **FAST)
    registry = registry_of({"train": first, "eval": second})
    assert value(registry, "sandboxes_wanted", pool="train") == 1
    assert value(registry, "sandboxes_wanted", pool="eval") == 2
    assert value(registry, "places", pool="eval", state="idle") == 0
    second.close()
    assert value(registry, "places", pool="eval", state="idle") == 0
    del second
    gc.collect()
    assert value(registry, "sandboxes_wanted", pool="eval") is None
    assert b"train" in generate_latest(registry)
    first.close()


def test_metrics_are_served():
    pool = SandboxPool(size=3, **FAST)
    with serve_metrics(pool, port=0) as server:
        scraped = scrape(f"http://127.0.0.1:{server.port}")
        assert scraped.value("coding_gym_pool_sandboxes_wanted") == 3
        assert scraped.value("process_resident_memory_bytes") > 1 << 20
        with pytest.raises(ConfigurationError, match="another port="):
            serve_metrics(pool, port=server.port)
    server.close()
    pool.close()


@pytest.mark.parametrize("pools", [None, "pool", {"train": None}, [1]])
def test_other_things_are_refused(pools):
    with pytest.raises(ConfigurationError, match="Expected a SandboxPool, or a mapping"):
        PoolCollector(pools)
