from __future__ import annotations

import asyncio
import copy
import gc
import pickle
import random
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress

import gymnasium as gym
import numpy as np
import psutil
import pytest
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AutoresetMode

from coding_gym import CodingEnv, CodingVectorEnv, SandboxPool
from coding_gym.errors import (
    ConfigurationError,
    PoolClosedError,
    PoolTimeoutError,
    ProviderError,
    ProviderUnavailableError,
    SandboxStartError,
    TransportTimeoutError,
)
from coding_gym.sandbox import pool as pool_state
from coding_gym.sandbox.docker.cleanup import our_containers
from coding_gym.sandbox.pool import PooledSandbox
from tests.support.interruption import interrupted_after
from tests.support.sandbox_faults import is_gone, kill_sandbox, living_children, pause
from tests.support.sandbox_processes import processes_of, server_of
from tests.support.timing import eventually, promptly

FAST = {"provider": "local", "preload": ()}
ENV = {"screen": None, "step_timeout": 60}
PLACES = 4


class FakeSandbox:
    def __init__(self):
        self.alive = True
        self.late_answers = 0

    def health(self, *, timeout):
        if self.late_answers:
            self.late_answers -= 1
            message = "late"
            raise TransportTimeoutError(message)
        return {"status": "healthy" if self.alive else "unhealthy"}

    def close(self):
        self.alive = False


class Starts:
    """Replacement for ``start_sandbox`` that raises or calls what is planned, and records the fake sandboxes."""

    def __init__(self):
        self.plan = []
        self.sandboxes = []

    def __call__(self, config):
        event = self.plan.pop(0) if self.plan else None
        if isinstance(event, Exception):
            raise event
        if event is not None:
            event()
        self.sandboxes.append(FakeSandbox())
        return self.sandboxes[-1]


@pytest.fixture
def starts(monkeypatch):
    starts = Starts()
    monkeypatch.setattr(pool_state, "start_sandbox", starts)
    return starts


@pytest.fixture(scope="module")
def shared():
    with SandboxPool(sessions=PLACES, max_episodes=None, acquire_timeout=60, **FAST) as pool:
        yield pool


@pytest.fixture
def pool(shared):
    """Pool with four slots, for tests that leave all of them idle."""
    yield shared
    assert eventually(lambda: shared.stats.idle == PLACES)
    assert shared.stats.waiting == len(shared._waiting) == 0


@pytest.fixture
def make_pool():
    with ExitStack() as stack:
        yield lambda *args, **options: stack.enter_context(closing(SandboxPool(*args, **{**FAST, **options})))


@pytest.fixture
def make_env():
    with ExitStack() as stack:
        yield lambda pool, **options: stack.enter_context(closing(CodingEnv(pool=pool, **{**ENV, **options})))


def output(env, code):
    observation, _, _, truncated, info = env.step(code)
    assert (observation["stderr"], truncated, info["outcome"]) == ("", False, "ok")
    return observation["stdout"]


def figures(pool):
    return pool.stats.idle, pool.stats.busy, pool.stats.starting


def in_thread(call):
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    return thread


def run_script(script):
    return subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=90)


# Statistics


def test_constructor_starts_nothing(make_pool):
    before = psutil.Process().children(), threading.active_count()
    pool = make_pool(3)
    assert figures(pool) == (0, 0, 0)
    assert (psutil.Process().children(), threading.active_count()) == before


def test_stats_are_correct_at_every_stage(make_pool, starts):
    gate = threading.Event()
    starts.plan += [gate.wait] * 2
    pool = make_pool(2, sessions=3)
    starter = in_thread(pool.start)
    assert eventually(lambda: figures(pool) == (0, 0, 6))
    waiter = in_thread(lambda: pool.acquire().release())
    assert eventually(lambda: pool.stats.waiting == 1)
    gate.set()
    starter.join(30)
    waiter.join(30)
    assert figures(pool) == (6, 0, 0)
    stats = pool.stats
    assert (stats.started, stats.waits, stats.waiting, stats.episodes) == (2, 1, 0, 1)
    assert stats.wait_seconds > 0
    leases = [pool.acquire() for _ in range(4)]
    assert figures(pool) == (2, 4, 0)
    assert [sum(lease.sandbox is sandbox for lease in leases) for sandbox in starts.sandboxes] == [2, 2]
    for lease in leases:
        lease.release()
    assert figures(pool) == (6, 0, 0)
    pool.close()
    assert figures(pool) == (0, 0, 0)
    assert not any(sandbox.alive for sandbox in starts.sandboxes)


