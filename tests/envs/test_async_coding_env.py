from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import subprocess
import sys
import textwrap
import threading

import gymnasium as gym
import pytest
import uvloop
from gymnasium.utils.env_checker import data_equivalence

from coding_gym import AsyncCodingEnv, CodingEnv, SandboxPool
from coding_gym.errors import (
    CapacityError,
    ConcurrentUseError,
    ConfigurationError,
    InvalidActionError,
    PoolClosedError,
    PoolTimeoutError,
    ProtocolError,
    ProviderError,
    StepTimeoutError,
)
from coding_gym.sandbox.docker.cleanup import our_containers
from coding_gym.sandbox.ownership import OwnerProcess
from tests.support.running_server import RunningServer
from tests.support.sandbox_faults import is_gone, kill_sandbox, living_children
from tests.support.sandbox_processes import server_of
from tests.support.timing import eventually, promptly

FAST = {"provider": "local", "preload": ()}
ENV = {"screen": None, "step_timeout": 60}
PLACES = 4
SLEEP = "import time; time.sleep(60); print('stale')"
GIVES_IN_LATE = "import time\ntry:\n    time.sleep(60)\nexcept KeyboardInterrupt:\n    time.sleep(0.3)"
STUBBORN = """
import time
while True:
    try:
        time.sleep(60)
    except KeyboardInterrupt:
        pass
"""


@pytest.fixture(scope="module")
def shared():
    with SandboxPool(sessions=PLACES, max_episodes=None, acquire_timeout=30, **FAST) as pool:
        yield pool


@pytest.fixture
def pool(shared):
    """Pool with four slots, for tests that leave all of them idle."""
    yield shared
    assert eventually(lambda: shared.stats.idle == PLACES)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """Server with a token and one session."""
    with RunningServer(tmp_path_factory.mktemp("guarded"), "--max-sessions", "1", token="open sesame") as server:
        yield server


def run(main):
    """Run a coroutine function in a new event loop, in which it must leave no tasks."""

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
    """Cancel a coroutine after a delay; it must end within seconds."""
    task = asyncio.ensure_future(coroutine)
    await asyncio.sleep(after)
    assert task.cancel()
    with promptly(), pytest.raises(asyncio.CancelledError):
        await task


async def cancel_or_finish(coroutine, after):
    """Cancel a coroutine after a delay; return its result if it has already finished."""
    task = asyncio.ensure_future(coroutine)
    await asyncio.sleep(after)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        return await task


@contextlib.asynccontextmanager
async def free_event_loop():
    """Assert that the block does not block the event loop, which continues as a thread does."""
    naps = 0
    seen = []
    is_over = threading.Event()

    def nap():
        nonlocal naps
        while not is_over.wait(0.005):
            naps += 1

    async def tick():
        while True:
            seen.append(naps)
            await asyncio.sleep(0.005)

    thread, ticker = threading.Thread(target=nap), asyncio.create_task(tick())
    thread.start()
    try:
        yield
    finally:
        seen.append(naps)
        ticker.cancel()
        is_over.set()
        thread.join()
    assert len(seen) > 20
    assert max(after - before for before, after in itertools.pairwise(seen)) < 200


# Behavior documented by AgentFly, expressed in this package's API


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


def test_reset_clears_variables(pool):
    async def main():
        async with AsyncCodingEnv(pool=pool, **ENV) as env:
            await env.step("x = 1")
            await env.reset()
            observation, *_ = await env.step("print(x)")
            assert "NameError: name 'x' is not defined" in observation["stderr"]

    run(main)


def test_timeout_raises_and_next_step_works(pool):
    async def main():
        async with AsyncCodingEnv(pool=pool, on_timeout="raise", screen=None, step_timeout=1.5) as env:
            await env.step("x = 1")
            with pytest.raises(StepTimeoutError, match=r"timed out after 1.5 s; variables are kept") as caught:
                await env.step("print('so far')\nwhile True: pass")
            assert isinstance(caught.value, TimeoutError)
            assert caught.value.observation["stdout"] == "so far\n"
            assert caught.value.info == {"outcome": "timeout", "state_lost": False}
            assert await output(env, "print('Recovered!', x)") == "Recovered! 1\n"

    run(main)


def test_acquire_returns_ready_environment(pool):
    async def main():
        for _ in range(2):
            env = await AsyncCodingEnv.acquire(pool, **ENV)
            assert pool.stats.busy == 1
            assert "NameError" in (await env.step("x"))[0]["stderr"]
            assert await output(env, "x = 5; print(x)") == "5\n"
            await env.aclose()
            assert pool.stats.busy == 0

    run(main)


