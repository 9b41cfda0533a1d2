"""Forks of environments: several continue from one state at the same time."""

from __future__ import annotations

import asyncio
import gc
from contextlib import ExitStack, closing

import gymnasium as gym
import numpy as np
import pytest

import coding_gym
from coding_gym import AsyncCodingEnv
from coding_gym.errors import ConfigurationError, SnapshotError, TransportError
from coding_gym.sandbox.pool import SandboxPool
from tests.support.environments import OPTIONS, stdout

SETUP = """
import os, random, tempfile
x = [1]
numbers = iter(range(100))
next(numbers)
os.mkdir('sub'); os.chdir('sub')
file = open('log', 'w+'); file.write('before '); file.flush()
reader = open('log'); reader.read(3)
temporary = tempfile.NamedTemporaryFile('w', delete=False); temporary.write('unflushed ')
"""


@pytest.fixture(scope="module")
def one():
    """A pool with a sandbox that permits a single session, so that forks exceed its limit."""
    with SandboxPool(1, provider="local", preload=(), acquire_timeout=60) as pool:
        yield pool


@pytest.fixture(scope="module")
def shared(one):
    with closing(gym.make("CodingEnv-v0", pool=one, **OPTIONS).unwrapped) as env:
        yield env


@pytest.fixture
def env(shared):
    shared.reset(seed=1)
    return shared


@pytest.fixture
def opened():
    with ExitStack() as stack:
        yield lambda envs: [stack.enter_context(closing(env)) for env in envs]


def test_forks_continue_from_the_state(env, opened):
    env.step(SETUP)
    forks = opened(env.fork(3))
    for number, fork in enumerate([*forks, env]):
        assert stdout(fork, f"x.append({number}); print(x, next(numbers), os.getcwd())") == f"[1, {number}] 1 /home/user/sub\n"
        assert stdout(fork, f"file.write('{number}'); file.flush(); print(reader.read())") == f"ore {number}\n"
        assert stdout(fork, f"temporary.write('{number}'); temporary.flush(); print(open(temporary.name).read())") == (
            f"unflushed {number}\n"
        )
        assert fork.exec("cat sub/log").stdout == f"before {number}".encode()


def test_seeds_of_forks_are_distinct_and_reproducible(env, opened):
    env.step("import random; random.seed(5)")
    drawn = [stdout(fork, "print(random.random())") for fork in opened(env.fork(4))]
    assert len(set(drawn)) == 4
    env.reset(seed=1)
    env.step("import random; random.seed(5)")
    assert [stdout(fork, "print(random.random())") for fork in opened(env.fork(4))] == drawn
    exact = opened(env.fork(3, [None, None, 7]))
    first, second, seeded = [stdout(fork, "print(random.random())") for fork in exact]
    assert first == second == stdout(env, "print(random.random())")
    assert seeded == stdout(opened(env.fork(1, [7]))[0], "print(random.random())")
    assert exact[0].np_random.random() == exact[1].np_random.random() == env.np_random.random()


@pytest.mark.parametrize(("count", "seeds"), [(0, None), (-1, None), (65, None), (True, None), (2, [1]), (1, [1, 2])])
def test_invalid_numbers_are_refused(env, count, seeds):
    with pytest.raises(ConfigurationError):
        env.fork(count, seeds)
    assert stdout(env, "print(1)") == "1\n"


def test_refusal_closes_everything(env):
    env.step("import threading; threading.Thread(target=__import__('time').sleep, args=(30,), daemon=True).start()")
    with pytest.raises(SnapshotError, match="thread"):
        env.fork(2)
    assert stdout(env, "print(1)") == "1\n"


def test_forks_nest_twelve_times(env, opened):
    chain = [env]
    for depth in range(12):
        chain += opened(chain[-1].fork(1))
        chain[-1].step(f"depth = {depth}; open('{depth}', 'w').close()")
    with pytest.raises(SnapshotError, match="12 times"):
        chain[-1].fork(1)
    # In place, there is no limit.
    for _ in range(20):
        with chain[-1].clone_state() as snapshot:
            chain[-1].restore_state(snapshot)
    assert stdout(chain[-1], "import os; print(depth, len(os.listdir()))") == "11 12\n"
    # Those in the middle may end first.
    for middle in chain[3:9]:
        middle.close()
    assert stdout(chain[-1], "print(depth, len(os.listdir()))") == "11 12\n"
    assert stdout(chain[1], "import os; print(depth, os.listdir())") == "0 ['0']\n"


def test_forks_outlive_the_original(opened):
    env = gym.make("CodingEnv-v0", provider="local", preload=(), **OPTIONS).unwrapped
    env.reset(seed=1)
    env.step("x = 1")
    first, second = opened(env.fork(2))
    env.close()
    assert stdout(first, "print(x)") == "1\n"
    # A reset starts its own sandbox.
    first.reset(seed=2)
    assert stdout(first, "print('x' in dir())") == "False\n"
    assert first.sandbox is not second.sandbox
    sandbox = second.sandbox
    assert stdout(second, "print(x)") == "1\n"
    second.close()
    with pytest.raises(TransportError):
        sandbox.health(timeout=1)


