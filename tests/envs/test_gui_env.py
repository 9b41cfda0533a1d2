from __future__ import annotations

import json
import pickle
import warnings

import gymnasium as gym
import pytest
from gymnasium.utils.env_checker import check_env

from coding_gym import CodingEnvGUI, inputs
from coding_gym.errors import ConfigurationError, InvalidActionError
from tests.support.timing import eventually

pytestmark = pytest.mark.usefixtures("xvfb")

FAST = {"provider": "local", "preload": (), "step_timeout": 60}


@pytest.fixture(scope="module")
def env(pool):
    """Environment shared by the tests that begin with a reset."""
    with gym.make("CodingEnvGUI-v0", render_mode="ansi", pool=pool) as env:
        yield env


def act(code="", *events):
    return {"code": code, "events": list(events)}


# Registration, checker and spec


def test_make_returns_gui_env():
    with gym.make("CodingEnvGUI-v0") as env:
        assert isinstance(env.unwrapped, CodingEnvGUI)
        assert env.unwrapped.settings.on_idle == "return"
        assert set(env.action_space.spaces) == {"code", "events"}


def test_gymnasium_checker_accepts_environment(pool):
    with gym.make("CodingEnvGUI-v0", step_timeout=60, pool=pool) as env, warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env.unwrapped)


def test_spec_survives_json_and_environment_survives_pickling():
    options = {**FAST, "preload": [], "settle": 0.5, "on_idle": "close", "screen": [64, 48]}
    with gym.make("CodingEnvGUI-v0", **options) as env:
        text = env.spec.to_json()
        again = pickle.loads(pickle.dumps(env.unwrapped))
    assert json.loads(text)["kwargs"] == options
    assert again.settings == env.unwrapped.settings
    assert again.action_space == env.action_space
    with gym.make(gym.envs.registration.EnvSpec.from_json(text)) as env:
        assert env.unwrapped.settings.screen == (64, 48)


def test_vector_environment_shares_pool(pool):
    envs = gym.make_vec("CodingEnvGUI-v0", num_envs=2, pool=pool)
    try:
        envs.reset(seed=1)
        envs.action_space.seed(1)
        envs.step(envs.action_space.sample())
        assert envs.step({"code": ("1", "2"), "events": ((), (inputs.wait(0),))})[0]["stdout"] == ("1\n", "2\n")
    finally:
        envs.close()


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"screen": None}, "Expected a screen for CodingEnvGUI"),
        ({"settle": -1}, "settle= to be 0 to 60 seconds, got -1"),
        ({"settle": None}, "settle="),
        ({"settle": float("nan")}, "settle="),
        ({"on_idle": "stop"}, "on_idle="),
        ({"nope": 1}, "nope"),
    ],
)
def test_bad_setting_is_refused_with_hint(options, hint):
    with pytest.raises(ConfigurationError, match=hint):
        CodingEnvGUI(**options)


# Actions


def test_transcript_shows_code_and_events(env):
    env.reset(seed=1)
    assert env.step(act("x = 1\nx"))[0]["stdout"] == "1\n"
    assert env.step(act("x + 1", inputs.wait(0)))[0]["stdout"] == "2\n"
    obs, reward, terminated, truncated, info = env.step(act("", inputs.wait(0)))
    assert (obs["stdout"], obs["stderr"], obs["exit_code"]) == ("", "", 0)
    assert (reward, terminated, truncated, info["outcome"]) == (0.0, False, False, "ok")
    assert env.render().splitlines()[0] == "# CodingEnvGUI-v0: default backend, screen 800 x 600, 30 s per step"
    assert env.render().splitlines()[4:] == [">>> x + 1", "... # Wait(seconds=0.0)", "2", ">>> # Wait(seconds=0.0)"]


@pytest.mark.parametrize(
    ("action", "hint"),
    [
        ("print(1)", 'an action such as {"code": "", "events":'),
        (None, "an action such as"),
        ({"code": ""}, "an action such as"),
        ({"code": "", "events": [], "more": 1}, "an action such as"),
        ({"code": 1, "events": []}, r"source text \(str\), got int"),
        ({"code": "\ud800", "events": []}, "lone surrogates"),
        ({"code": "x" * 100_001, "events": []}, "max_code_chars"),
        ({"code": "", "events": inputs.click(1, 2)}, "a list of input events"),
        ({"code": "", "events": [inputs.click(800, 0)]}, "x of 0 to 799 on a screen of 800 x 600"),
        ({"code": "", "events": [inputs.click(0, 600)]}, "y of 0 to 599"),
        ({"code": "", "events": ["click"]}, "an input event such as"),
        ({"code": "", "events": [inputs.wait(0)] * 101}, "at most 100 events, got 101"),
    ],
)
def test_invalid_action_raises_and_keeps_state(env, action, hint):
    env.reset(seed=1)
    env.step(act("x = 41"))
    with pytest.raises(InvalidActionError, match=hint):
        env.unwrapped.step(action)
    assert env.step(act("x + 1"))[0]["stdout"] == "42\n"