def test_acquire_without_pool_applies_constructor_options(docker_engine):
    async def main():
        async with free_event_loop():
            env = await AsyncCodingEnv.acquire(cpu=1, mem="1g", start_timeout=30.0, provider="docker", preload=(), **ENV)
            limits = env.sandbox.container.attrs["HostConfig"]
            assert (limits["NanoCpus"], limits["Memory"]) == (10**9, 2**30)
            container = env.sandbox.container.id
            assert await output(env, "import time; time.sleep(2); print('Hello')") == "Hello\n"
            await env.aclose()
        assert env.sandbox is None
        assert container not in [container.id for container, _ in our_containers(docker_engine)]

    run(main)


# Equality with the blocking environment


def test_async_results_equal_blocking_environment(pool):
    actions = [
        "import random, numpy; random.random(), numpy.random.rand()",
        "1 / 0",
        "x = 1",
        "x",
        "'é' * 99",
        "import sys; sys.exit(3)",
    ]

    async def main():
        settings = {"screen": None, "render_mode": "ansi", "max_output_chars": 256, "step_timeout": 20}
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
def test_wrong_option_is_refused(options, hint):
    with pytest.raises(ConfigurationError, match=hint):
        AsyncCodingEnv(**options)


def test_failed_constructor_is_collected_silently():
    with pytest.raises(ConfigurationError):
        AsyncCodingEnv(screen="big")
    gc.collect()


def test_sandbox_settings_with_pool_are_refused(pool):
    with pytest.raises(ConfigurationError, match="mem"):
        AsyncCodingEnv(pool=pool, mem="1g")


def test_bad_actions_and_early_steps_are_refused(pool):
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


def test_timeout_is_observation_by_default(pool):
    async def main():
        async with AsyncCodingEnv(pool=pool, screen=None, step_timeout=1.5) as env:
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
        assert pool.stats.busy == 1
        await env.aclose()

    run(main)


def test_close_is_idempotent_and_final(pool):
    async def main():
        never_started = AsyncCodingEnv(pool=pool, **ENV)
        await never_started.aclose()
        env = await AsyncCodingEnv.acquire(pool, **ENV)
        snapshot = await env.clone_state(replay=True)
        await asyncio.gather(env.aclose(), env.aclose())
        await env.aclose()
        assert pool.stats.busy == 0
        calls = (
            *(never_started.start, env.start, env.reset, env.clone_state, env.windows, env.capture),
            *(lambda: env.step("1"), lambda: env.fork(2), lambda: env.restore_state(snapshot), lambda: env.exec("true")),
        )
        for call in calls:
            with pytest.raises(gym.error.ClosedEnvironmentError):
                await call()
        for access in (env.render, lambda: env.files, lambda: env.processes):
            with pytest.raises(gym.error.ClosedEnvironmentError):
                access()

    run(main)


def test_pending_step_ends_when_environment_closes(pool):
    async def main():
        env = await AsyncCodingEnv.acquire(pool, **ENV)
        steps = [asyncio.create_task(env.step("import time; time.sleep(30)")) for _ in range(2)]
        await asyncio.sleep(0.2)
        await env.aclose()
        (observation, _, _, truncated, info), waiting = await asyncio.gather(*steps, return_exceptions=True)
        assert (truncated, info["outcome"]) == (True, "infrastructure")
        assert observation["exit_code"] == 255
        assert isinstance(waiting, gym.error.ClosedEnvironmentError)

    run(main)


# A transport whose event loop has ended cannot be closed.
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_second_event_loop_is_refused(pool):
    _use_in_several_event_loops(AsyncCodingEnv(pool=pool, **ENV))
    assert pool.stats.busy == 0
    gc.collect()


def _use_in_several_event_loops(env):
    async def step():
        return await env.step("print(1)")

    asyncio.run(env.start())
    for _ in range(2):
        with pytest.raises(ConcurrentUseError, match=r"event loop .* has ended: make an environment in each"):
            asyncio.run(step())
    asyncio.run(env.aclose())


def test_event_loop_of_another_thread_is_refused(pool):
    async def main():
        async with AsyncCodingEnv(pool=pool, **ENV) as env:
            with pytest.raises(ConcurrentUseError, match="is another one"):
                await asyncio.to_thread(lambda: asyncio.run(env.step("print(1)")))
            assert await output(env, "print(2)") == "2\n"
            await asyncio.to_thread(lambda: asyncio.run(env.aclose()))
            assert pool.stats.busy == 0

    run(main)