def test_original_continues_after_a_reset(env, opened):
    env.step("x = 1; open('a', 'w').close()")
    (fork,) = opened(env.fork(1))
    env.reset(seed=2)
    assert stdout(env, "import os; print('x' in dir(), os.listdir())") == "False []\n"
    assert stdout(fork, "import os; print(x, os.listdir())") == "1 ['a']\n"


def test_snapshots_of_forks_are_restored_anywhere(env, opened):
    env.step("x = 1")
    first, second = opened(env.fork(2))
    first.step("x = 2; open('of first', 'w').close()")
    with first.clone_state() as snapshot:
        first.step("x = 3")
        second.restore_state(snapshot)
        first.restore_state(snapshot)
        for fork in (first, second):
            assert stdout(fork, "import os; print(x, os.listdir()); x = 4") == "2 ['of first']\n"
    assert stdout(env, "print(x)") == "1\n"


def test_forks_are_ended_when_collected(env):
    env.step("x = 1")
    for _ in range(5):
        # Together more than there may be at the same time.
        env.fork(14)
        gc.collect()
    assert stdout(env, "print(x)") == "1\n"


def test_forks_have_limits_of_their_own(env, opened, monkeypatch):
    monkeypatch.setattr(env, "step_timeout", 1)
    env.reset(seed=1)
    env.step("x = 1")
    first, second = opened(env.fork(2))
    observation, _, _, _, info = first.step("import time\ntime.sleep(0.1)\nwhile True: pass")[0:5]
    assert info["outcome"] == "timeout"
    assert observation["exit_code"] == 124
    assert [stdout(fork, "print(x)") for fork in (first, second)] == ["1\n", "1\n"]


def test_tasks_are_forked_with_rewards(one, opened):
    with closing(
        gym.make("CodingTask-v0", suite="basics", provider="local", preload=(), max_turns=3, **OPTIONS).unwrapped
    ) as env:
        env.reset(seed=1)
        env.step("helper = 1")
        right, wrong = opened(env.fork(2))
        assert right.task == wrong.task == env.task
        _, reward, terminated, _, _ = right.step(env.task.reference)
        assert (reward, terminated) == (1.0, True)
        _, reward, terminated, truncated, _ = wrong.step("pass")
        assert (reward, terminated, truncated) == (0.0, False, False)
        assert wrong.step("pass")[3]


def test_wrapped_environments_are_forked(opened):
    with closing(gym.make("CodingEnv-v0", provider="local", preload=(), max_episode_steps=3, **OPTIONS)) as env:
        env.reset(seed=1)
        env.step("x = 1")
        forks = opened(coding_gym.branching.fork(env, 2))
        for fork in forks:
            assert not fork.step("x += 1")[3]
            assert fork.step("print(x)")[3]
        assert not env.step("print(x)")[3]


def test_vector_environments_broadcast_a_state():
    with closing(gym.make_vec("CodingEnv-v0", num_envs=3, provider="local", preload=(), **OPTIONS)) as envs:
        envs.reset(seed=1)
        envs.step([f"x = {index}" for index in range(3)])
        (_, snapshot, _) = envs.unwrapped.clone_states(np.array([False, True, False]))
        envs.step(["x = 10"] * 3)
        envs.unwrapped.broadcast(snapshot, seeds=5)
        observations, *_ = envs.step(["import random; print(x); print(random.random())"] * 3)
        values, draws = zip(*(text.split() for text in observations["stdout"]), strict=True)
        assert values == ("1", "1", "1")
        assert len(set(draws)) == 3


def test_shell_is_forked_by_replay(opened):
    with closing(gym.make("CodingShellEnv-v0", provider="local", **OPTIONS).unwrapped) as env:
        env.reset(seed=1)
        env.step("count=1")
        (fork,) = opened(env.fork(1))
        assert fork.step("echo $count")[0]["stdout"] == "1\n"


def test_asynchronous_environments_are_forked():
    async def run():
        async with AsyncCodingEnv(provider="local", preload=(), **OPTIONS) as env:
            await env.step("x = [1]")
            forks = await env.fork(3)
            results = await asyncio.gather(*(fork.step(f"x.append({n}); print(x)") for n, fork in enumerate(forks)))
            assert [obs["stdout"] for obs, *_ in results] == ["[1, 0]\n", "[1, 1]\n", "[1, 2]\n"]
            await forks[0].reset(seed=1)
            assert (await forks[0].step("print('x' in dir())"))[0]["stdout"] == "False\n"
            for fork in forks:
                await fork.aclose()
            assert (await env.step("print(x)"))[0]["stdout"] == "[1]\n"

    asyncio.run(run())
