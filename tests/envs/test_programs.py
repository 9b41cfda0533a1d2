"""Environments whose actions are whole programs in another language than Python."""

from __future__ import annotations

import asyncio
import contextlib

import gymnasium as gym
import pytest

from coding_gym import AsyncCodingEnv
from coding_gym.errors import ConfigurationError
from coding_gym_server.languages import find_language, languages

OPTIONS = {"provider": "local", "preload": (), "screen": None, "languages": ("cpp",)}
HELLO = '#include <cstdio>\nint main() { puts("hello"); return 3; }'

pytestmark = pytest.mark.skipif(bool(find_language("cpp").missing()), reason="this machine lacks a compiler of C++")


def test_actions_are_programs():
    with contextlib.closing(gym.make("CodingEnv-v0", backend="c++", **OPTIONS)) as env:
        env.reset(seed=1)
        observation, *_, info = env.step(HELLO)
        assert (observation["stdout"], observation["stderr"], observation["exit_code"]) == ("hello\n", "", 3)
        assert (info["outcome"], info["state_lost"]) == ("error", False)
        observation, *_ = env.step("int main() { return x; }")
        assert "main.cpp:1:21: error" in observation["stderr"]


def test_actions_of_vector_environments_are_programs():
    with contextlib.closing(gym.make_vec("CodingEnv-v0", num_envs=2, backend="cpp20", **OPTIONS)) as envs:
        envs.reset(seed=1)
        observation, *_ = envs.step((HELLO, HELLO.replace("hello", "other")))
        assert list(observation["stdout"]) == ["hello\n", "other\n"]


def test_actions_of_asynchronous_environments_are_programs():
    async def main() -> str:
        async with AsyncCodingEnv(backend="cpp", **OPTIONS) as env:
            await env.reset(seed=1)
            observation, *_ = await env.step(HELLO)
            return observation["stdout"]

    assert asyncio.run(main()) == "hello\n"


def test_missing_language_is_refused_with_the_option():
    lacking = next((name for name, language in languages().items() if language.missing()), None)
    if lacking is None:
        pytest.skip("this machine has all languages")
    with pytest.raises(ConfigurationError, match=rf"lacks .*languages=\('{lacking}',\)"):
        gym.make("CodingEnv-v0", backend=lacking, **OPTIONS).reset(seed=1)
    with pytest.raises(ConfigurationError, match=rf"lacks .* for {lacking}: run 'apt install"):
        gym.make("CodingEnv-v0", backend=lacking, **{**OPTIONS, "languages": (lacking,)}).reset(seed=1)


def test_misspelled_language_is_refused_with_a_hint():
    with pytest.raises(ConfigurationError, match=r"Unknown backend 'haskel'.*haskell.*did you mean 'haskell'"):
        gym.make("CodingEnv-v0", backend="haskel", **OPTIONS)
