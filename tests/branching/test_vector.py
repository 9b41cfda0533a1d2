"""Vector wrappers keep the state of each environment when it continues from a snapshot."""

from __future__ import annotations

import copy
from contextlib import closing

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import TimeAwareObservation
from gymnasium.wrappers.vector import NormalizeObservation, RecordEpisodeStatistics, TransformReward

from coding_gym import branching
from coding_gym.errors import ConfigurationError
from coding_gym.wrappers import vector

BEFORE = [["x = 1", "x = 2"], ["print(x)", "print(x)"]]
AFTER = [["print(x)", "print(3)"], ["1 / 0", "x = 4"], ["print(x)", "print(x)"]]


def rewarded(envs):
    return vector.RewardSum(envs, {"novelty": 1.0, "exit_code": 0.5})


STACKS = {
    "RewardSum": rewarded,
    "PotentialShaping": lambda envs: vector.PotentialShaping(rewarded(envs), "novelty", gamma=0.5),
    "StackTranscript": lambda envs: vector.StackTranscript(envs, steps=3),
    "ChatObservation": lambda envs: vector.ChatObservation(envs, prompt="Go!", turns=3),
    "BytesObservation": lambda envs: vector.BytesObservation(envs, length=8),
    "FencedCode": lambda envs: vector.FencedCode(envs, no_fence="text"),
    "RecordEpisodeStatistics": lambda envs: RecordEpisodeStatistics(rewarded(envs)),
    "TransformReward": lambda envs: TransformReward(rewarded(envs), lambda rewards: 2 * rewards),
    "all": lambda envs: RecordEpisodeStatistics(vector.StackTranscript(rewarded(envs))),
}


@pytest.fixture(params=[AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP], ids=["next step", "same step"])
def two(request, pool):
    options = {"screen": None, "step_timeout": 20, "max_episode_steps": 4, "autoreset_mode": request.param}
    with closing(gym.make_vec("CodingEnv-v0", num_envs=2, pool=pool, **options)) as envs:
        yield envs


def steps(envs, actions):
    """Return all results of steps, except times."""
    results = []
    for action in actions:
        result = copy.deepcopy(envs.step(action))
        result[4].get("episode", {}).pop("t", None)
        results.append(result)
    return results


@pytest.mark.parametrize("name", STACKS)
def test_wrapped_environments_continue_from_snapshots(two, name):
    envs = STACKS[name](two)
    envs.reset(seed=1)
    steps(envs, BEFORE)
    snapshots = branching.clone_states(envs)
    expected = steps(envs, AFTER[:2])
    for _ in range(2):
        observations, infos = branching.restore_states(envs, snapshots)
        assert envs.observation_space.contains(observations)
        assert infos["outcome"].tolist() == ["ok", "ok"]
        assert data_equivalence(steps(envs, AFTER[:2]), expected)
    for snapshot in snapshots:
        snapshot.release()


def test_one_environment_continues_from_snapshot(two):
    envs = vector.StackTranscript(rewarded(two))
    envs.reset(seed=1)
    steps(envs, BEFORE)
    snapshots = branching.clone_states(envs, np.array([False, True]))
    assert [snapshot is None for snapshot in snapshots] == [True, False]
    envs.step(["print(5)", "print(6)"])
    observations, _ = branching.restore_states(envs, snapshots)
    assert [text.splitlines()[-1] for text in observations["transcript"]] == ["5", "2"]
    _, rewards, _, truncations, _ = envs.step(["print(5)", "print(6)"])
    assert (rewards.tolist(), truncations.tolist()) == ([0.5, 1.5], [True, False])


def test_statistics_do_not_count_observations_of_restored_states(pool):
    with closing(gym.make_vec("CodingEnv-v0", num_envs=1, pool=pool, screen=None)) as envs:
        numbers = vector.VectorizeWrapper(envs, _exit_codes)
        envs = NormalizeObservation(numbers)
        envs.reset(seed=1)
        snapshots = branching.clone_states(envs)
        envs.step(["1 / 0"])
        count = envs.obs_rms.count
        branching.restore_states(envs, snapshots)
        assert envs.obs_rms.count == count


def _exit_codes(env):
    space = gym.spaces.Box(0, 255, (1,), np.float32)
    return gym.wrappers.TransformObservation(env, lambda obs: np.array([obs["exit_code"]], np.float32), space)


def test_snapshots_of_other_wrappers_are_refused(two):
    two.reset(seed=1)
    # Before Gymnasium 1.4, a wrapper that is collected closes what it wraps.
    wrapped = rewarded(two)
    snapshots = branching.clone_states(wrapped)
    with pytest.raises(ConfigurationError, match="no wrappers, got one with the wrappers RewardSum"):
        branching.restore_states(two, snapshots)


def test_vector_environment_that_cannot_clone_is_refused():
    envs = gym.make_vec("CartPole-v1", num_envs=2, vectorization_mode="sync")
    with pytest.raises(ConfigurationError, match="Expected an environment that has clone_states and restore_states"):
        branching.clone_states(envs)


def test_wrappers_of_each_environment_see_restored_states(pool):
    with closing(gym.make_vec("CodingEnv-v0", num_envs=2, pool=pool, screen=None)) as envs:
        timed = vector.VectorizeWrapper(envs, _timed)
        timed.reset(seed=1)
        timed.step(["1", "1"])
        snapshots = branching.clone_states(timed)
        timed.step(["1", "1"])
        observations, _ = branching.restore_states(timed, [snapshots[0], None])
        assert observations["time"].tolist() == [[1], [2]]


def _timed(env):
    return TimeAwareObservation(gym.wrappers.TimeLimit(env, 5), flatten=False)
