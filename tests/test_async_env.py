from __future__ import annotations

import asyncio
import contextlib
import gc
import subprocess
import sys
import textwrap
import time

import gymnasium as gym
import pytest
import uvloop
from gymnasium.utils.env_checker import data_equivalence
from running_server import RunningServer
from sandbox_faults import eventually, is_gone, kill_sandbox, living_children
from sandbox_processes import server_of

from coding_gym import AsyncCodingEnv, CodingEnv, SandboxPool
from coding_gym.errors import (
    CapacityError,
    ConfigurationError,
    InvalidActionError,
    PoolClosedError,
    PoolTimeoutError,
    ProtocolError,
    ProviderError,
    StepTimeoutError,
)
from coding_gym.providers.docker import our_containers
from coding_gym.providers.owner import Owner

FAST = {"provider": "local", "preload": ()}
ENV = {"screen": None, "step_timeout": 20}
PLACES = 4
SLEEP = "import time; time.sleep(15); print('stale')"
GIVES_IN_LATE = "import time\ntry:\n    time.sleep(15)\nexcept KeyboardInterrupt:\n    time.sleep(0.3)"
STUBBORN = """
import time
while True:
    try:
        time.sleep(15)
    except KeyboardInterrupt:
        pass
"""


@pytest.fixture(scope="module")
def shared():
    with SandboxPool(sessions=PLACES, max_episodes=None, acquire_timeout=30, **FAST) as pool:
        yield pool


@pytest.fixture
def pool(shared):
    """A pool of four places for all tests that leave them idle."""
    yield shared
    assert eventually(lambda: shared.idle == PLACES)


def run(main):
    """Run a coroutine function in a loop of its own, in which it must leave no task."""

    async def run_within():
        async with asyncio.timeout(90):
            await main()
            while len(asyncio.all_tasks()) > 1:
                await asyncio.sleep(0.01)

    asyncio.run(run_within())


async def output(env, code):
    observation, reward, terminated, truncated, info = await env.step(code)
    assert (observation["stderr"], reward, terminated, truncated, info["outcome"]) == ("", 0.0, False, False, "ok")
    return observation["stdout"]


async def cancel(coroutine, after=0.0):
    """Cancel a coroutine after a while; it must end soon."""
    task = asyncio.ensure_future(coroutine)
    await asyncio.sleep(after)
    assert task.cancel()
    started = time.monotonic()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert time.monotonic() - started < 1


async def cancel_or_finish(coroutine, after):
    """Cancel a coroutine after a while, unless it has ended: then return its result."""
    task = asyncio.ensure_future(coroutine)
    await asyncio.sleep(after)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        return await task


# What AgentFly documents, written for ours


def test_variables_persist(pool):
    async def main():
        env = AsyncCodingEnv(pool=pool, **ENV)
        await env.start()
        await env.step("x = [1, 2, 3]")
        await env.step("x.append(4)")
        assert await output(env, "print(x)") == "[1, 2, 3, 4]\n"
        assert await output(env, "import math; print(math.pi)") == "3.141592653589793\n"
        await env.aclose()

    run(main)


def test_reset_clears(pool):
    async def main():
        async with AsyncCodingEnv(pool=pool, **ENV) as env:
            await env.step("x = 1")
            await env.reset()
            observation, *_ = await env.step("print(x)")
            assert "NameError: name 'x' is not defined" in observation["stderr"]

    run(main)


def test_an_infinite_loop_raises_and_the_next_step_works(pool):
    async def main():
        async with AsyncCodingEnv(pool=pool, on_timeout="raise", screen=None, step_timeout=0.5) as env:
            await env.step("x = 1")
            with pytest.raises(StepTimeoutError, match=r"timed out after 0.5 s; variables are kept") as caught:
                await env.step("print('so far')\nwhile True: pass")
            assert isinstance(caught.value, TimeoutError)
            assert caught.value.observation["stdout"] == "so far\n"
            assert caught.value.info == {"outcome": "timeout", "state_lost": False}
            assert await output(env, "print('Recovered!', x)") == "Recovered! 1\n"

    run(main)