def test_step_before_reset_raises():
    with pytest.raises(gym.error.ResetNeeded):
        CodingEnvGUI(**FAST).step(act("1"))


# Interaction with programs

FORM = """
import tkinter as tk

window = tk.Tk()
window.geometry("200x100+50+40")
count = 0

def hit(event):
    global count
    count += 1
    print("hit", count, event.num, (event.x, event.y), flush=True)
    area.configure(background=["#c02020", "#20c020"][count % 2])

area = tk.Frame(window, width=200, height=60, background="#2020c0")
area.pack()
area.bind("<Button>", hit)
entry = tk.Entry(window)
entry.pack()
entry.bind("<Return>", lambda event: print(repr(entry.get()), flush=True))
window.bind("<Control-s>", lambda event: print("saved", flush=True))
window.mainloop()
print("over")
"""

ANIMATION = """
import tkinter as tk

window = tk.Tk()
window.geometry("100x100+0+0")

def turn(number):
    window.configure(background=f"#{number % 256:02x}2020")
    window.after(10, turn, number + 1)

turn(0)
window.mainloop()
"""


def step(env, *events, code=""):
    obs, reward, terminated, truncated, info = env.step(act(code, *events))
    assert (obs["stderr"], reward, terminated, truncated) == ("", 0.0, False, False)
    return obs, info


def answer(env, expected, *events):
    """Send events, and wait for the expected output of the program, which may take longer on a busy machine."""
    obs, _ = step(env, *events)
    seen = [obs]

    def has_answered():
        if "".join(obs["stdout"] for obs in seen) == expected:
            return True
        seen.append(step(env, inputs.wait(0.05))[0])
        return False

    assert eventually(has_answered), seen
    return seen[-1]


def test_events_operate_running_program(env):
    env.reset(seed=1)
    obs, info = step(env, code=FORM)
    assert info == {"outcome": "running", "state_lost": False, "idle": "returned"}
    assert tuple(obs["screenshot"][60, 100]) == (32, 32, 192)
    obs = answer(env, "hit 1 1 (10, 10)\n", inputs.click(60, 50))
    assert tuple(obs["screenshot"][60, 100]) == (32, 192, 32)
    obs = answer(env, "hit 2 3 (20, 20)\n", inputs.click(70, 60, button="right"))
    assert tuple(obs["screenshot"][60, 100]) == (192, 32, 32)
    typed = (inputs.click(150, 110), inputs.text("h\u00e9 \N{SNOWMAN}\n"), inputs.key("ctrl+s"))
    answer(env, "'h\u00e9 \N{SNOWMAN}'\nsaved\n", *typed)
    obs, info = step(env)
    assert (obs["stdout"], obs["exit_code"], info["outcome"]) == ("", 0, "running")
    obs, info = step(env, code="print('next')")
    assert (obs["stdout"], info["outcome"]) == ("over\nnext\n", "ok")
    assert not obs["screenshot"].any()


def test_unknown_key_keeps_program_running(env):
    env.reset(seed=1)
    step(env, code=FORM)
    with pytest.raises(InvalidActionError, match="unknown key 'Nokey'"):
        env.step(act("", inputs.click(60, 50), inputs.key("Nokey")))
    answer(env, "hit 1 1 (10, 10)\n", inputs.click(60, 50))


def test_endless_animation_does_not_delay_step(pool):
    with gym.make("CodingEnvGUI-v0", settle=0.1, pool=pool) as env:
        env.reset(seed=1)
        shown = [step(env, code=ANIMATION)]
        shown += [step(env, inputs.wait(0.05)) for _ in range(3)]
        assert {info["outcome"] for _, info in shown} == {"running"}
        assert shown[0][1]["idle"] == "animating"
        assert len({int(obs["screenshot"][50, 50, 0]) for obs, _ in shown}) > 1