@pytest.mark.docker
def test_warm_start_makes_all_containers_ready(docker_engine):
    with SandboxPool(2, provider="docker", preload=()) as pool:
        assert figures(pool) == (2, 0, 0)
        with closing(CodingEnv(pool=pool, **ENV)) as env:
            env.reset()
            assert output(env, "6 * 7") == "42\n"
            assert figures(pool) == (1, 1, 0)
            container = env.sandbox.container.id
        assert figures(pool) == (2, 0, 0)
    assert container not in [container.id for container, _ in our_containers(docker_engine)]


def test_start_is_idempotent(pool):
    sandboxes = pool.stats.started
    pool.start()
    pool.start(timeout=0)
    assert pool.stats.started == sandboxes


@pytest.mark.parametrize(
    "options",
    [
        {"size": 0},
        {"size": 1.5},
        {"size": True},
        {"max_episodes": 0},
        {"max_episodes": "3"},
        {"acquire_timeout": -1},
        {"acquire_timeout": float("nan")},
        {"acquire_timeout": "5"},
        {"memory": "1g"},
        {"config": {"mem": "1g"}, "cpu": 1},
    ],
)
def test_bad_setting_is_refused(options):
    name = "memory" if "memory" in options else next(iter(options))
    with pytest.raises(ConfigurationError, match=name):
        SandboxPool(**options)


def test_failed_constructor_is_collected_silently():
    with pytest.raises(ConfigurationError):
        SandboxPool(size=0)
    gc.collect()


# Acquire and release


def test_lease_is_released_at_end_of_block(pool):
    with pool.acquire() as lease:
        assert pool.stats.busy == 1
        session = lease.sandbox.connect()
        session.close()
    with pytest.raises(KeyError), pool.acquire():
        raise KeyError
    assert pool.stats.busy == 0


def test_releasing_twice_frees_one_session(pool):
    first, second = pool.acquire(), pool.acquire()
    first.release()
    first.release()
    first.release()
    assert pool.stats.busy == 1
    second.release()
    assert pool.stats.busy == 0


def test_garbage_collected_lease_is_released(pool):
    lease = pool.acquire()
    assert pool.stats.busy == 1
    del lease
    gc.collect()
    assert pool.stats.busy == 0


def test_waiters_are_served_in_order(make_pool, starts):
    pool = make_pool()
    order = []

    def work(number):
        with pool.acquire():
            order.append(number)

    with pool.acquire():
        threads = []
        for number in range(50):
            threads.append(in_thread(lambda number=number: work(number)))
            assert eventually(lambda waiting=number + 1: pool.stats.waiting == waiting)
        assert order == []
    for thread in threads:
        thread.join(20)
    assert order == list(range(50))
    assert pool.stats.waits == 51


def test_timeout_error_reports_pool_state(pool):
    leases = [pool.acquire() for _ in range(PLACES)]
    said = r"within 0.2 s. 0 slots are idle, 4 busy, 0 starting.*size="
    with promptly(after=0.2), pytest.raises(PoolTimeoutError, match=said) as caught:
        pool.acquire(timeout=0.2)
    assert isinstance(caught.value, TimeoutError)
    assert isinstance(caught.value, ProviderError)
    with pytest.raises(PoolTimeoutError):
        pool.acquire(timeout=0)
    for lease in leases:
        lease.release()
    pool.acquire(timeout=0).release()


def test_acquire_timeout_is_pool_default(make_pool, starts):
    pool = make_pool(acquire_timeout=0.05)
    starts.plan.append(lambda: time.sleep(0.5))
    with pytest.raises(PoolTimeoutError, match="1 starting"):
        pool.acquire()
    with pytest.raises(PoolTimeoutError, match="ready"):
        pool.start(timeout=0.01)
    pool.acquire(timeout=20).release()