def test_acquire_returns_one_that_is_ready(pool):
    async def main():
        for _ in range(2):
            env = await AsyncCodingEnv.acquire(pool, **ENV)
            assert pool.busy == 1
            assert "NameError" in (await env.step("x"))[0]["stderr"]
            assert await output(env, "x = 5; print(x)") == "5\n"
            await env.aclose()
            assert pool.busy == 0

    run(main)


def test_acquire_without_a_pool_and_the_options_of_the_constructor(docker_engine):
    async def main():
        env = await AsyncCodingEnv.acquire(cpu=1, mem="1g", start_timeout=30.0, provider="docker", preload=(), **ENV)
        limits = env.sandbox.container.attrs["HostConfig"]
        assert (limits["NanoCpus"], limits["Memory"]) == (10**9, 2**30)
        container = env.sandbox.container.id
        assert await output(env, "print('Hello')") == "Hello\n"
        await env.aclose()
        assert env.sandbox is None
        assert container not in [container.id for container, _ in our_containers(docker_engine)]

    run(main)


# The same as the environment that blocks


def test_it_equals_the_environment_that_blocks(pool):
    actions = [
        "import random, numpy; random.random(), numpy.random.rand()",
        "1 / 0",
        "x = 1",
        "x",
        "'é' * 99",
        "import sys; sys.exit(3)",
    ]

    async def main():
        settings = {"screen": (64, 48), "render_mode": "ansi", "max_output_chars": 256, "step_timeout": 20}
        theirs = CodingEnv(pool=pool, **settings)
        async with AsyncCodingEnv(pool=pool, **settings) as ours:
            assert ours.action_space == theirs.action_space
            assert ours.observation_space == theirs.observation_space
            for seed in (7, None, None, 7):
                assert data_equivalence(await ours.reset(seed=seed), theirs.reset(seed=seed), exact=True)
                for action in actions:
                    assert data_equivalence(await ours.step(action), theirs.step(action), exact=True), action
                assert ours.render() == theirs.render() != ""
            assert ours.last_timing.seconds > 0
        theirs.close()

    run(main)


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"on_timeout": "ignore"}, "on_timeout=.*observation, raise.*ignore"),
        ({"memory": "1g"}, "memory"),
        ({"screen": 5}, "screen="),
        ({"step_timeout": 0}, "step_timeout="),
        ({"config": {"mem": "1g"}, "cpu": 1}, "config="),
        ({"pool": "local"}, "pool="),
    ],
)
def test_a_wrong_option_is_refused(options, hint):
    with pytest.raises(ConfigurationError, match=hint):
        AsyncCodingEnv(**options)
    gc.collect()


def test_sandbox_settings_beside_a_pool_are_refused(pool):
    with pytest.raises(ConfigurationError, match="mem"):
        AsyncCodingEnv(pool=pool, mem="1g")


def test_bad_actions_and_steps_before_the_start(pool):
    async def main():
        env = AsyncCodingEnv(pool=pool, **ENV)
        with pytest.raises(gym.error.ResetNeeded):
            await env.step("1")
        async with env:
            await output(env, "x = 5")
            for action in (1, None, "\ud800", "x" * 100_001):
                with pytest.raises(InvalidActionError):
                    await env.step(action)
            assert await output(env, "x") == "5\n"

    run(main)


def test_a_timeout_is_an_observation_unless_told_otherwise(pool):
    async def main():
        async with AsyncCodingEnv(pool=pool, screen=None, step_timeout=0.3) as env:
            observation, _, _, truncated, info = await env.step("while True: pass")
            assert (observation["exit_code"], truncated, info["outcome"]) == (124, False, "timeout")
            assert await output(env, "1") == "1\n"

    run(main)


# Start and close


def test_starting_twice_keeps_the_episode(pool):
    async def main():
        env = AsyncCodingEnv(pool=pool, **ENV)

        async def start_and_count():
            await env.start()
            await env.step("x = globals().get('x', 0) + 1")

        await asyncio.gather(*(start_and_count() for _ in range(5)))
        assert await output(env, "x") == "5\n"
        assert pool.busy == 1
        await env.aclose()

    run(main)


