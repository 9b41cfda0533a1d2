"""Replay of recorded episodes: of snapshots that are lost, and of states that cannot be copied."""

from __future__ import annotations

import asyncio
from contextlib import closing

import gymnasium as gym
import pytest

from coding_gym import AsyncCodingEnv
from coding_gym.errors import ConfigurationError, SnapshotError, TransportError
from tests.support.environments import OPTIONS, stdout
from tests.support.sandbox_faults import kill_sandbox


def test_lost_sandbox_is_replayed():
    with closing(gym.make("CodingEnv-v0", provider="local", preload=(), **OPTIONS).unwrapped) as env:
        env.reset(seed=5, options={"files": {"data.txt": "7"}})
        env.step("import random; x = random.random()")
        env.step("y = int(open('data.txt').read())")
        expected = stdout(env, "print(x, y)")
        snapshot = env.clone_state()
        kill_sandbox(env.sandbox)
        with pytest.raises(TransportError):
            env.restore_state(snapshot)
        _, info = env.restore_state(snapshot, replay=True)
        assert info["replay"] == {"steps": 3, "differences": []}
        assert stdout(env, "print(x, y)") == expected


def test_async_environment_replays_lost_snapshot():
    async def run():
        async with AsyncCodingEnv(provider="local", preload=(), **OPTIONS) as env:
            await env.reset(seed=4)
            await env.step("import random; x = random.random()")
            (expected, *_) = await env.step("print(x)")
            snapshot = await env.clone_state()
            kill_sandbox(env.sandbox)
            _, info = await env.restore_state(snapshot, replay=True)
            (found, *_) = await env.step("print(x)")
            return info["replay"], expected["stdout"] == found["stdout"]

    assert asyncio.run(run()) == ({"steps": 2, "differences": []}, True)


def test_replay_reports_differences(env):
    env.step("import time; x = 1")
    env.step("print(time.time_ns())")
    snapshot = env.clone_state()
    _, info = env.restore_state(snapshot, replay=True)
    (difference,) = info["replay"]["differences"]
    assert (difference["step"], difference["field"]) == (1, "stdout")
    assert difference["expected"] != difference["found"]
    assert stdout(env, "print(x)") == "1\n"


def test_replay_ends_no_snapshot(env):
    env.step("x = 1")
    with env.clone_state() as first, env.clone_state() as second:
        env.restore_state(first, replay=True)
        env.step("x = 2")
        env.restore_state(second)
        assert stdout(env, "print(x)") == "1\n"


def test_replay_has_seed_of_episode(env):
    snapshot = env.clone_state()
    with pytest.raises(ConfigurationError, match="replay"):
        env.restore_state(snapshot, seed=3, replay=True)


@pytest.fixture
def shell(pool):
    with closing(gym.make("CodingShellEnv-v0", pool=pool, **OPTIONS).unwrapped) as env:
        yield env


def test_shell_continues_by_replay(shell):
    shell.reset(seed=1, options={"files": {"data.txt": "7"}})
    shell.step("x=5; mkdir sub; cd sub; echo begun")
    shell.step("y=$(cat ../data.txt)")
    snapshot = shell.clone_state()
    assert (snapshot.is_record, snapshot.step_count, snapshot.nbytes) == (True, 2, 0)
    for _ in range(2):
        shell.step("x=6; rm ../data.txt")
        obs, info = shell.restore_state(snapshot)
        assert shell.observation_space.contains(obs)
        assert info["replay"] == {"steps": 2, "differences": []}
        assert stdout(shell, "echo $x $y; basename $PWD") == "5 7\nsub\n"


def test_replay_of_shell_reports_differences(shell):
    shell.reset(seed=1)
    shell.step("date +%N")
    _, info = shell.restore_state(shell.clone_state())
    assert [(each["step"], each["field"]) for each in info["replay"]["differences"]] == [(0, "stdout")]


def test_shell_without_replay_is_refused(shell):
    shell.reset(seed=1)
    with pytest.raises(SnapshotError, match="replay"):
        shell.clone_state(replay=False)


def test_bash_backend_is_recorded_on_request(pool):
    with closing(gym.make("CodingEnv-v0", pool=pool, backend="bash", **OPTIONS).unwrapped) as env:
        env.reset(seed=1)
        env.step("x=5")
        with pytest.raises(SnapshotError, match="replay"):
            env.clone_state()
        snapshot = env.clone_state(replay=True)
        env.step("x=6")
        env.restore_state(snapshot)
        assert stdout(env, "echo $x") == "5\n"


def test_running_thread_is_recorded_on_request(env):
    env.step("import threading, time; done = threading.Event(); x = [1]")
    env.step("thread = threading.Thread(target=done.wait, daemon=True); thread.start()")
    with pytest.raises(SnapshotError, match="thread"):
        env.clone_state()
    snapshot = env.clone_state(replay=True)
    env.step("done.set(); x.append(2)")
    _, info = env.restore_state(snapshot)
    assert info["replay"] == {"steps": 2, "differences": []}
    assert stdout(env, "print(thread.is_alive(), x)") == "True [1]\n"


def test_record_has_the_rules_of_snapshots(env):
    env.step("x = 1")
    with env.clone_state(replay=True) as snapshot:
        with pytest.raises(ConfigurationError, match="for a replay"):
            env.restore_state(snapshot, seed=3)
        env.restore_state(snapshot)
    assert snapshot.is_released
    with pytest.raises(SnapshotError, match="released"):
        env.restore_state(snapshot)
    env.restore_state(snapshot, replay=True)
    assert stdout(env, "print(x)") == "1\n"


def test_record_requires_reset(pool):
    with closing(gym.make("CodingEnv-v0", pool=pool, **OPTIONS).unwrapped) as env, pytest.raises(gym.error.ResetNeeded):
        env.clone_state(replay=True)


def test_record_of_task_restores_rewards(pool):
    with closing(gym.make("CodingTask-v0", pool=pool, suite="basics", **OPTIONS).unwrapped) as env:
        env.reset(seed=1)
        env.step("helper = 1")
        snapshot = env.clone_state(replay=True)
        for _ in range(2):
            assert env.step(env.task.reference)[1:3] == (1.0, True)
            env.restore_state(snapshot)
        assert stdout(env, "print(helper)") == "1\n"


def test_async_environment_is_recorded_on_request(pool):
    async def run():
        async with AsyncCodingEnv(pool=pool, backend="bash", **OPTIONS) as env:
            await env.step("x=5")
            snapshot = await env.clone_state(replay=True)
            await env.step("x=6")
            _, info = await env.restore_state(snapshot)
            return info["replay"]["steps"], (await env.step("echo $x"))[0]["stdout"]

    assert asyncio.run(run()) == (1, "5\n")


def test_vector_shells_continue_by_replay(pool):
    with closing(gym.make_vec("CodingShellEnv-v0", num_envs=2, pool=pool, **OPTIONS)) as envs:
        envs.reset(seed=1)
        envs.step(["x=1", "x=2"])
        snapshots = envs.clone_states()
        envs.step(["x=3", "x=4"])
        _, infos = envs.restore_states([snapshots[0], None])
        assert infos["replay"]["steps"].tolist() == [1, 0]
        assert envs.step(["echo $x"] * 2)[0]["stdout"] == ("1\n", "4\n")


def test_vector_environments_are_recorded_on_request(vector_env):
    vector_env.reset(seed=1)
    vector_env.step(["import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()", "1"])
    assert [snapshot.is_record for snapshot in vector_env.clone_states(replay=True)] == [True, True]