def test_timed_out_waiters_never_leak_slots(pool):
    rng = random.Random(0)
    got = []

    def work(timeout):
        with suppress(PoolTimeoutError), pool.acquire(timeout=timeout):
            got.append(timeout)
            time.sleep(0.001)

    async def work_async(timeout):
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                with await pool.acquire_async():
                    got.append(timeout)
                    await asyncio.sleep(0.001)

    async def work_all():
        await asyncio.gather(*(work_async(rng.random() * 0.05) for _ in range(300)))

    with ThreadPoolExecutor(40) as threads:
        other = threads.submit(asyncio.run, work_all())
        list(threads.map(work, [rng.random() * 0.02 for _ in range(500)]))
        other.result(60)
    assert got
    assert pool.stats.busy == 0


def test_hundreds_of_threads_never_exceed_capacity(make_pool, starts):
    pool = make_pool(3, sessions=2, max_episodes=7)
    most, inside, lock, done = [0], [0], threading.Lock(), []

    def work(number):
        for _ in range(5):
            with pool.acquire(timeout=60) as lease:
                with lock:
                    inside[0] += 1
                    most[0] = max(most[0], inside[0])
                assert lease.sandbox.alive
                time.sleep(0.0001)
                with lock:
                    inside[0] -= 1
        done.append(number)

    threads = [in_thread(lambda number=number: work(number)) for number in range(300)]
    for thread in threads:
        thread.join(60)
    assert len(done) == 300
    assert most[0] <= 6
    stats = pool.stats
    assert stats.episodes == 1500
    assert stats.recycled >= 1500 // 7 - 3
    assert eventually(lambda: figures(pool) == (6, 0, 0))
    assert eventually(lambda: sum(sandbox.alive for sandbox in starts.sandboxes) == 3)


# Recycling


@pytest.mark.every_provider
def test_sandbox_is_recycled_after_max_episodes(provider, make_pool, make_env):
    pool = make_pool(provider=provider, max_episodes=2)
    env = make_env(pool)
    seen = []
    for episode in range(3):
        env.reset()
        seen.append(env.sandbox)
        assert output(env, "'x' in globals(); x = 1") == ""
        if episode == 1:
            family = processes_of(env.sandbox)
    assert seen[0] is seen[1] is not seen[2]
    assert eventually(lambda: all(map(is_gone, family)))
    assert pool.stats.recycled == 1
    assert pool.stats.episodes == 3


def test_replacement_starts_during_last_episode(make_pool, starts):
    pool = make_pool(max_episodes=1)
    with pool.acquire() as lease:
        assert eventually(lambda: len(starts.sandboxes) == 2)
        assert lease.sandbox is starts.sandboxes[0]
        assert starts.sandboxes[0].alive
    with pool.acquire(timeout=30) as lease:
        assert lease.sandbox is starts.sandboxes[1]
    assert eventually(lambda: not starts.sandboxes[0].alive and not starts.sandboxes[1].alive)


def test_worn_sandbox_is_replaced_after_its_last_episode(make_pool, starts, monkeypatch):
    pool = make_pool()
    with pool.acquire() as lease:
        healthy = lease.sandbox.health
        monkeypatch.setattr(
            lease.sandbox, "health", lambda **options: healthy(**options) | {"worn": "it is old"}, raising=False
        )
        pool.check_health()
        assert eventually(lambda: len(starts.sandboxes) == 2)
        assert starts.sandboxes[0].alive
    assert eventually(lambda: not starts.sandboxes[0].alive)
    with pool.acquire(timeout=30) as lease:
        assert lease.sandbox is starts.sandboxes[1]
    assert (pool.stats.recycled, pool.stats.lost) == (1, 0)


def test_pool_never_exceeds_capacity_during_recycling(make_pool, starts):
    pool = make_pool(2, sessions=2, max_episodes=1)
    leases = [pool.acquire(timeout=30) for _ in range(4)]
    assert eventually(lambda: not pool.stats.starting)
    assert figures(pool) == (0, 4, 0)
    with pytest.raises(PoolTimeoutError, match="0 slots are idle, 4 busy"):
        pool.acquire(timeout=0.1)
    leases.pop().release()
    pool.acquire(timeout=30).release()
    for lease in leases:
        lease.release()
    assert eventually(lambda: figures(pool) == (4, 0, 0))


