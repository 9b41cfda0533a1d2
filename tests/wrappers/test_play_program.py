from __future__ import annotations

import json

import gymnasium as gym
import numpy as np
import pytest

from coding_gym import inputs
from coding_gym.errors import ConfigurationError, InvalidActionError
from coding_gym.wrappers import PlayProgram

pytestmark = pytest.mark.usefixtures("xvfb")

FAST = {"provider": "local", "preload": (), "step_timeout": 60, "settle": 0}


@pytest.fixture
def play():
    made = []

    def play(program="", *, screen="auto", **options):
        made.append(PlayProgram(gym.make("CodingEnvGUI-v0", screen=screen, **FAST), program, **options))
        return made[-1]

    yield play
    for env in made:
        env.close()


# Spaces and settings


def test_actions_cover_noop_keys_and_cells(play):
    env = play(screen=(640, 480), keys=["Left", "ctrl+a"], grid=(2, 3), resolution=(40, 30), hold=0.5)
    assert env.action_space == gym.spaces.Discrete(9)
    assert env.observation_space.shape == (30, 40, 3)
    pause = inputs.wait(0.5)
    assert env.events_of(0) == [pause]
    assert env.events_of(1) == [inputs.key_down("Left"), pause, inputs.key_up("Left")]
    assert env.events_of(2)[0] == inputs.key_down("ctrl+a")
    assert [env.events_of(action) for action in range(3, 9)] == [
        [inputs.click(x, y), pause] for y in (80, 240, 400) for x in (160, 480)
    ]


def test_spec_round_trips_through_json(play):
    env = play("pass", keys=["Left"], grid=[8, 6])
    spec = gym.envs.registration.EnvSpec.from_json(env.spec.to_json())
    assert json.loads(env.spec.to_json())["additional_wrappers"][-1]["name"] == "PlayProgram"
    with gym.make(spec) as again:
        assert again.action_space == env.action_space
        assert again.events_of(49) == env.events_of(49)


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"keys": "Left"}, "keys= to be a list of names"),
        ({"keys": [5]}, "keys= and hold=.*KeyDown"),
        ({"keys": [""]}, "keys= and hold="),
        ({"hold": -1}, "keys= and hold=.*Wait"),
        ({"grid": 5}, "grid= to be two positive integers, got 5"),
        ({"grid": (0, 1)}, "grid="),
        ({"resolution": (84,)}, "resolution="),
        ({"resolution": (84.0, 84)}, "resolution="),
    ],
)
def test_bad_setting_is_refused_with_hint(play, options, hint):
    with pytest.raises(ConfigurationError, match=hint):
        play(**options)


def test_other_environment_is_refused():
    with pytest.raises(ConfigurationError, match=r"Expected a CodingEnvGUI to play in, got .*CodingEnv.*settle=0"):
        PlayProgram(gym.make("CodingEnv-v0", provider="local"), "")


# Programs


@pytest.mark.parametrize(("program", "hint"), [("print('hi')", "outcome ok, exit code 0.*hi"), ("1/0", "ZeroDivisionError")])
def test_program_that_ends_is_refused(play, program, hint):
    with pytest.raises(ConfigurationError, match=f"(?s)Expected a program that shows a window.*{hint}"):
        play(program).reset()


@pytest.mark.parametrize("action", [-1, 1, "Left", None, 0.5])
def test_invalid_action_raises(play, action):
    with pytest.raises(InvalidActionError, match="Expected an action of 0 to 0"):
        play().step(action)


GAME = """
import tkinter as tk

window = tk.Tk()
window.geometry("200x100+0+0")
window.focus_force()
held, place = set(), 0
window.bind("<KeyPress>", lambda event: held.add(event.keysym))
window.bind("<KeyRelease>", lambda event: held.discard(event.keysym))
window.bind("<Button>", lambda event: print("click", event.x, event.y, flush=True))
player = tk.Frame(window, width=20, height=100, background="#ffffff")

def turn():
    global place
    place += 5 * (("Right" in held) - ("Left" in held))
    player.place(x=place, y=0)
    if place >= 60:
        print("won", flush=True)
        window.destroy()
    else:
        window.after(5, turn)

turn()
window.configure(background="#202020")
window.mainloop()
"""


def test_game_is_playable_until_won(play):
    env = play(
        GAME,
        screen=(200, 100),
        keys=["Left", "Right"],
        grid=(2, 1),
        resolution=(20, 10),
        hold=0.03,
        reward=lambda obs: obs["stdout"].count("won"),
    )
    for _ in range(2):
        first, info = env.reset(seed=1)
        assert info["outcome"] == "running"
        assert first in env.observation_space
        assert env.step(4)[4]["stdout"] == "click 150 50\n"
        begin = env.step(0)[0]
        results = [env.step(2)]
        while not results[-1][2] and len(results) < 50:
            results.append(env.step(2))
        observations, rewards, ends, truncations, infos = zip(*results, strict=True)
        assert all(observation in env.observation_space for observation in observations)
        assert not np.array_equal(observations[0], begin)
        assert ends[-1]
        assert not any(truncations)
        assert sum(rewards) == 1
        assert infos[-1]["outcome"] == "ok"
        assert "".join(info["stdout"] for info in infos) == "won\n"