def test_closing_twice_and_before_the_start_and_using_it_afterwards(pool):
    async def main():
        env = AsyncCodingEnv(pool=pool, **ENV)
        await env.aclose()
        await env.start()
        await asyncio.gather(env.aclose(), env.aclose())
        await env.aclose()
        observation, _, _, truncated, info = await env.step("1")
        assert (truncated, info["outcome"]) == (True, "infrastructure")
        assert "closed" in observation["stderr"]
        async with env:
            assert await output(env, "1") == "1\n"
            assert pool.busy == 1

    run(main)


def test_closing_in_a_step(pool):
    async def main():
        env = await AsyncCodingEnv.acquire(pool, **ENV)
        step = asyncio.create_task(env.step(SLEEP))
        await asyncio.sleep(0.2)
        await env.aclose()
        _, _, _, truncated, info = await asyncio.wait_for(step, 5)
        assert (truncated, info["outcome"]) == (True, "infrastructure")

    run(main)


@pytest.mark.parametrize("delay", [0, 0.02, 0.3])
def test_closing_in_the_start_leaves_nothing(delay):
    async def main():
        before = living_children()
        env = AsyncCodingEnv(**FAST, **ENV)
        start = asyncio.create_task(env.start())
        await asyncio.sleep(delay)
        await env.aclose()
        with contextlib.suppress(ProviderError):
            await start
            await env.aclose()
        assert env.sandbox is None
        assert living_children() <= before

    run(main)


def test_closing_while_it_waits_for_a_place(pool):
    async def main():
        leases = [pool.acquire() for _ in range(PLACES)]
        env = AsyncCodingEnv(pool=pool, **ENV)
        start = asyncio.create_task(env.start())
        while not pool.stats.waiting:
            await asyncio.sleep(0.01)
        await env.aclose()
        for lease in leases:
            lease.release()
        with pytest.raises(ProviderError, match="closed"):
            await start

    run(main)


def test_a_forgotten_one_gives_its_place_back(pool):
    async def main():
        env = await AsyncCodingEnv.acquire(pool, **ENV)
        assert pool.busy == 1
        del env
        gc.collect()
        assert pool.busy == 0
        envs = [await AsyncCodingEnv.acquire(pool, **ENV) for _ in range(PLACES)]
        await asyncio.gather(*(env.aclose() for env in envs))

    run(main)


# Cancelling


@pytest.mark.parametrize("after", [0, 0.001, 0.005, 0.02, 0.3])
def test_cancelling_a_step_interrupts_the_code_and_keeps_the_variables(pool, after):
    async def main():
        async with AsyncCodingEnv(pool=pool, **ENV) as env:
            await output(env, "x = 1")
            await cancel(env.step(SLEEP), after)
            started = time.monotonic()
            assert await output(env, "print('fresh', x)") == "fresh 1\n"
            assert time.monotonic() - started < 2

    run(main)


async def with_timeout(env):
    async with asyncio.timeout(0.3):
        await env.step(SLEEP)


async def with_wait_for(env):
    await asyncio.wait_for(env.step(SLEEP), 0.3)


async def with_group(env):
    async def fail():
        await asyncio.sleep(0.3)
        raise TimeoutError

    async with asyncio.TaskGroup() as group:
        group.create_task(env.step(SLEEP))
        group.create_task(fail())


@pytest.mark.parametrize("way", [with_timeout, with_wait_for, with_group])
def test_ways_of_cancelling(pool, way):
    async def main():
        async with AsyncCodingEnv(pool=pool, **ENV) as env:
            await output(env, "x = 1")
            started = time.monotonic()
            try:
                await way(env)
            except* TimeoutError:
                pass
            assert time.monotonic() - started < 1.5
            assert await output(env, "x") == "1\n"

    run(main)