@pytest.mark.parametrize(("max_episodes", "places"), [(1, 2), (3, 4)])
def test_environments_on_exhausted_sandbox_never_block_each_other(make_pool, make_env, max_episodes, places):
    pool = make_pool(sessions=places, max_episodes=max_episodes, acquire_timeout=40)
    envs = [make_env(pool) for _ in range(places)]
    episodes = 0
    for turn in (envs, envs[:1] * max_episodes, envs[::-1]):
        for env in turn:
            env.reset()
            episodes += 1
            assert output(env, "'x' not in globals()") == "True\n"
            output(env, "x = 1")
    assert [output(env, "x") for env in envs] == ["1\n"] * places
    for env in envs:
        env.close()
    assert pool.stats.episodes == episodes
    assert eventually(lambda: figures(pool) == (places, 0, 0))
    assert pool.stats.started == pool.stats.recycled + 1


# Dead sandboxes


def test_idle_sandboxes_are_kept_alive_until_they_die(make_pool):
    pool = make_pool(2, idle_timeout=2)
    pool.start()
    with pool.acquire() as lease:
        time.sleep(5)
        assert lease.sandbox.is_healthy()
    assert (pool.stats.started, pool.stats.lost) == (2, 0)
    assert all(member.sandbox.is_healthy() for member in pool._members)
    victim, other = (member.sandbox for member in pool._members)
    kill_sandbox(victim)
    assert eventually(lambda: pool.stats.lost == 1)
    assert eventually(lambda: figures(pool) == (2, 0, 0))
    sandboxes = [member.sandbox for member in pool._members]
    assert other in sandboxes
    assert victim not in sandboxes


def test_acquire_replaces_dead_sandboxes(make_pool, make_env):
    pool = make_pool(2, idle_timeout=60)
    pool.start()
    env = make_env(pool)
    for member in list(pool._members):
        kill_sandbox(member.sandbox)
    env.reset()
    assert output(env, "1") == "1\n"
    assert pool.stats.lost == 2


def test_dead_leased_sandbox_ends_its_episodes(make_pool, make_env):
    pool = make_pool(sessions=2, max_episodes=None)
    first, second = make_env(pool), make_env(pool)
    for env in (first, second):
        env.reset()
    dead = first.sandbox
    assert second.sandbox is dead
    kill_sandbox(dead)
    for env in (first, second):
        _, _, _, truncated, info = env.step("1")
        assert truncated
        assert info["outcome"] == "infrastructure"
    for env in (first, second):
        env.reset()
        assert output(env, "1") == "1\n"
    assert first.sandbox is second.sandbox is not dead
    assert pool.stats.lost == 1
    assert figures(pool) == (0, 2, 0)


def test_vector_environment_of_full_pool_survives_death_of_sandbox(make_pool):
    # Its sandbox is replaced in the background and requested by the reset at the same time.
    pool = make_pool(sessions=2, acquire_timeout=30)
    with closing(gym.make_vec("CodingEnv-v0", num_envs=2, pool=pool, **ENV)) as envs:
        for seed in range(3):
            envs.reset(seed=seed)
            kill_sandbox(envs.envs[0].sandbox)
            assert envs.step(["1"] * 2)[3].all()
            assert not envs.step(["1"] * 2)[3].any()
            assert envs.step(["1"] * 2)[0]["stdout"] == ("1\n",) * 2
            assert pool.stats.busy == 2


@pytest.mark.parametrize(("late_answers", "lost"), [(1, 0), (2, 1)])
def test_two_late_health_answers_replace_sandbox(make_pool, starts, late_answers, lost):
    pool = make_pool(1)
    pool.start()
    starts.sandboxes[0].late_answers = late_answers
    pool.check_health()
    assert eventually(lambda: figures(pool) == (1, 0, 0))
    assert pool.stats.lost == lost