def test_close_during_step_ends_it(pool):
    async def main():
        env = await AsyncCodingEnv.acquire(pool, **ENV)
        step = asyncio.create_task(env.step(SLEEP))
        await asyncio.sleep(0.2)
        with promptly():
            await env.aclose()
            _, _, _, truncated, info = await step
        assert (truncated, info["outcome"]) == (True, "infrastructure")

    run(main)


def test_close_during_start_leaves_no_processes():
    async def start_and_close(delay):
        env = AsyncCodingEnv(**FAST, **ENV)
        start = asyncio.create_task(env.start())
        await asyncio.sleep(delay)
        await env.aclose()
        with contextlib.suppress(ProviderError):
            await start
            await env.aclose()
        assert env.sandbox is None

    async def main():
        before = living_children()
        await asyncio.gather(*(start_and_close(delay) for delay in (0, 0.02, 0.3)))
        while not living_children() <= before:
            await asyncio.sleep(0.01)

    run(main)


def test_close_ends_start_waiting_for_session(pool):
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


def test_garbage_collected_environment_releases_its_session(pool):
    async def main():
        env = await AsyncCodingEnv.acquire(pool, **ENV)
        assert pool.stats.busy == 1
        del env
        gc.collect()
        assert pool.stats.busy == 0
        envs = [await AsyncCodingEnv.acquire(pool, **ENV) for _ in range(PLACES)]
        await asyncio.gather(*(env.aclose() for env in envs))

    run(main)


# Cancellation


@pytest.mark.parametrize("after", [0, 0.001, 0.005, 0.02, 0.3])
def test_cancelled_step_interrupts_code_and_keeps_variables(pool, after):
    async def main():
        async with AsyncCodingEnv(pool=pool, **ENV) as env:
            await output(env, "x = 1")
            await cancel(env.step(SLEEP), after)
            with promptly():
                assert await output(env, "print('fresh', x)") == "fresh 1\n"

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
def test_timeouts_and_task_groups_cancel_step(pool, way):
    async def main():
        async with AsyncCodingEnv(pool=pool, **ENV) as env:
            await output(env, "x = 1")
            with promptly():
                try:
                    await way(env)
                except* TimeoutError:
                    pass
            assert await output(env, "x") == "1\n"

    run(main)


def test_code_that_ignores_interrupts_is_killed(pool):
    async def main():
        async with AsyncCodingEnv(pool=pool, **ENV) as env:
            await output(env, "x = 1")
            await cancel(env.step(STUBBORN), 0.3)
            assert await output(env, "print('fresh', 'x' in globals())") == "fresh False\n"

    run(main)


def test_step_with_large_code_or_output_is_cancellable(pool):
    async def main():
        async with AsyncCodingEnv(pool=pool, **ENV) as env:
            for code in (f"{SLEEP} #{'x' * 90_000}", "while True: print('x' * 9999)"):
                await cancel(env.step(code), 0.0)
                await cancel(env.step(code), 0.2)
                assert await output(env, "print('fresh')") == "fresh\n"

    run(main)


@pytest.mark.parametrize("again", ["step", "reset"])
def test_cancelling_during_previous_cancellation_keeps_variables(pool, again):
    async def main():
        async with AsyncCodingEnv(pool=pool, **ENV) as env:
            await output(env, "x = 1")
            await cancel(env.step(GIVES_IN_LATE), 0.1)
            for after in (0, 0.001, 0.05):
                await cancel(env.step("x = 'never'") if again == "step" else env.reset(), after)
            assert await output(env, "x") == "1\n"

    run(main)


def test_cancelling_twice_is_harmless(pool):
    async def main():
        async with AsyncCodingEnv(pool=pool, **ENV) as env:
            step = asyncio.create_task(env.step(SLEEP))
            await asyncio.sleep(0.1)
            step.cancel()
            await asyncio.sleep(0)
            step.cancel()
            with pytest.raises(asyncio.CancelledError):
                await step
            with promptly():
                assert await output(env, "1") == "1\n"

    run(main)


def test_cancelling_after_unnoticed_interpreter_death_recovers_quickly(pool):
    async def main():
        async with AsyncCodingEnv(pool=pool, **ENV) as env:
            for _ in range(3):
                await env.step("import os, threading; threading.Timer(0.05, os._exit, [3]).start()")
                await asyncio.sleep(0.3)
                await cancel(env.step(SLEEP), 0.001)
                with promptly():
                    await env.step("1")

    run(main)


