"""Snapshots of environments, from which the episode continues."""

from __future__ import annotations

import asyncio
from contextlib import closing

import gymnasium as gym
import numpy as np
import pytest

from coding_gym import AsyncCodingEnv
from coding_gym.errors import SnapshotError
from tests.support.environments import OPTIONS, stdout


def test_episode_continues_from_snapshot(env):
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


def test_limit_of_steps_is_that_of_the_episode_restored(env, pool, monkeypatch):
    with env.clone_state() as snapshot, closing(gym.make("CodingEnv-v0", pool=pool, **OPTIONS).unwrapped) as other:
        other.step_timeout = 0.5
        other.reset(seed=1)
        other.restore_state(snapshot)
        monkeypatch.setattr("coding_gym.envs.episode._ANSWER_SLACK", 0.1)
        assert stdout(other, "import time; time.sleep(1); print(1)") == "1\n"


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


@pytest.mark.parametrize("replay", [False, True])
def test_restore_can_release_the_snapshot(env, replay):
    env.step("x = 1")
    snapshot = env.clone_state(replay=replay)
    env.step("x = 2")
    env.restore_state(snapshot, release=True)
    assert stdout(env, "print(x)") == "1\n"
    assert snapshot.is_released
    with pytest.raises(SnapshotError, match="released"):
        env.restore_state(snapshot)


def test_snapshots_are_released_when_collected(env):
    for _ in range(66):
        # More than the sandbox permits.
        env.clone_state()
    assert stdout(env, "print(1)") == "1\n"


def test_refusal_reports_reasons_and_episode_continues(env):
    env.step("import socket; x = 1; pair = socket.socketpair()")
    with pytest.raises(SnapshotError) as refused:
        env.clone_state()
    assert len(refused.value.reasons) == 2
    assert stdout(env, "print(x)") == "1\n"


def test_release_after_end_of_environment_has_no_effect(pool):
    with closing(gym.make("CodingEnv-v0", pool=pool, **OPTIONS).unwrapped) as env:
        env.reset(seed=1)
        snapshot = env.clone_state()
        env.step("1")
    snapshot.release()
    assert snapshot.is_released


def test_task_continues_with_rewards_and_definitions(pool):
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


def test_async_environment_continues_from_snapshot(pool):
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


def test_release_does_not_hinder_the_next_snapshot(env):
    # From the second restore on, a worker is prepared for the next one, which does not come.
    for _ in range(8):
        with env.clone_state() as snapshot:
            env.restore_state(snapshot)
            env.restore_state(snapshot)
        env.clone_state().release()