@pytest.mark.docker
def test_only_paused_container_is_replaced(docker_engine):
    with SandboxPool(2, provider="docker", preload=(), idle_timeout=4) as pool:
        paused, other = (member.sandbox for member in pool._members)
        pause(paused.container)
        assert eventually(lambda: pool.stats.lost == 1)
        assert eventually(lambda: figures(pool) == (2, 0, 0))
        assert other in [member.sandbox for member in pool._members]
        assert eventually(lambda: paused.container.id not in [container.id for container, _ in our_containers(docker_engine)])


# Failed starts


def test_start_failure_is_raised_for_longest_waiter(make_pool, starts):
    starts.plan += [SandboxStartError("first"), SandboxStartError("second")]
    pool = make_pool()
    for message in ("first", "second"):
        with pytest.raises(SandboxStartError, match=message):
            pool.acquire(timeout=10)
    pool.acquire(timeout=10).release()
    assert (pool.stats.failed, pool.stats.started) == (2, 1)


def test_each_start_failure_reaches_exactly_one_waiter(make_pool, starts):
    gate = threading.Event()

    def fail():
        gate.wait()
        raise SandboxStartError("broken")

    starts.plan += [fail] * 3
    pool = make_pool()
    outcomes = []

    def work():
        try:
            with pool.acquire(timeout=30):
                outcomes.append("ok")
        except SandboxStartError:
            outcomes.append("broken")

    threads = [in_thread(work) for _ in range(5)]
    assert eventually(lambda: pool.stats.waiting == 5)
    gate.set()
    for thread in threads:
        thread.join(20)
    assert sorted(outcomes) == ["broken"] * 3 + ["ok"] * 2


def test_failed_start_is_retried_in_background(make_pool, starts, caplog):
    starts.plan += [SandboxStartError("for now")] * 2
    pool = make_pool(idle_timeout=1)
    with pytest.raises(SandboxStartError, match="for now"):
        pool.start()
    assert eventually(lambda: figures(pool) == (1, 0, 0))
    assert pool.stats.failed == 2
    assert "for now" in caplog.text