@pytest.mark.parametrize("after", [0, 0.001, 0.003])
def test_cancelled_reset_keeps_sandbox(pool, after):
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
def test_cancelled_acquire_loses_no_session(pool, after):
    async def main():
        found = await asyncio.gather(*(cancel_or_finish(AsyncCodingEnv.acquire(pool, **ENV), after) for _ in range(10)))
        for env in found:
            if env is not None:
                await env.aclose()
        while pool.stats.idle < PLACES:
            await asyncio.sleep(0.01)
        envs = [await AsyncCodingEnv.acquire(pool, **ENV) for _ in range(PLACES)]
        assert pool.stats.idle == 0
        await asyncio.gather(*(env.aclose() for env in envs))

    run(main)


def test_cancelled_acquire_leaves_waiting_queue(pool):
    async def main():
        leases = [pool.acquire() for _ in range(PLACES)]
        await cancel(AsyncCodingEnv.acquire(pool, **ENV), 0.1)
        assert pool.stats.waiting == 0
        for lease in leases:
            lease.release()

    run(main)


def test_cancelled_start_leaves_no_process():
    async def start_and_cancel(env, after):
        await cancel_or_finish(env.__aenter__(), after)
        if env._env._session is None:
            assert env.sandbox is None
        await env.aclose()

    async def restart():
        async with AsyncCodingEnv(**FAST, **ENV) as env:
            assert await output(env, "1") == "1\n"

    async def main():
        before = living_children()
        envs = {AsyncCodingEnv(**FAST, **ENV): after for after in (0, 0.1, 0.4)}
        await asyncio.gather(*(start_and_cancel(env, after) for env, after in envs.items()))
        while living_children() - before:
            await asyncio.sleep(0.01)
        await restart()

    run(main)


@pytest.mark.docker
def test_cancelled_start_leaves_no_container(docker_engine):
    def ours():
        return {container.id for container, owner in our_containers(docker_engine) if owner == OwnerProcess.current()}

    async def main():
        env = AsyncCodingEnv(provider="docker", preload=(), **ENV)
        await cancel_or_finish(env.start(), 0.5)
        await env.aclose()

    before = ours()
    run(main)
    assert eventually(lambda: ours() == before)


def test_cancelled_queued_step_never_runs(pool):
    async def main():
        async with AsyncCodingEnv(pool=pool, **ENV) as env:
            first = asyncio.create_task(env.step("import time; time.sleep(0.5); x = 1"))
            await asyncio.sleep(0.1)
            await cancel(env.step("x = 'never'"), 0.1)
            assert (await first)[4]["outcome"] == "ok"
            assert await output(env, "x") == "1\n"

    run(main)


# Concurrency


def test_steps_of_one_environment_run_sequentially(pool):
    async def main():
        async with AsyncCodingEnv(pool=pool, **ENV) as env:
            await env.step("x = []")
            outputs = await asyncio.gather(*(output(env, f"x.append({number}); print(len(x))") for number in range(100)))
            assert outputs == [f"{number + 1}\n" for number in range(100)]
            assert await output(env, "x == list(range(100))") == "True\n"

    run(main)


def test_fifty_environments_share_event_loop():
    with SandboxPool(2, sessions=25, pids_limit=1000, acquire_timeout=60, **FAST) as pool:

        async def episode(number):
            async with AsyncCodingEnv(pool=pool, screen=None, step_timeout=60) as env:
                await ready.wait()
                for step in range(5):
                    code = f"x = globals().get('x', {number}) + 1; print(x)"
                    assert await output(env, code) == f"{number + step + 1}\n"

        async def main():
            nonlocal ready
            ready = asyncio.Barrier(50)
            await asyncio.gather(*(episode(number) for number in range(50)))

        ready = None
        run(main)
        assert pool.stats.episodes == 50
        assert pool.stats.busy == 0


def test_steps_of_environments_run_concurrently(pool):
    async def main():
        envs = [await AsyncCodingEnv.acquire(pool, **ENV) for _ in range(PLACES)]
        slow = [asyncio.create_task(env.step(SLEEP)) for env in envs[1:]]
        with promptly():
            await asyncio.sleep(0.3)
            assert await output(envs[0], "1") == "1\n"
            assert not any(step.done() for step in slow)
            for step in slow:
                step.cancel()
            await asyncio.wait(slow)
        await asyncio.gather(*(env.aclose() for env in envs))

    run(main)


def test_event_loop_is_never_blocked():
    async def main():
        async with free_event_loop(), AsyncCodingEnv(**FAST, **ENV) as env:
            await env.step("import time; time.sleep(2)")

    run(main)


