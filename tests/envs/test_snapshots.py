"""Snapshots of environments: the episode goes on from them, or is replayed."""

from __future__ import annotations

import asyncio
import gc
from contextlib import closing

import gymnasium as gym
import numpy as np
import pytest

from coding_gym import AsyncCodingEnv
from coding_gym.errors import ConfigurationError, SnapshotError, TransportError
from coding_gym.search import BranchTree, best_first
from tests.support.sandbox_faults import kill_sandbox

OPTIONS = {"screen": None, "step_timeout": 20}


@pytest.fixture(scope="module")
def shared(pool):
    with closing(gym.make("CodingEnv-v0", pool=pool, render_mode="ansi", **OPTIONS).unwrapped) as env:
        yield env


@pytest.fixture
def env(shared):
    shared.reset(seed=1)
    return shared


def stdout(env, code):
    return env.step(code)[0]["stdout"]


def test_episode_goes_on_from_snapshot(env):
    env.step("x = [1]")
    with env.clone_state() as snapshot:
        assert snapshot.step_count == 1
        assert stdout(env, "x.append(2); print(x)") == "[1, 2]\n"
        obs, info = env.restore_state(snapshot)
        assert env.observation_space.contains(obs)
        assert (obs["stdout"], info["outcome"]) == ("", "ok")
        assert stdout(env, "x.append(3); print(x)") == "[1, 3]\n"


def test_transcript_is_restored(env):
    env.step("print('first')")
    with env.clone_state() as snapshot:
        env.step("print('second')")
        env.restore_state(snapshot)
        env.step("print('third')")
    transcript = env.render()
    assert ("first" in transcript, "second" in transcript, "third" in transcript) == (True, False, True)


def test_state_of_server_is_restored(env):
    env.step("1")
    with env.clone_state() as snapshot:
        env.step("1/0")
        env.restore_state(snapshot)
        state = env._session.state()
    assert (state.step_count, state.last_exit_code) == (1, 0)


def test_size_is_that_of_files(env):
    with env.clone_state() as empty:
        assert empty.nbytes == 0
    env.step("open('a', 'w').write('x' * 1000)")
    with env.clone_state() as snapshot:
        assert snapshot.nbytes == 1000


def test_clone_requires_reset(pool):
    with closing(gym.make("CodingEnv-v0", pool=pool, **OPTIONS).unwrapped) as env, pytest.raises(gym.error.ResetNeeded):
        env.clone_state()


def test_released_snapshot_is_refused(env):
    snapshot = env.clone_state()
    snapshot.release()
    snapshot.release()
    assert snapshot.is_released
    with pytest.raises(SnapshotError, match="released"):
        env.restore_state(snapshot)
    assert stdout(env, "print(1)") == "1\n"


def test_snapshots_are_released_when_collected(env):
    for _ in range(100):
        # More than the sandbox permits.
        env.clone_state()
        gc.collect()
    assert stdout(env, "print(1)") == "1\n"


def test_refusal_reports_reasons_and_episode_goes_on(env):
    env.step("import socket; x = 1; pair = socket.socketpair()")
    with pytest.raises(SnapshotError) as refused:
        env.clone_state()
    assert len(refused.value.reasons) == 2
    assert stdout(env, "print(x)") == "1\n"


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


def test_replay_reports_differences(env):
    env.step("import time; x = 1")
    env.step("print(time.time_ns())")
    snapshot = env.clone_state()
    _, info = env.restore_state(snapshot, replay=True)
    (difference,) = info["replay"]["differences"]
    assert (difference["step"], difference["field"]) == (1, "stdout")
    assert difference["expected"] != difference["found"]
    assert stdout(env, "print(x)") == "1\n"


def test_replay_has_seed_of_episode(env):
    snapshot = env.clone_state()
    with pytest.raises(ConfigurationError, match="replay"):
        env.restore_state(snapshot, seed=3, replay=True)


def test_shell_is_replayed(pool):
    with closing(gym.make("CodingShellEnv-v0", pool=pool, **OPTIONS).unwrapped) as env:
        env.reset(seed=1)
        env.step("x=5; cd /tmp")
        with pytest.raises(SnapshotError, match="replay"):
            env.clone_state()


def test_task_goes_on_with_rewards_and_definitions(pool):
    with closing(gym.make("CodingTask-v0", pool=pool, suite="basics", **OPTIONS).unwrapped) as env:
        env.reset(seed=1)
        task = env.task
        env.step("helper = 1")
        with env.clone_state() as snapshot:
            _, reward, terminated, _, _ = env.step(task.reference)
            assert (reward, terminated) == (1.0, True)
            env.restore_state(snapshot)
            assert env.last_verdict is None
            # The reward is that of the first solution again.
            _, reward, terminated, _, _ = env.step(task.reference)
            assert (reward, terminated) == (1.0, True)
            env.reset(seed=2, options={"task_id": next(i for i in env.suite.ids if i != task.id)})
            obs, info = env.restore_state(snapshot)
            assert (env.task, info["task_id"], obs["prompt"]) == (task, task.id, task.prompt)