def test_code_that_ignores_interrupts_is_killed(pool):
    async def main():
        async with AsyncCodingEnv(pool=pool, **ENV) as env:
            await output(env, "x = 1")
            await cancel(env.step(STUBBORN), 0.3)
            assert await output(env, "print('fresh', 'x' in globals())") == "fresh False\n"

    run(main)


def test_a_code_that_is_large_and_output_that_is(pool):
    async def main():
        async with AsyncCodingEnv(pool=pool, **ENV) as env:
            for code in (f"{SLEEP} #{'x' * 90_000}", "while True: print('x' * 9999)"):
                await cancel(env.step(code), 0.0)
                await cancel(env.step(code), 0.2)
                assert await output(env, "print('fresh')") == "fresh\n"

    run(main)


@pytest.mark.parametrize("again", ["step", "reset"])
def test_cancelling_while_the_last_cancelled_step_gives_in(pool, again):
    async def main():
        async with AsyncCodingEnv(pool=pool, **ENV) as env:
            await output(env, "x = 1")
            await cancel(env.step(GIVES_IN_LATE), 0.1)
            for after in (0, 0.001, 0.05):
                await cancel(env.step("x = 'never'") if again == "step" else env.reset(), after)
            assert await output(env, "x") == "1\n"

    run(main)


def test_cancelling_twice(pool):
    async def main():
        async with AsyncCodingEnv(pool=pool, **ENV) as env:
            step = asyncio.create_task(env.step(SLEEP))
            await asyncio.sleep(0.1)
            step.cancel()
            await asyncio.sleep(0)
            step.cancel()
            with pytest.raises(asyncio.CancelledError):
                await step
            assert await asyncio.wait_for(output(env, "1"), 3) == "1\n"

    run(main)


def test_cancelling_a_step_after_the_interpreter_died_unnoticed(pool):
    async def main():
        async with AsyncCodingEnv(pool=pool, **ENV) as env:
            for _ in range(3):
                await env.step("import os, threading; threading.Timer(0.05, os._exit, [3]).start()")
                await asyncio.sleep(0.3)
                await cancel(env.step(SLEEP), 0.001)
                started = time.monotonic()
                await env.step("1")
                assert time.monotonic() - started < 3

    run(main)


@pytest.mark.parametrize("after", [0, 0.001, 0.003])
def test_cancelling_a_reset(pool, after):
    async def main():
        async with AsyncCodingEnv(pool=pool, **ENV) as env:
            sandbox = env.sandbox
            await env.step("x = 1")
            await cancel_or_finish(env.reset(), after)
            assert env.sandbox is sandbox
            await env.reset()
            assert "NameError" in (await env.step("x"))[0]["stderr"]

    run(main)


@pytest.mark.parametrize("after", [0, 0.001, 0.002, 0.004, 0.008])
def test_cancelling_an_acquire_loses_no_place(pool, after):
    async def main():
        found = await asyncio.gather(*(cancel_or_finish(AsyncCodingEnv.acquire(pool, **ENV), after) for _ in range(10)))
        for env in found:
            if env is not None:
                await env.aclose()
        while pool.idle < PLACES:
            await asyncio.sleep(0.01)
        envs = [await AsyncCodingEnv.acquire(pool, **ENV) for _ in range(PLACES)]
        assert pool.idle == 0
        await asyncio.gather(*(env.aclose() for env in envs))

    run(main)


def test_cancelling_an_acquire_that_waits(pool):
    async def main():
        leases = [pool.acquire() for _ in range(PLACES)]
        await cancel(AsyncCodingEnv.acquire(pool, **ENV), 0.1)
        assert pool.stats.waiting == 0
        for lease in leases:
            lease.release()

    run(main)


@pytest.mark.parametrize("after", [0, 0.1, 0.4])
def test_cancelling_a_start_leaves_no_process(after):
    async def main():
        before = living_children()
        env = AsyncCodingEnv(**FAST, **ENV)
        await cancel_or_finish(env.__aenter__(), after)
        if env._session is None:
            assert env.sandbox is None
        await env.aclose()
        while living_children() - before:
            await asyncio.sleep(0.01)
        async with env:
            assert await output(env, "1") == "1\n"

    run(main)


