from __future__ import annotations

from contextlib import closing

import gymnasium as gym
import pytest

from coding_gym.errors import ConfigurationError
from coding_gym.wrappers import PotentialShaping, RewardSum, SnippetActions, terms


@pytest.fixture
def env(pool):
    with closing(gym.make("CodingEnv-v0", pool=pool, screen=None)) as env:
        yield env


class Told(gym.Wrapper):
    """Returns rewards, ends and infos specified by a test."""

    def __init__(self, env, told):
        super().__init__(env)
        self.told = list(told)

    def step(self, action):
        observation, _, _, _, info = self.env.step(action)
        reward, terminated, truncated, more = self.told.pop(0)
        return observation, reward, terminated, truncated, {**info, **more}


def brief(step):
    return float(len(step.code) < 5)


def test_terms_are_summed_weighted_and_reported_unweighted(env):
    wrapped = RewardSum(env, {"exit_code": 2.0, brief: 0.5, "answer": (terms.OutputMatch("7\n"), 1), "time": -0.25})
    _, info = wrapped.reset(seed=1)
    assert info["reward_terms"] == {"exit_code": 0.0, "brief": 0.0, "answer": 0.0, "time": 0.0}
    _, reward, *_, info = wrapped.step("7")
    assert (reward, info["reward_terms"]) == (3.25, {"exit_code": 1.0, "brief": 1.0, "answer": 1.0, "time": 1.0})
    assert wrapped.step("1 / 0")[1] == -0.25


def test_terms_reset_with_episode(env):
    wrapped = RewardSum(env, {"novelty": 1.0})
    for _ in range(2):
        wrapped.reset(seed=1)
        assert [wrapped.step("7")[1] for _ in range(2)] == [1, 0]


def test_wrappers_never_share_term_state(env):
    novelty = terms.Novelty()
    first, second = RewardSum(env, {novelty: 1.0}), RewardSum(env, {novelty: 1.0})
    first.reset(seed=1)
    assert first.step("7")[1] == 1
    second.reset(seed=1)
    assert second.step("7")[1] == 1


def test_terms_receive_previous_observation_and_info(env):
    seen = []
    wrapped = RewardSum(env, {(lambda step: seen.append(step) or 0.0): 1.0})
    wrapped.reset(seed=1)
    wrapped.step("1")
    wrapped.step("2")
    assert [(step.number, step.previous_observation["stdout"], step.stdout) for step in seen] == [
        (1, "", "1\n"),
        (2, "1\n", "2\n"),
    ]
    assert seen[1].previous_info["outcome"] == "ok"
    assert seen[0].seconds > 0


def test_environment_reward_is_available_as_term(env):
    wrapped = RewardSum(Told(env, [(0.5, False, False, {})]), {"env": 2.0, "exit_code": 1.0})
    wrapped.reset(seed=1)
    assert wrapped.step("1")[1] == 2.0


def test_infrastructure_failure_earns_no_reward(env):
    fault = (0.0, False, True, {"outcome": "infrastructure"})
    wrapped = RewardSum(Told(env, [fault]), {"exit_code": 1.0, "time": -1.0})
    _, info = wrapped.reset(seed=1)
    _, reward, terminated, truncated, info = wrapped.step("1")
    assert (reward, terminated, truncated) == (0.0, False, True)
    assert info["reward_terms"] == {"exit_code": 0.0, "time": 0.0}
    shaped = PotentialShaping(Told(env, [(0.0, False, False, {}), fault]), "time", gamma=1.0)
    shaped.reset(seed=1)
    assert [shaped.step("1")[1] for _ in range(2)] == [1.0, 0.0]


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        (["tests"], "to be a mapping"),
        ({"nope": 1.0}, "no reward term 'nope'"),
        ({"output": 1.0}, "pass others as objects"),
        ({3: 1.0}, "Expected a reward term"),
        ({"tests": "1"}, "weight of the reward term 'tests'"),
        ({"tests": True}, "weight of the reward term 'tests'"),
        ({"tests": 1.0, terms.PassedTests(): 1.0}, "'tests' more than once"),
    ],
)
def test_invalid_terms_are_refused(env, given, hint):
    with pytest.raises(ConfigurationError, match=hint):
        RewardSum(env, given)


def test_wrong_wrapper_order_is_explained(env):
    wrapped = RewardSum(SnippetActions(env, ["1"]), {"length": -1.0})
    wrapped.reset(seed=1)
    with pytest.raises(ConfigurationError, match="inside of the wrappers that change actions"):
        wrapped.step(0)


# Shaping


@pytest.mark.parametrize("gamma", [1.0, 0.9, 0.0])
def test_terminated_episode_return_keeps_only_first_potential(env, gamma):
    told = [(1.0, False, False, {}), (0.0, False, False, {}), (3.0, True, False, {})]
    wrapped = PotentialShaping(Told(env, told), lambda observation, info: 5 + len(observation["stdout"]), gamma=gamma)
    wrapped.reset(seed=1)
    rewards = [wrapped.step(code)[1] for code in ("print('abc')", "1", "print('defghi')")]
    discounted = sum(gamma**n * reward for n, reward in enumerate(rewards))
    assert discounted == pytest.approx(1.0 + gamma**2 * 3.0 - 5)


def test_truncated_episode_keeps_last_potential(env):
    wrapped = PotentialShaping(Told(env, [(0.0, False, True, {})]), lambda observation, info: 2.0, gamma=0.5)
    assert wrapped.reset(seed=1)[1]["shaping"] == 0.0
    _, reward, _, _, info = wrapped.step("1")
    assert reward == info["shaping"] == 0.5 * 2 - 2


@pytest.mark.parametrize(("potential", "gamma"), [("nope", 0.9), (3, 0.9), ("tests", 1.5), ("tests", -0.1)])
def test_invalid_shaping_is_refused(env, potential, gamma):
    with pytest.raises(ConfigurationError, match=r"Expected|no reward term"):
        PotentialShaping(env, potential, gamma=gamma)
