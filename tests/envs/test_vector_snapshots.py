"""Snapshots of vector environments."""

from __future__ import annotations

from contextlib import closing

import gymnasium as gym
import numpy as np
import pytest

from coding_gym.errors import ConfigurationError, SnapshotError
from tests.support.environments import OPTIONS


def test_vector_environments_continue_from_snapshots(vector_env):
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