@pytest.mark.docker
def test_cancelling_a_start_leaves_no_container(docker_engine):
    def ours():
        return {container.id for container, owner in our_containers(docker_engine) if owner == Owner.current()}

    async def main():
        env = AsyncCodingEnv(provider="docker", preload=(), **ENV)
        await cancel_or_finish(env.start(), 0.5)
        await env.aclose()

    before = ours()
    run(main)
    assert eventually(lambda: ours() == before)


def test_cancelling_a_step_that_waits_for_its_turn(pool):
    async def main():
        async with AsyncCodingEnv(pool=pool, **ENV) as env:
            first = asyncio.create_task(env.step("import time; time.sleep(0.5); x = 1"))
            await asyncio.sleep(0.1)
            await cancel(env.step("x = 'never'"), 0.1)
            assert (await first)[4]["outcome"] == "ok"
            assert await output(env, "x") == "1\n"

    run(main)


# Many at once


def test_steps_of_one_environment_run_one_after_the_other(pool):
    async def main():
        async with AsyncCodingEnv(pool=pool, **ENV) as env:
            await env.step("x = []")
            outputs = await asyncio.gather(*(output(env, f"x.append({number}); print(len(x))") for number in range(100)))
            assert outputs == [f"{number + 1}\n" for number in range(100)]
            assert await output(env, "x == list(range(100))") == "True\n"

    run(main)


def test_two_hundred_environments_in_one_loop():
    with SandboxPool(4, sessions=50, pids_limit=1000, acquire_timeout=60, **FAST) as pool:

        async def episode(number):
            async with AsyncCodingEnv(pool=pool, screen=None, step_timeout=60) as env:
                await ready.wait()
                for step in range(5):
                    code = f"x = globals().get('x', {number}) + 1; print(x)"
                    assert await output(env, code) == f"{number + step + 1}\n"

        async def main():
            nonlocal ready
            ready = asyncio.Barrier(200)
            await asyncio.gather(*(episode(number) for number in range(200)))

        ready = None
        run(main)
        assert pool.stats.episodes == 200
        assert pool.busy == 0


def test_steps_run_at_the_same_time(pool):
    async def main():
        envs = [await AsyncCodingEnv.acquire(pool, **ENV) for _ in range(PLACES)]
        started = time.monotonic()
        await asyncio.gather(*(env.step("import time; time.sleep(0.5)") for env in envs))
        assert time.monotonic() - started < 1.7
        await asyncio.gather(*(env.aclose() for env in envs))

    run(main)


def test_the_event_loop_goes_on_meanwhile(provider):
    stalls = []

    async def tick():
        while True:
            started = time.monotonic()
            await asyncio.sleep(0.005)
            stalls.append(time.monotonic() - started)

    async def main():
        ticker = asyncio.create_task(tick())
        env = AsyncCodingEnv(provider=provider, preload=(), **ENV)
        await env.start()
        await env.step("import time; time.sleep(0.2)")
        await env.aclose()
        ticker.cancel()

    run(main)
    assert len(stalls) > 20
    assert max(stalls) < 0.5


# Faults


def test_a_sandbox_that_dies_in_a_step(provider):
    async def main():
        async with AsyncCodingEnv(provider=provider, preload=(), **ENV) as env:
            first = env.sandbox
            step = asyncio.create_task(env.step(SLEEP))
            await asyncio.sleep(0.3)
            await asyncio.to_thread(kill_sandbox, first)
            observation, _, _, truncated, info = await asyncio.wait_for(step, 5)
            assert (truncated, info) == (True, {"outcome": "infrastructure", "state_lost": True})
            assert "sandbox failed" in observation["stderr"]
            assert (await env.step("1"))[3]
            await env.reset()
            assert env.sandbox is not first
            assert await output(env, "1") == "1\n"

    run(main)


def test_all_sandboxes_of_a_pool_die_before_they_are_wanted():
    with SandboxPool(3, idle_timeout=60, **FAST) as pool:

        async def main():
            for member in list(pool._members):
                kill_sandbox(member.sandbox)
            async with AsyncCodingEnv(pool=pool, **ENV) as env:
                assert await output(env, "1") == "1\n"

        run(main)