def test_missing_engine_is_reported_at_once(monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent")
    with closing(SandboxPool(2, provider="docker")) as pool:
        for take in (pool.start, pool.acquire, lambda: asyncio.run(pool.acquire_async())):
            with pytest.raises(ProviderUnavailableError, match="nonexistent"):
                take()
    with pytest.raises(ProviderUnavailableError, match="nonexistent"), SandboxPool(2, provider="docker"):
        pass


# Close


def refused(call, refusals):
    try:
        call()
    except PoolClosedError as error:
        refusals.append(error)


def test_close_during_start_refuses_waiters(make_pool, starts):
    gate = threading.Event()
    starts.plan += [gate.wait] * 20
    pool = make_pool(20)
    refusals = []
    threads = [in_thread(lambda call=call: refused(call, refusals)) for call in (pool.start, pool.acquire)]
    assert eventually(lambda: pool.stats.waiting == 1)
    closer = in_thread(pool.close)
    for thread in threads:
        thread.join(30)
    assert len(refusals) == 2
    gate.set()
    closer.join(30)
    assert len(starts.sandboxes) < 20
    assert not any(sandbox.alive for sandbox in starts.sandboxes)
    assert figures(pool) == (0, 0, 0)


def test_close_during_start_leaves_no_processes(make_pool):
    pool = make_pool(2)
    before = living_children()
    refusals = []
    starter = in_thread(lambda: refused(pool.start, refusals))
    assert eventually(lambda: living_children() - before)
    pool.close()
    starter.join(30)
    assert len(refusals) == 1
    assert eventually(lambda: living_children() <= before)


def test_close_with_leased_sessions_ends_them(make_pool, make_env):
    pool = make_pool(sessions=2)
    env = make_env(pool)
    env.reset()
    lease = pool.acquire()
    server = server_of(lease.sandbox)
    closer = in_thread(pool.close)
    closer.join(20)
    pool.close()
    assert is_gone(server)
    assert env.step("1")[4]["outcome"] == "infrastructure"
    for take in (env.reset, pool.acquire, pool.start, lambda: asyncio.run(pool.acquire_async())):
        with pytest.raises(PoolClosedError, match="closed"):
            take()
    lease.release()
    env.close()


def test_error_in_block_closes_pool():
    before = living_children()
    with pytest.raises(KeyError), SandboxPool(**FAST):
        raise KeyError
    assert eventually(lambda: living_children() <= before)


def test_close_is_thread_safe(make_pool):
    pool = make_pool(2)
    pool.start()
    servers = [server_of(member.sandbox) for member in pool._members]
    threads = [in_thread(pool.close) for _ in range(2)]
    for thread in threads:
        thread.join(20)
    assert eventually(lambda: all(map(is_gone, servers)))


# Ctrl-C


def test_close_during_acquire_leaks_no_slot(pool):
    leases = [pool.acquire() for _ in range(PLACES)]
    sandbox = PooledSandbox(pool, pool.config)
    errors = []

    def obtain():
        try:
            sandbox.obtain()
        except SandboxStartError as error:
            errors.append(error)

    thread = in_thread(obtain)
    assert eventually(lambda: pool.stats.waiting == 1)
    sandbox.close()
    for lease in leases:
        lease.release()
    thread.join(30)
    assert len(errors) == 1
    assert sandbox.sandbox is None


@pytest.mark.parametrize("delay", [0.001 * 1.5**step for step in range(12)])
def test_ctrl_c_during_acquire_and_release_leaks_nothing(pool, delay):
    def work():
        while True:
            lease = pool.acquire()
            lease.begin_episode()
            lease.release()

    while not interrupted_after(delay, work):
        pass
    assert pool.stats.busy == 0
    in_thread(lambda: pool.acquire(timeout=30).release()).join(30)


def test_ctrl_c_ends_waiting_acquire(pool):
    leases = [pool.acquire() for _ in range(PLACES)]
    assert interrupted_after(0.2, pool.acquire)
    assert pool.stats.waiting == 0
    for lease in leases:
        lease.release()


@pytest.mark.parametrize("delay", [0.05, 0.2])
def test_ctrl_c_during_start_keeps_pool_usable(make_pool, make_env, delay):
    before = living_children()
    pool = make_pool(2, start_timeout=30)
    assert interrupted_after(delay, lambda: (pool.start(), time.sleep(10)))
    env = make_env(pool)
    env.reset()
    assert output(env, "1") == "1\n"
    env.close()
    assert eventually(lambda: figures(pool) == (2, 0, 0))
    pool.close()
    assert eventually(lambda: living_children() <= before)


# Processes


def test_forked_process_cannot_use_or_harm_pool():
    process = run_script("""
        import gc, os, sys
        import gymnasium as gym, coding_gym
        from coding_gym import SandboxPool
        from coding_gym.errors import ConfigurationError
        pool = SandboxPool(sessions=2, provider="local", preload=())
        env = gym.make("CodingEnv-v0", pool=pool)
        env.reset()
        env.step("x = 41")
        lease = pool.acquire()
        for way in ("exit", "close", "del", "use", "locked"):
            if way == "locked":
                pool._lock.acquire()
            pid = os.fork()
            if pid == 0:
                if way == "use":
                    for take in (pool.acquire, pool.start):
                        try:
                            take()
                        except ConfigurationError as error:
                            assert "fork" in str(error)
                        else:
                            os._exit(3)
                elif way == "close":
                    env.close()
                    lease.release()
                    pool.close()
                elif way == "del":
                    del env, pool, lease
                    gc.collect()
                else:
                    lease.release()
                sys.exit(0)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, way
            assert env.step("x + 1")[0]["stdout"] == "42\\n", way
            assert pool.stats.busy == 2
        pool._lock.release()
        env.close()
        pool.close()
        print("fine")
    """)
    assert (process.stdout, process.stderr) == ("fine\n", "")


def test_pickling_is_refused_and_copies_share_pool(pool):
    for thing in (pool, CodingEnv(pool=pool)):
        with pytest.raises(TypeError, match="SandboxPool belongs to the process that created it"):
            pickle.dumps(thing)
    assert copy.deepcopy(pool) is pool
    env = CodingEnv(pool=pool, **ENV)
    with closing(copy.deepcopy(env)) as again, closing(env):
        for each in (env, again):
            each.reset()
            assert output(each, "1") == "1\n"
        assert env.sandbox is again.sandbox
        assert pool.stats.busy == 2


def test_garbage_collected_pool_ends_its_sandboxes():
    pool = SandboxPool(2, **FAST)
    pool.start()
    servers = [server_of(member.sandbox) for member in pool._members]
    del pool
    gc.collect()
    assert eventually(lambda: all(map(is_gone, servers)))


def test_environment_keeps_pool_alive():
    env = CodingEnv(pool=SandboxPool(**FAST), **ENV)
    env.reset()
    gc.collect()
    server = server_of(env.sandbox)
    assert output(env, "1") == "1\n"
    del env
    gc.collect()
    assert eventually(lambda: is_gone(server))


EXIT = """
    import os, threading
    from coding_gym import CodingEnv, SandboxPool
    pool = SandboxPool({size}, sessions=2, provider={provider!r}, preload=(), idle_timeout=3)
    pool.start()
    env, other = CodingEnv(pool=pool, screen=None), pool.acquire()
    env.reset()
    print(os.getpid(), *(member.sandbox._process.pid for member in pool._members if {provider!r} == "local"), flush=True)
    {end}
"""


@pytest.mark.every_provider
def test_process_exit_leaves_no_sandboxes(provider, request):
    ends = ("", "threading.Thread(target=pool.acquire, daemon=True).start(); 1 / 0", "os.kill(os.getpid(), 9)")
    size = 1 if provider == "docker" else 2
    with ThreadPoolExecutor(len(ends)) as threads:
        processes = list(threads.map(lambda end: run_script(EXIT.format(size=size, provider=provider, end=end)), ends))
    assert [process.stderr.count("Error") for process in processes] == [0, 1, 0], [process.stderr for process in processes]
    owners, servers = set(), []
    for process in processes:
        owner, *pids = map(int, process.stdout.split())
        owners.add(owner)
        servers += pids
    assert len(owners) == len(ends)
    assert eventually(lambda: all(map(is_gone, servers)), 60)
    if provider == "docker":
        engine = request.getfixturevalue("docker_engine")
        assert eventually(lambda: not any(whose.pid in owners for _, whose in our_containers(engine)), 60)


# Environments


def test_sandbox_settings_with_pool_are_refused(pool):
    for make in (CodingEnv, CodingVectorEnv):
        with pytest.raises(ConfigurationError, match=r"mem, cpu.*SandboxPool"):
            make(pool=pool, mem="1g", cpu=1)
        with pytest.raises(ConfigurationError, match="config"):
            make(pool=pool, config={"mem": "1g"})
        with pytest.raises(ConfigurationError, match="Expected pool="):
            make(pool="local")
    assert CodingEnv(pool=pool).config is pool.config


def test_results_equal_environment_without_pool(pool):
    actions = [
        "import random, numpy; random.random(), numpy.random.rand()",
        "1 / 0",
        "hash('x')",
        "import os; os.listdir()",
        "x = 1",
    ]
    with (
        closing(gym.make("CodingEnv-v0", pool=pool, **ENV)) as ours,
        closing(gym.make("CodingEnv-v0", **FAST, **ENV)) as theirs,
    ):
        assert ours.observation_space == theirs.observation_space
        for env in (ours, theirs):
            env.reset(seed=1)
        for seed in (None, None, 3, 3):
            assert data_equivalence(ours.reset(seed=seed), theirs.reset(seed=seed), exact=True)
            for action in actions:
                assert data_equivalence(ours.step(action), theirs.step(action), exact=True), action


def test_closed_environments_release_their_sessions(pool, make_env):
    for _ in range(3):
        envs = [make_env(pool) for _ in range(PLACES)]
        for env in envs:
            env.reset()
        assert pool.stats.idle == 0
        with pytest.raises(PoolTimeoutError):
            pool.acquire(timeout=0.05)
        for number, env in enumerate(envs):
            assert output(env, f"{number}") == f"{number}\n"
            env.close()
            env.close()
        assert pool.stats.idle == PLACES


def test_environment_reset_times_out_on_full_pool(make_pool, make_env):
    pool = make_pool(acquire_timeout=0.2)
    pool.start()
    first, second = make_env(pool), make_env(pool)
    first.reset()
    for _ in range(2):
        with pytest.raises(PoolTimeoutError, match="1 busy"):
            second.reset()
    first.close()
    second.reset()
    assert output(second, "1") == "1\n"


def test_vector_environment_requires_sufficient_capacity(pool):
    with pytest.raises(ConfigurationError, match=r"num_envs=5 .* 4 slots"):
        gym.make_vec("CodingEnv-v0", num_envs=PLACES + 1, pool=pool, **ENV)
    with closing(gym.make_vec("CodingEnv-v0", num_envs=PLACES, pool=pool, **ENV)) as envs:
        envs.reset(seed=1)
        assert pool.stats.idle == 0
        assert envs.step([str(number) for number in range(PLACES)])[0]["stdout"] == ("0\n", "1\n", "2\n", "3\n")
    assert pool.stats.idle == PLACES


@pytest.mark.parametrize(
    ("mode", "max_episodes"), [(AutoresetMode.NEXT_STEP, None), (AutoresetMode.SAME_STEP, 3), (AutoresetMode.DISABLED, 3)]
)
def test_results_equal_vector_environment_without_pool(make_pool, mode, max_episodes):
    settings = {**ENV, "num_envs": 3, "max_episode_steps": 2, "autoreset_mode": mode}
    pool = make_pool(2, sessions=2, max_episodes=max_episodes, acquire_timeout=30)
    with (
        closing(gym.make_vec("CodingEnv-v0", pool=pool, **settings)) as ours,
        closing(CodingVectorEnv(**FAST, **settings)) as theirs,
    ):
        assert data_equivalence(ours.reset(seed=5), theirs.reset(seed=5))
        for number in range(6):
            actions = ("import random; random.random()", "x = globals().get('x', 0) + 1; x", f"{number}")
            mine, other = ours.step(actions), theirs.step(actions)
            assert data_equivalence(mine, other), number
            if mode is AutoresetMode.DISABLED and mine[3].any():
                options = {"reset_mask": np.copy(mine[3])}
                assert data_equivalence(ours.reset(options=dict(options)), theirs.reset(options=dict(options)))
    assert pool.stats.busy == 0


LITTER = """
import os, pathlib, subprocess, sys, threading
secret = 1
pathlib.Path("left").write_text("mine")
for directory in ("/tmp", "/dev/shm"):
    try:
        pathlib.Path(directory, "psm_left").write_text("mine")
    except OSError:
        pass
os.environ["LEFT"] = "mine"
sys.modules["left"] = sys
_ = subprocess.Popen(["sleep", "97"], start_new_session=True)
if os.fork() == 0:
    os.setsid()
    while True:
        try:
            open("/tmp/psm_again", "w").close()
        except OSError:
            pass
"""
SEARCH = """
import os, pathlib, sys
found = [name for name in ("secret", "left") if name in globals()]
found += [str(path) for path in pathlib.Path(".").iterdir()]
for directory in ("/tmp", "/dev/shm"):
    found += [str(path) for path in pathlib.Path(directory).glob("psm_*")]
found += [name for name in ("LEFT",) if name in os.environ] + [name for name in ("left",) if name in sys.modules]
for process in pathlib.Path("/proc").glob("[0-9]*"):
    try:
        if b"97" in (process / "cmdline").read_bytes().split(b"\\0"):
            found.append(str(process))
    except OSError:
        pass
print(found)
"""


def finds_only_processes(env):
    found = output(env, SEARCH)
    assert found == "[]\n" or "/proc" in found, found
    return found


@pytest.mark.every_provider
def test_episodes_leave_nothing_for_next_session(provider, make_pool):
    pool = make_pool(provider=provider, max_episodes=None)
    seen = set()
    for _ in range(6):
        with closing(CodingEnv(pool=pool, **ENV)) as env:
            env.reset()
            # The processes of a closed session are killed concurrently with the start of the next one.
            assert eventually(lambda env=env: finds_only_processes(env) == "[]\n")
            output(env, LITTER)
            seen.add(env.sandbox)
    assert len(seen) == 1
