from __future__ import annotations

from contextlib import closing

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from coding_gym import CodingGuiVectorEnv, inputs
from coding_gym.errors import ConfigurationError, InvalidActionError

pytestmark = pytest.mark.usefixtures("xvfb")

OPTIONS = {"screen": (64, 48), "step_timeout": 20, "settle": 2.0}
FAST = {"provider": "local", "preload": (), **OPTIONS}
WINDOW = """
import tkinter as tk
window = tk.Tk()
window.geometry("64x48+0+0")
window.configure(background="#2020c0")
window.bind("<Button>", lambda event: (window.configure(background="#20c020"), print("hit", event.x, event.y, flush=True)))
window.mainloop()
"""


@pytest.fixture(scope="module")
def envs():
    with closing(gym.make_vec("CodingEnvGUI-v0", num_envs=2, **FAST)) as envs:
        yield envs


def batch(*actions):
    codes, events = zip(*actions, strict=True)
    return {"code": codes, "events": events}


def assert_equal(ours, theirs, context):
    assert data_equivalence(ours, theirs), f"{context}:\n{ours}\n{theirs}"


def test_make_vec_uses_the_vector_entry_point():
    with closing(gym.make_vec("CodingEnvGUI-v0", num_envs=4)) as envs:
        assert isinstance(envs, CodingGuiVectorEnv)
        assert {env.settings.on_idle for env in envs.envs} == {"return"}
        assert envs.single_action_space == envs.envs[0].action_space
        assert envs.action_space.sample() in envs.action_space


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_results_equal_sync_vector_env(mode, pool):
    click, wait = [inputs.click(10, 20)], [inputs.wait(0.05)]

    def one():
        return gym.make("CodingEnvGUI-v0", max_episode_steps=3, pool=pool, **OPTIONS)

    made = gym.make_vec("CodingEnvGUI-v0", num_envs=2, max_episode_steps=3, autoreset_mode=mode, pool=pool, **OPTIONS)
    with closing(made) as ours, closing(SyncVectorEnv([one] * 2, autoreset_mode=mode)) as theirs:
        assert ours.observation_space == theirs.observation_space
        assert ours.action_space == theirs.action_space
        assert ours.metadata == theirs.metadata
        assert_equal(ours.reset(seed=[3, 5]), theirs.reset(seed=[3, 5]), "reset")
        steps = [
            batch((WINDOW, ()), ("import random; random.random()", wait)),
            batch(("", click), (WINDOW, ())),
            batch(("", wait), ("", click)),
            batch((WINDOW, wait), ("1 / 0", ())),
            batch(("1", ()), ("import random; random.random()", [])),
        ]
        shown = []
        for number, actions in enumerate(steps):
            mine, other = ours.step(actions), theirs.step(actions)
            assert_equal(mine, other, f"step {number}")
            assert mine[0] in ours.observation_space
            shown.append(mine[0])
            ended = mine[2] | mine[3]
            if mode is AutoresetMode.DISABLED and ended.any():
                options = {"reset_mask": ended}
                assert_equal(ours.reset(seed=7, options=dict(options)), theirs.reset(seed=7, options=dict(options)), "reset")
        assert tuple(shown[0]["screenshot"][0, 40, 40]) == (32, 32, 192)
        assert shown[1]["stdout"][0] == "hit 10 20\n"
        assert tuple(shown[1]["screenshot"][0, 40, 40]) == (32, 192, 32)


@pytest.mark.parametrize(
    ("actions", "hint"),
    [
        (("1", "2"), "a batch of actions such as"),
        ("12", "a batch of actions such as"),
        ({"code": ("1", "2")}, "a batch of actions such as"),
        ({"code": "12", "events": ((), ())}, "2 entries in 'code'"),
        ({"code": ("1",), "events": ((), ())}, "2 entries in 'code'"),
        ({"code": ("1", "2"), "events": ()}, "2 entries in 'events'"),
        ({"code": ("1", "2"), "events": None}, "2 entries in 'events'"),
        ({"code": ("x = 2", "2"), "events": ((), (inputs.click(64, 0),))}, "x of 0 to 63"),
        ({"code": ("x = 2", 5), "events": ((), ())}, "source text"),
    ],
)
def test_invalid_batch_runs_nothing(envs, actions, hint):
    envs.reset(seed=1)
    envs.step(batch(("x = 1", ()), ("", ())))
    with pytest.raises(InvalidActionError, match=hint):
        envs.step(actions)
    assert envs.step(batch(("x", ()), ("", ())))[0]["stdout"] == ("1\n", "")


@pytest.mark.parametrize("position", [0, 1])
def test_unknown_key_leaves_all_sessions_usable(envs, position):
    envs.reset(seed=1)
    actions = [("x = 1", ()), ("x = 1", ())]
    actions[position] = ("x = 1", [inputs.key("Nokey")])
    with pytest.raises(InvalidActionError, match="unknown key 'Nokey'"):
        envs.step(batch(*actions))
    observations, _, _, truncations, _ = envs.step(batch(("'x' in globals()", ()), ("'x' in globals()", ())))
    assert observations["stdout"][1 - position] == "True\n"
    assert observations["stdout"][position] == "False\n"
    assert not np.any(truncations)


def test_actions_of_some_are_sent_and_received(envs):
    envs.reset(seed=1)
    with pytest.raises(InvalidActionError, match="1 entries in 'events'"):
        envs.send({"code": ("1",), "events": ((), ())}, [1])
    envs.send({"code": ("1",), "events": ([inputs.wait(0.05)],)}, [1])
    observations, *_, infos = envs.recv(timeout=30)
    assert infos["env_id"].tolist() == [1]
    assert observations["stdout"] == ("1\n",)
    assert observations["screenshot"].shape == (1, 48, 64, 3)


def test_unknown_key_is_raised_by_recv_and_keeps_other_answers(envs):
    envs.reset(seed=1)
    envs.send(batch(("x = 1", [inputs.key("Nokey")]), ("7", ())))
    with pytest.raises(InvalidActionError, match="unknown key 'Nokey'") as caught:
        envs.recv(min_ready=2, timeout=30)
    assert caught.value.__notes__ == ["This is the answer of environment 0, which is no longer pending."]
    assert envs.pending.tolist() == [1]
    assert envs.recv(timeout=30)[0]["stdout"] == ("7\n",)
    assert envs.step(batch(("'x' in globals()", ()), ("", ())))[0]["stdout"] == ("False\n", "")


def test_bad_option_is_refused():
    with pytest.raises(ConfigurationError, match="settle="):
        CodingGuiVectorEnv(2, settle=-1)
    with pytest.raises(ConfigurationError, match="Expected a screen"):
        CodingGuiVectorEnv(2, screen=None)