def test_a_spent_sandbox_is_left():
    with SandboxPool(1, max_episodes=2, **FAST) as pool:

        async def main():
            async with AsyncCodingEnv(pool=pool, **ENV) as env:
                first = server_of(env.sandbox)
                await env.reset()
                assert not is_gone(first)
                await env.reset()
                assert await output(env, "1") == "1\n"
                while not is_gone(first):
                    await asyncio.sleep(0.01)
            assert (pool.stats.recycled, pool.stats.episodes) == (1, 3)

        run(main)


def test_a_pool_without_a_place_and_a_closed_one(pool):
    async def main():
        narrow = SandboxPool(1, acquire_timeout=0.1, **FAST)
        narrow.start()
        with narrow.acquire(), pytest.raises(PoolTimeoutError):
            await AsyncCodingEnv.acquire(narrow, **ENV)
        narrow.close()
        with pytest.raises(PoolClosedError):
            await AsyncCodingEnv.acquire(narrow, **ENV)

    run(main)


# Loops, and the remote provider

SCRIPT = """
    import asyncio, sys
    from coding_gym import AsyncCodingEnv, SandboxPool

    async def main():
        with SandboxPool(1, sessions=2, provider="local", preload=()) as pool:
            async with AsyncCodingEnv(pool=pool, screen=None) as env:
                try:
                    async with asyncio.timeout(0.2):
                        await env.step("while True: pass")
                except TimeoutError:
                    observation, *_ = await env.step("print('fine')")
                    print(observation["stdout"], end="")
                await env.reset()
                other = await AsyncCodingEnv.acquire(pool)
                await other.aclose()
                cancelled = asyncio.create_task(env.step("1"))
                await asyncio.sleep(0)
                cancelled.cancel()
        async with AsyncCodingEnv(provider="local", preload=()) as env:
            await env.step("1")

    if sys.argv[1] == "uvloop":
        import uvloop
        uvloop.run(main())
    else:
        asyncio.run(main(), debug=sys.argv[1] == "debug")
"""


@pytest.mark.parametrize("loop", ["plain", "debug", "uvloop"])
def test_no_warnings_in_any_loop(loop):
    command = [sys.executable, "-X", "dev", "-W", "error", "-c", textwrap.dedent(SCRIPT), loop]
    process = subprocess.run(command, capture_output=True, text=True, timeout=60)
    noise = [line for line in process.stderr.splitlines() if not line.startswith("Executing <")]
    assert (process.stdout, noise, process.returncode) == ("fine\n", [], 0)


def test_cancelling_under_uvloop(pool):
    async def main():
        async with AsyncCodingEnv(pool=pool, **ENV) as env:
            await output(env, "x = 1")
            for after in (0, 0.01, 0.2):
                await cancel(env.step(SLEEP), after)
                assert await output(env, "x") == "1\n"

    uvloop.run(main())


@pytest.mark.parametrize("token", [None, "open sesame"])
def test_remote(tmp_path, token):
    async def main():
        async with AsyncCodingEnv(provider="remote", base_url=server.url, token=token, **ENV) as env:
            await output(env, "x = 6")
            await cancel(env.step(SLEEP), 0.2)
            assert await output(env, "x * 7") == "42\n"
            with pytest.raises(CapacityError, match="1/1"):
                await AsyncCodingEnv.acquire(provider="remote", base_url=server.url, token=token)

    with RunningServer(tmp_path, "--max-sessions", "1", token=token) as server:
        run(main)
        assert server.is_alive()


@pytest.mark.parametrize("token", [None, "wrong"])
def test_remote_with_a_wrong_token_says_so(tmp_path, token):
    async def main():
        with pytest.raises((ProviderError, ProtocolError), match="token"):
            await AsyncCodingEnv.acquire(provider="remote", base_url=server.url, token=token)

    with RunningServer(tmp_path, token="right") as server:
        run(main)