# Faults


@pytest.mark.every_provider
def test_sandbox_death_during_step_truncates_episode(provider):
    async def main():
        async with AsyncCodingEnv(provider=provider, preload=(), **ENV) as env:
            first = env.sandbox
            step = asyncio.create_task(env.step(SLEEP))
            await asyncio.sleep(0.3)
            with promptly():
                await asyncio.to_thread(kill_sandbox, first)
                observation, _, _, truncated, info = await step
            assert (truncated, info) == (True, {"outcome": "infrastructure", "state_lost": True})
            assert "sandbox failed" in observation["stderr"]
            assert (await env.step("1"))[3]
            await env.reset()
            assert env.sandbox is not first
            assert await output(env, "1") == "1\n"

    run(main)


def test_dead_pool_sandboxes_are_replaced_on_acquire():
    with SandboxPool(2, idle_timeout=60, **FAST) as pool:

        async def main():
            for member in list(pool._members):
                kill_sandbox(member.sandbox)
            async with AsyncCodingEnv(pool=pool, **ENV) as env:
                assert await output(env, "1") == "1\n"

        run(main)


def test_exhausted_sandbox_is_recycled_on_reset():
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


def test_full_or_closed_pool_raises(pool):
    async def main():
        narrow = SandboxPool(1, acquire_timeout=0.1, **FAST)
        narrow.start()
        with narrow.acquire(), pytest.raises(PoolTimeoutError):
            await AsyncCodingEnv.acquire(narrow, **ENV)
        narrow.close()
        with pytest.raises(PoolClosedError):
            await AsyncCodingEnv.acquire(narrow, **ENV)

    run(main)


# Event loops and the remote provider

SCRIPT = """
    import asyncio
    import uvloop
    from coding_gym import AsyncCodingEnv, SandboxPool

    async def main():
        async with AsyncCodingEnv(pool=pool, screen=None) as env:
            try:
                async with asyncio.timeout(0.2):
                    await env.step("while True: pass")
            except TimeoutError:
                observation, *_ = await env.step("print('fine')")
                print(observation["stdout"], end="")
            await env.reset()
            other = await AsyncCodingEnv.acquire(pool, screen=None)
            await other.aclose()
            cancelled = asyncio.create_task(env.step("1"))
            await asyncio.sleep(0)
            cancelled.cancel()
        async with AsyncCodingEnv(provider="local", preload=(), screen=None) as env:
            await env.step("1")

    with SandboxPool(1, sessions=2, provider="local", preload=()) as pool:
        asyncio.run(main(), debug=False)
        asyncio.run(main(), debug=True)
        uvloop.run(main(), debug=False)
"""


def test_event_loops_emit_no_warnings():
    command = [sys.executable, "-X", "dev", "-W", "error", "-c", textwrap.dedent(SCRIPT)]
    process = subprocess.run(command, capture_output=True, text=True, timeout=60)
    noise = [line for line in process.stderr.splitlines() if not line.startswith("Executing <")]
    assert (process.stdout, noise, process.returncode) == ("fine\n" * 3, [], 0)


def test_cancelled_step_keeps_variables_under_uvloop(pool):
    async def main():
        async with AsyncCodingEnv(pool=pool, **ENV) as env:
            await output(env, "x = 1")
            for after in (0, 0.01, 0.2):
                await cancel(env.step(SLEEP), after)
                assert await output(env, "x") == "1\n"

    uvloop.run(main())


def test_remote_server_serves_environment(tmp_path, guarded):
    async def use(server):
        options = {"provider": "remote", "base_url": server.url, "token": server.token}
        async with AsyncCodingEnv(**options, **ENV) as env:
            await output(env, "x = 6")
            await cancel(env.step(SLEEP), 0.2)
            assert await output(env, "x * 7") == "42\n"
            with pytest.raises(CapacityError, match="1/1"):
                await AsyncCodingEnv.acquire(**options)

    with RunningServer(tmp_path, "--max-sessions", "1") as unguarded:

        async def main():
            await asyncio.gather(use(unguarded), use(guarded))

        run(main)
        assert unguarded.is_alive()
        assert guarded.is_alive()


@pytest.mark.parametrize("token", [None, "wrong"])
def test_remote_refuses_wrong_token(guarded, token):
    async def main():
        with pytest.raises((ProviderError, ProtocolError), match="token"):
            await AsyncCodingEnv.acquire(provider="remote", base_url=guarded.url, token=token)

    run(main)
