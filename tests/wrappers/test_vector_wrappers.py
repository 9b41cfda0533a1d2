"""Vector wrappers equal vector environments of singly wrapped environments, step by step."""

from __future__ import annotations

from contextlib import closing

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from coding_gym import wrappers
from coding_gym.errors import ConfigurationError, InvalidActionError
from coding_gym.wrappers import terms, vector

CODES = [
    ["print(1)", "1 / 0", "x = 1"],
    ["print(1)", "import os", "print(x)"],
    ["raise SystemExit(3)", "print(1)", "print(x)"],
    ["print(1)", "print(1)", "print(1)"],
    ["print('\N{SNOWMAN}')", "", "print(1)"],
    ["7", "7", "7"],
]

FORMS = {
    "RewardSum": ({"terms": {"novelty": 1.0, "safety": 0.5, "lint": -0.1, "exit_code": 0.25, terms.OutputMatch("1\n"): 1.0}}),
    "PotentialShaping": {"potential": "novelty", "gamma": 0.5},
    "BytesObservation": {"length": 8},
    "StackTranscript": {"steps": 2},
    "ChatObservation": {"prompt": "Go!", "turns": 2},
    "GrayScreen": {"keep_dim": True},
    "ResizeScreen": {"size": (16, 12)},
}


def end_at_three(env):
    """Wrap an environment: episodes end at a step with exit code 3, or after three steps."""

    class EndAtThree(gym.Wrapper):
        def step(self, action):
            observation, reward, terminated, truncated, info = self.env.step(action)
            return observation, reward, terminated or observation["exit_code"] == 3, truncated, info

    return gym.wrappers.TimeLimit(EndAtThree(env), 3)


@pytest.fixture
def make(pool):
    made = []

    def make(mode, wrap=lambda env: env, screen=None):
        def one():
            return wrap(end_at_three(gym.make("CodingEnv-v0", pool=pool, screen=screen)))

        made.append(SyncVectorEnv([one] * 3, autoreset_mode=mode))
        return made[-1]

    yield make
    for envs in made:
        envs.close()


def play(envs, mode):
    yield envs.reset(seed=7)
    for codes in CODES:
        result = envs.step(codes)
        yield result
        done = np.logical_or(result[2], result[3])
        if mode is AutoresetMode.DISABLED and done.any():
            yield envs.reset(options={"reset_mask": done})


@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.screen) if "Screen" in name else name for name in FORMS])
def test_vector_forms_equal_single_forms(make, name, mode):
    options = FORMS[name]
    screen = (64, 48) if "Screen" in name else None
    single = make(mode, lambda env: getattr(wrappers, name)(env, **options), screen)
    # One after the other, because the pool has four slots.
    expected = list(play(single, mode))
    spaces = single.single_observation_space, single.observation_space
    single.close()
    together = getattr(vector, name)(make(mode, screen=screen), **options)
    assert (together.single_observation_space, together.observation_space) == spaces
    for found, wanted in zip(play(together, mode), expected, strict=True):
        assert data_equivalence(found, wanted)
        assert found[0] in together.observation_space


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_terms_restart_with_each_environment_episode(pool, mode):
    envs = gym.make_vec("CodingEnv-v0", num_envs=2, pool=pool, screen=None, max_episode_steps=2, autoreset_mode=mode)
    with closing(vector.RewardSum(envs, {"novelty": 1.0})) as envs:
        _, infos = envs.reset(seed=1)
        assert infos["reward_terms"]["novelty"].tolist() == [0, 0]
        steps = [envs.step(["7", "8"]) for _ in range(5)]
        rewards = [rewards.tolist() for _, rewards, *_ in steps]
        assert rewards == [[value] * 2 for value in ([1, 0, 0, 1, 0] if mode is AutoresetMode.NEXT_STEP else [1, 0, 1, 0, 1])]
        infos = steps[1][-1]
        if mode is AutoresetMode.SAME_STEP:
            assert infos["final_info"]["reward_terms"]["novelty"].tolist() == [0, 0]
        assert infos["reward_terms"]["novelty"].tolist() == [0, 0]


def test_step_time_is_shared_by_environments(pool):
    envs = gym.make_vec("CodingEnv-v0", num_envs=2, pool=pool, screen=None)
    with closing(vector.RewardSum(envs, {terms.TimePenalty(per="second"): 1.0})) as envs:
        envs.reset(seed=1)
        first, second = envs.step(["import time; time.sleep(0.2)", "1"])[1]
        assert 0.2 <= first == second < 10


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_vector_wrappers_compose_for_learners(pool, mode):
    envs = gym.make_vec("CodingEnv-v0", num_envs=2, pool=pool, screen=None, max_episode_steps=2, autoreset_mode=mode)
    envs = vector.RewardSum(envs, {"exit_code": 1.0, "length": -0.1})
    envs = gym.wrappers.vector.ClipReward(envs, -1.0, 0.5)
    envs = vector.BytesObservation(envs, length=8)
    envs = vector.SnippetActions(envs, ["print(1)", "1 / 0"])
    with closing(envs):
        assert envs.single_action_space == gym.spaces.Discrete(2)
        envs.reset(seed=1)
        envs.action_space.seed(1)
        for _ in range(4):
            observations, *_ = envs.step(envs.action_space.sample())
            assert observations in envs.observation_space
        observations, rewards, *_ = envs.step(np.array([0, 1]))
        if mode is AutoresetMode.NEXT_STEP:
            assert rewards.tolist() == [0.5, pytest.approx(-0.0005)]
        with pytest.raises(InvalidActionError):
            envs.step(np.array([0, 2]))


def test_invalid_term_and_missing_mode_are_refused():
    envs = gym.make_vec("CodingEnv-v0", num_envs=2, provider="local")
    with pytest.raises(ConfigurationError, match="no reward term 'nope'"):
        vector.RewardSum(envs, {"nope": 1.0})
    envs.metadata = {}
    with pytest.raises(ConfigurationError, match="autoreset_mode"):
        vector.BytesObservation(envs)
    envs.close()