def test_async_environment_goes_on_from_snapshot(pool):
    async def run():
        async with AsyncCodingEnv(pool=pool, **OPTIONS) as env:
            await env.step("x = [1]")
            snapshots = [await env.clone_state()]
            await env.step("x.append(2)")
            snapshots.append(await env.clone_state())
            seen = []
            for snapshot in (snapshots[0], snapshots[1], snapshots[0]):
                await env.restore_state(snapshot)
                obs, *_ = await env.step("print(x)")
                seen.append(obs["stdout"])
            snapshots[0].release()
            with pytest.raises(SnapshotError):
                await env.restore_state(snapshots[0])
            return seen

    assert asyncio.run(run()) == ["[1]\n", "[1, 2]\n", "[1]\n"]


@pytest.mark.screen
def test_windows_are_not_restored_but_screen_works():
    show = (
        "import tkinter as tk\nroot = tk.Tk(); root.geometry('100x100+0+0')\n"
        "tk.Frame(root, bg='red', width=100, height=100).pack(); root.mainloop()"
    )
    with closing(gym.make("CodingEnv-v0", provider="local", preload=(), screen=(200, 150), step_timeout=20).unwrapped) as env:
        env.reset(seed=1)
        env.step("x = 1")
        with env.clone_state() as snapshot:
            for _ in range(2):
                obs, *_ = env.step(show)
                assert (obs["screenshot"][50, 50] == [255, 0, 0]).all()
                obs, _ = env.restore_state(snapshot)
                assert not np.any(obs["screenshot"])
                assert stdout(env, "print(x)") == "1\n"


def test_search_finds_what_a_walk_does_not(env):
    env.step("digits = [3, 1, 2]; found = []")

    def propose(node):
        return [f"found.append({digit}); print(found == digits[:len(found)], len(found))" for digit in range(4)]

    def evaluate(node):
        right, length = node.observation["stdout"].split() if node.observation["stdout"] else ("True", "0")
        return float(length) if right == "True" else -1.0

    with BranchTree(env, max_snapshots=8) as tree:
        best = best_first(tree, propose, evaluate, expansions=12)
    assert evaluate(best) == 3.0


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


@pytest.fixture(scope="module")
def vector_env(pool):
    with closing(gym.make_vec("CodingEnv-v0", num_envs=2, pool=pool, **OPTIONS)) as envs:
        yield envs


def test_vector_environments_go_on_from_snapshots(vector_env):
    vector_env.reset(seed=1)
    vector_env.step(["x = 'a'", "x = 'b'"])
    snapshots = vector_env.clone_states()
    vector_env.step(["x = 'c'", "x = 'd'"])
    obs, infos = vector_env.restore_states([snapshots[0], None])
    assert obs["stdout"][0] == ""
    assert infos["_outcome"].tolist() == [True, False]
    obs, *_ = vector_env.step(["print(x)"] * 2)
    assert obs["stdout"] == ("a\n", "d\n")
    obs, _ = vector_env.restore_states(snapshots, seeds=[1, 1])
    obs, *_ = vector_env.step(["import random; print(x, random.random())"] * 2)
    first, second = (text.split() for text in obs["stdout"])
    assert (first[0], second[0], first[1] == second[1]) == ("a", "b", True)


def test_vector_mask_selects_environments(vector_env):
    vector_env.reset(seed=1)
    snapshots = vector_env.clone_states(np.array([False, True]))
    assert [snapshot is None for snapshot in snapshots] == [True, False]
    with pytest.raises(ConfigurationError, match="mask of shape"):
        vector_env.clone_states(np.array([True]))
    with pytest.raises(ConfigurationError, match="2 snapshots"):
        vector_env.restore_states(snapshots[1:])


def test_vector_releases_snapshots_when_one_is_refused(vector_env):
    vector_env.reset(seed=1)
    vector_env.step(["1", "import socket; pair = socket.socketpair()"])
    for _ in range(40):
        # More than the sandbox permits.
        with pytest.raises(SnapshotError):
            vector_env.clone_states()
    assert vector_env.step(["print(1)"] * 2)[0]["stdout"] == ("1\n", "1\n")


def test_vector_counts_steps_of_restored_episode(pool):
    with closing(gym.make_vec("CodingEnv-v0", num_envs=1, pool=pool, max_episode_steps=3, **OPTIONS)) as envs:
        envs.reset(seed=1)
        envs.step(["1"])
        snapshots = envs.clone_states()
        assert [envs.step(["1"])[3].tolist() for _ in range(2)] == [[False], [True]]
        envs.restore_states(snapshots)
        assert [envs.step(["1"])[3].tolist() for _ in range(2)] == [[False], [True]]
