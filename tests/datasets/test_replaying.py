from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from coding_gym.datasets import Difference, Episode, Step, collect, load, replay
from coding_gym.datasets.replaying import first_difference
from coding_gym.errors import DatasetError
from tests.datasets.programs import RANDOM, UGLY, WINDOW

OPTIONS = {"screen": None, "step_timeout": 60}


class Drifting(gym.Wrapper):
    """Changes the output from the third episode on."""

    episodes = 0

    def reset(self, **options):
        Drifting.episodes += 1
        return super().reset(**options)

    def step(self, action):
        observation, *rest = super().step(action)
        if Drifting.episodes > 2:
            observation["stdout"] += "!"
        return observation, *rest


@pytest.mark.screen
def test_replay_finds_only_real_differences(pool, tmp_path):
    def run(name, *actions):
        options = {**OPTIONS, "screen": (64, 48)}
        collect("CodingEnv-v0", actions, 2, seed=4, path=tmp_path / name, pool=pool, env_options=options)
        return load(tmp_path / name)

    assert replay(run("a", RANDOM, *UGLY, WINDOW, "1/0"), pool=pool) == []
    dataset = run("b", RANDOM, "open('/proc/uptime').read()")
    found = replay(dataset, pool=pool, sessions=1)
    assert [(difference.episode, difference.step, difference.field) for difference in found] == [
        (0, 2, "observation.stdout"),
        (1, 2, "observation.stdout"),
    ]
    assert str(found[0]).startswith("episode 0, step 2, observation.stdout: expected ")
    assert [difference.episode for difference in replay(tmp_path / "b", 1, pool=pool)] == [1]
    with pytest.raises(DatasetError, match="There is no episode 7"):
        replay(tmp_path / "b", [7])


def test_replay_requires_original_callable_and_wrappers(tmp_path):
    def make():
        return gym.make("CartPole-v1")

    collect(make, "random", 3, seed=1, path=tmp_path, wrappers=[gym.wrappers.RecordEpisodeStatistics])
    with pytest.raises(DatasetError, match=r"was collected from .*make: pass env="):
        replay(tmp_path)
    with pytest.raises(DatasetError, match="pass the same env= and wrappers="):
        replay(tmp_path, env=make)
    differences = replay(tmp_path, env=make, wrappers=[gym.wrappers.RecordEpisodeStatistics])
    # The duration of the episode.
    assert {difference.field for difference in differences} <= {"info.episode.t"}


def test_drifting_wrapper_is_detected(pool, tmp_path):
    Drifting.episodes = 0
    collect("CodingEnv-v0", ["1"], 2, seed=1, path=tmp_path, env_options=OPTIONS, wrappers=[Drifting], pool=pool, sessions=1)
    (first, _) = replay(tmp_path, wrappers=[Drifting], pool=pool, sessions=1)
    assert first == Difference(0, 1, "observation.stdout", "1\n", "1\n!")


def episode(*steps):
    return Episode(index=3, seed=1, steps=steps)


@pytest.mark.parametrize(
    ("expected", "found", "step", "field"),
    [
        ((Step(observation=1),), (Step(observation=2),), 0, "observation"),
        ((Step(observation=1),), (Step(observation=True),), 0, "observation"),
        ((Step(observation={"a": 1}),), (Step(observation={}),), 0, "observation.a"),
        ((Step(observation={}),), (Step(observation={"b": None}),), 0, "observation.b"),
        ((Step(observation=0), Step(observation=0, reward=1.0)), (Step(observation=0), Step(observation=0)), 1, "reward"),
        ((Step(observation=0), Step(observation=0)), (Step(observation=0),), 1, "steps"),
        ((Step(observation=0, info={"x": {"y": [1]}}),), (Step(observation=0, info={"x": {"y": [2]}}),), 0, "info.x.y"),
        ((Step(observation=np.zeros(2)),), (Step(observation=np.zeros(3)),), 0, "observation"),
        ((Step(observation=np.zeros(2)),), (Step(observation=np.zeros(2, int)),), 0, "observation"),
        ((Step(observation=np.zeros(2)),), (Step(observation=None),), 0, "observation"),
    ],
)
def test_first_difference_names_step_and_field(expected, found, step, field):
    difference = first_difference(episode(*expected), episode(*found))
    assert (difference.episode, difference.step, difference.field) == (3, step, field)
    assert str(difference)


def test_nan_values_compare_equal():
    steps = Step(observation={"a": float("nan"), "b": np.array([np.nan, 1])}, reward=float("nan"))
    assert first_difference(episode(steps), episode(steps)) is None
