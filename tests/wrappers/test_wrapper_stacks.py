"""Wrapped environments pass third-party checks, and can be recreated from their specs."""

from __future__ import annotations

import pickle
import warnings
from contextlib import closing

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env

from coding_gym.wrappers import (
    BytesObservation,
    ChatObservation,
    FencedCode,
    GrayScreen,
    PotentialShaping,
    ResizeScreen,
    RewardSum,
    SnippetActions,
    StackTranscript,
    TemplateActions,
    TokenActions,
    terms,
)
from tests.support.requirements import import_extra

SNIPPETS = {"count": "x = globals().get('x', 0) + 1", "show": "print(x)"}

STACKS = {
    "rewards": lambda env: RewardSum(env, {"exit_code": 1.0, "novelty": 0.5, "safety": 1.0, "lint": -0.1}),
    "shaping": lambda env: PotentialShaping(RewardSum(env, {"env": 1.0, "exit_code": 1.0}), "novelty"),
    "snippets": lambda env: SnippetActions(env, SNIPPETS),
    "tokens": lambda env: TokenActions(env, ["1", "+", "print(", ")"], length=6),
    "template": lambda env: TemplateActions(env, "$x = $n", {"x": ["a", "b"], "n": ["1", "a"]}),
    "template as dict": lambda env: TemplateActions(env, "$x = $n", {"x": ["a", "b"], "n": ["1", "a"]}, as_dict=True),
    "fences": lambda env: FencedCode(env, which="all", no_fence="text"),
    "bytes": lambda env: BytesObservation(env, length=64),
    "transcript": lambda env: BytesObservation(StackTranscript(env, steps=3), keys=["transcript"]),
    "chat": lambda env: ChatObservation(FencedCode(env), system="Write code.", prompt="Count."),
    "screens": lambda env: GrayScreen(ResizeScreen(env, (84, 84)), keep_dim=True),
    "learner": lambda env: SnippetActions(
        BytesObservation(GrayScreen(ResizeScreen(RewardSum(env, {"exit_code": 1.0, "length": -0.1}), (84, 84)), keep_dim=True)),
        SNIPPETS,
    ),
    "token learner": lambda env: TokenActions(
        BytesObservation(RewardSum(env, {"exit_code": 1.0}), length=32), ["1", "+", "print(", ")"], length=6
    ),
}


@pytest.fixture
def env(pool, xvfb):
    with closing(gym.make("CodingEnv-v0", pool=pool, screen=(96, 64), capture="never")) as env:
        yield env


@pytest.mark.parametrize("name", STACKS)
def test_gymnasium_check_passes(env, name):
    wrapped = STACKS[name](env)
    with warnings.catch_warnings():
        # The checker asks for the unwrapped environment, which would leave the wrapper unchecked.
        warnings.filterwarnings("ignore", message=".*different from the unwrapped version.*")
        check_env(wrapped, skip_render_check=True, skip_close_check=True)


@pytest.mark.parametrize("name", ["learner", "token learner"])
def test_stable_baselines3_check_passes_without_warning(env, name):
    checker = import_extra("stable_baselines3.common.env_checker")
    checker.check_env(STACKS[name](env), warn=True)


@pytest.mark.parametrize("name", STACKS)
def test_spec_recreates_environment(name):
    env = STACKS[name](gym.make("CodingEnv-v0", provider="local", screen=(96, 64)))
    for spec in (env.spec, pickle.loads(pickle.dumps(env.spec)), EnvSpec.from_json(env.spec.to_json())):
        again = gym.make(spec)
        assert str(again) == str(env)
        assert (again.action_space, again.observation_space) == (env.action_space, env.observation_space)
        assert [wrapper.kwargs for wrapper in again.spec.additional_wrappers] == [
            wrapper.kwargs for wrapper in spec.additional_wrappers
        ]


@pytest.mark.screen
def test_spec_with_custom_terms_survives_pickling(pool):
    goal = np.zeros((16, 16, 3), np.uint8)
    env = RewardSum(
        gym.make("CodingEnv-v0", provider="local"),
        {terms.OutputMatch("1\n"): 1.0, "goal": (terms.ScreenMatch(goal), 0.5)},
    )
    spec = pickle.loads(pickle.dumps(env.spec))
    spec.kwargs = {"pool": pool, "screen": (32, 32)}
    with closing(gym.make(spec)) as again:
        again.reset(seed=1)
        _, reward, *_, info = again.step("1")
        assert info["reward_terms"] == {"output": 1.0, "goal": pytest.approx(1.0)}
        assert reward == pytest.approx(1.5)
