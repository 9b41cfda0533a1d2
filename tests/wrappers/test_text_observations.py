from __future__ import annotations

from contextlib import closing

import gymnasium as gym
import numpy as np
import pytest

from coding_gym.errors import ConfigurationError
from coding_gym.spaces import ChatMessages
from coding_gym.wrappers import BytesObservation, ChatObservation, FencedCode, GrayScreen, ResizeScreen, StackTranscript


@pytest.fixture
def env(pool):
    with closing(gym.make("CodingEnv-v0", pool=pool, screen=None, max_output_chars=1000)) as env:
        yield env


def test_bytes_keep_tail_even_within_character(env):
    wrapped = BytesObservation(env, length=4, keys=["stdout"])
    wrapped.reset(seed=1)
    observation, *_ = wrapped.step("print('\N{SNOWMAN}' * 2, end='')")
    assert bytes(observation["stdout"]) == "\N{SNOWMAN}".encode()[-1:] + "\N{SNOWMAN}".encode()
    assert observation["stderr"] == ""
    assert observation in wrapped.observation_space


def test_bytes_wrapper_accepts_plain_text_observation(env):
    only = gym.wrappers.TransformObservation(env, lambda seen: seen["stdout"], env.observation_space["stdout"])
    wrapped = BytesObservation(only, length=3)
    wrapped.reset(seed=1)
    assert wrapped.step("print(1)")[0].tolist() == [49, 10, 0]


@pytest.mark.parametrize("options", [{"keys": ["nope"]}, {"keys": ["exit_code"]}, {"keys": []}, {"length": 0}])
def test_bytes_without_text_are_refused(env, options):
    with pytest.raises(ConfigurationError, match=r"Expected (keys|length)="):
        BytesObservation(env, **options)
    with pytest.raises(ConfigurationError, match="which has none"):
        BytesObservation(BytesObservation(env))


def test_transcript_is_limited_to_last_steps(env):
    wrapped = StackTranscript(env, steps=2, max_chars=30)
    assert wrapped.reset(seed=1)[0]["transcript"] == ""
    wrapped.step("1")
    wrapped.step("print(2)")
    observation, *_ = wrapped.step("raise SystemExit(3)")
    assert ">>> print(2)\n2\n>>> raise SystemExit(3)\n[exit code 3]".endswith(observation["transcript"])
    assert len(observation["transcript"]) == 30
    assert wrapped.reset(seed=1)[0]["transcript"] == ""


def test_chat_keeps_prompt_and_last_turns(env):
    wrapped = ChatObservation(FencedCode(env), system="Write code.", prompt="Count.", turns=1)
    first = ({"role": "system", "content": "Write code."}, {"role": "user", "content": "Count."})
    assert wrapped.reset(seed=1)[0]["messages"] == first
    wrapped.step("```\n1\n```")
    said = "Now:\n```\n1 / 0\n```"
    messages = wrapped.step(said)[0]["messages"]
    assert messages[:3] == (*first, {"role": "assistant", "content": said})
    assert messages[3]["content"].endswith("ZeroDivisionError: division by zero\n[exit code 1]")
    assert len(messages) == 4


def test_chat_starts_with_task_prompt(env):
    space = gym.spaces.Dict({**env.observation_space.spaces, "prompt": env.observation_space["stdout"]})
    task = gym.wrappers.TransformObservation(env, lambda seen: {**seen, "prompt": "Sort it."}, space)
    wrapped = ChatObservation(task, describe=lambda seen: seen["stdout"].upper())
    assert wrapped.reset(seed=1)[0]["messages"] == ({"role": "user", "content": "Sort it."},)
    assert wrapped.step("'a'")[0]["messages"][-1] == {"role": "user", "content": "'A'\n"}
    assert wrapped.reset(seed=1)[0]["messages"] == ({"role": "user", "content": "Sort it."},)


@pytest.mark.parametrize("wrapper", [StackTranscript, ChatObservation])
def test_histories_require_text_actions_and_output(env, wrapper):
    with pytest.raises(ConfigurationError, match="stdout, stderr, exit_code"):
        wrapper(gym.wrappers.FilterObservation(env, ["stdout"]))
    with pytest.raises(ConfigurationError, match="wrap the environment once"):
        wrapper(wrapper(env))
    with pytest.raises(ConfigurationError, match="actions are text"):
        wrapper(gym.make("CodingEnvGUI-v0", provider="local"))


@pytest.mark.parametrize("options", [{"turns": 0}, {"system": 3}, {"prompt": b"x"}])
def test_invalid_chat_options_are_refused(env, options):
    with pytest.raises(ConfigurationError, match="Expected"):
        ChatObservation(env, **options)


def test_messages_round_trip_through_json():
    space = ChatMessages(seed=1)
    samples = [space.sample() for _ in range(20)]
    assert all(sample in space for sample in samples)
    assert any(samples)
    assert all(sample in space for sample in space.from_jsonable(space.to_jsonable(samples)))
    assert ChatMessages() == ChatMessages() != ChatMessages(["user", "assistant"])
    assert not any(x in space for x in ("hello", [{"role": "user"}], [{"role": "user", "content": 1}], [("role", "user")]))


def test_resize_and_gray_work_in_either_order():
    colour = np.zeros((48, 64, 3), np.uint8)
    colour[:, 32:] = (255, 0, 0)
    env = gym.make("CodingEnv-v0", provider="local", screen=(64, 48))
    for wrapped in (
        GrayScreen(ResizeScreen(env, (8, 6)), keep_dim=True),
        ResizeScreen(GrayScreen(env, keep_dim=True), (8, 6)),
    ):
        assert wrapped.observation_space["screenshot"].shape == (6, 8, 1)
        small = wrapped.observation(wrapped.env.observation({"screenshot": colour, "stdout": ""}))
        assert small["screenshot"].dtype == np.uint8
        assert small["screenshot"][0, :, 0].tolist() == [0] * 4 + [76] * 4
        assert small["stdout"] == ""
    assert GrayScreen(env).observation({"screenshot": colour})["screenshot"].shape == (48, 64)


@pytest.mark.parametrize(
    ("make", "hint"),
    [
        (lambda env: ResizeScreen(env, 84), "size= to be two positive integers"),
        (lambda env: ResizeScreen(env, (84, 0)), "size= to be two positive integers"),
        (lambda env: GrayScreen(GrayScreen(env)), r"of shape \(height, width, 3\)"),
        (lambda env: GrayScreen(gym.wrappers.FilterObservation(env, ["stdout"])), "have a 'screenshot'"),
    ],
)
def test_invalid_screen_options_are_refused(make, hint):
    with pytest.raises(ConfigurationError, match=hint):
        make(gym.make("CodingEnv-v0", provider="local"))
