from __future__ import annotations

import runpy
import sys
from contextlib import closing
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv

from coding_gym.errors import ConfigurationError
from coding_gym.tasks import Asserts, Task, TaskSuite
from coding_gym.wrappers.vector import BytesObservation, SnippetActions
from tests.support.requirements import import_extra
from tests.support.sandbox_faults import kill_sandbox

import_extra("stable_baselines3")

from stable_baselines3 import PPO  # noqa: E402
from stable_baselines3.common.vec_env import DummyVecEnv, VecMonitor  # noqa: E402

from coding_gym_trainers.sb3 import SB3VecEnv  # noqa: E402

FAST = {"provider": "local", "preload": (), "step_timeout": 60}
ANSWER = "def one():\n    return 1"
SUITE = TaskSuite(
    "one", [Task(id="one", prompt="Write one().", entry_point="one", tests=Asserts(cases=("assert one() == 1",)))]
)
SNIPPETS = ["pass", "def one():\n    return 2", ANSWER]
EXAMPLE = Path(__file__).parents[3] / "examples" / "train_sb3_ppo.py"


@pytest.fixture
def make():
    made = []

    def make(num_envs=2, *, screen=None, **options):
        envs = gym.make_vec(
            "CodingTask-v0", num_envs=num_envs, suite=SUITE, autoreset_mode="SameStep", screen=screen, **FAST, **options
        )
        made.append(envs)
        return SB3VecEnv(BytesObservation(SnippetActions(envs, SNIPPETS), length=16))

    yield make
    for envs in made:
        envs.close()


class Line(gym.Env):
    """Counts up to 3, which ends an episode; observes the position in two spaces."""

    observation_space = gym.spaces.Dict({"at": gym.spaces.Discrete(10), "x": gym.spaces.Box(0, 9, (1,), np.float32)})
    action_space = gym.spaces.Discrete(2)
    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012
    render_mode = "rgb_array"
    label = "line"

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at, self.steps = (options or {}).get("start", 0), 0
        return self._see(), {"seed": seed, "start": self.at}

    def step(self, action):
        self.at, self.steps = self.at + int(action), self.steps + 1
        return self._see(), float(action), self.at == 3, self.steps == 4, {"at": self.at}

    def render(self):
        return np.full((4, 6, 3), self.at, np.uint8)

    def where(self, offset=0):
        return self.at + offset

    def _see(self):
        return {"at": np.int64(self.at), "x": np.array([self.at], np.float32)}


def line_pair():
    return SB3VecEnv(SyncVectorEnv([Line, Line], autoreset_mode="SameStep")), DummyVecEnv([Line, Line])


def assert_same(ours, theirs):
    """Compare observations, flags and infos of two vector environments; scalars may be NumPy scalars."""
    if isinstance(theirs, dict):
        assert set(ours) == set(theirs)
        for key in theirs:
            assert_same(ours[key], theirs[key])
    elif isinstance(theirs, (list, tuple)):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            assert_same(one, other)
    else:
        np.testing.assert_array_equal(ours, theirs)
        assert np.asarray(ours).dtype == np.asarray(theirs).dtype or np.isscalar(theirs)


def test_results_equal_dummy_vec_env():
    ours, theirs = line_pair()
    for envs in (ours, theirs):
        envs.seed(5)
        envs.set_options({"start": 1})
    assert_same(ours.reset(), theirs.reset())
    assert [dict(info) for info in ours.reset_infos] == theirs.reset_infos == [{"seed": 5, "start": 1}, {"seed": 6, "start": 1}]
    rng = np.random.default_rng(1)
    ends = 0
    for _ in range(40):
        actions = rng.integers(2, size=2)
        results = ours.step(actions), theirs.step(actions)
        assert_same(*results)
        ends += results[0][2].sum()
    assert ends > 10


def test_terminal_observation_and_time_limit_are_reported():
    ours, _ = line_pair()
    ours.reset()
    for _ in range(2):
        ours.step(np.array([1, 0]))
    observations, _, dones, infos = ours.step(np.array([1, 0]))
    assert dones.tolist() == [True, False]
    assert infos[0]["terminal_observation"]["at"] == 3
    assert observations["at"].tolist() == [0, 0]
    assert [info["TimeLimit.truncated"] for info in infos] == [False, False]
    _, _, dones, infos = ours.step(np.array([0, 0]))
    assert dones.tolist() == [False, True]
    assert [info["TimeLimit.truncated"] for info in infos] == [False, True]


def test_methods_and_attributes_reach_environments():
    ours, _ = line_pair()
    ours.reset()
    ours.step(np.array([1, 0]))
    assert ours.env_method("where", 10, indices=[0]) == [11]
    assert ours.env_method("where", offset=1) == [2, 1]
    assert ours.get_attr("label") == ["line", "line"]
    ours.set_attr("label", "other", indices=1)
    assert ours.get_attr("label") == ["line", "other"]
    assert ours.env_is_wrapped(gym.wrappers.TimeLimit) == [False, False]
    assert not ours.has_attr("nothing")
    assert ours.render().shape == (8, 6, 3) or ours.render().shape == (4, 12, 3)
    assert [image.max() for image in ours.get_images()] == [1, 0]
    ours.set_options([{"start": 1}, {"start": 2}])
    with pytest.raises(ConfigurationError, match="same options"):
        ours.reset()


def test_solved_episodes_are_successes(make):
    envs = VecMonitor(make())
    envs.seed(1)
    first = envs.reset()
    assert first["stdout"].shape == (2, 16)
    observations, rewards, dones, infos = envs.step(np.array([2, 1]))
    assert (rewards.tolist(), dones.tolist()) == ([1.0, 0.0], [True, False])
    assert rewards.dtype == np.float32
    assert (infos[0]["is_success"], infos[0]["solved"], infos[0]["episode"]["l"]) == (True, True, 1)
    assert set(infos[0]["terminal_observation"]) == set(observations)
    assert "is_success" not in infos[1]
    assert "final_obs" not in infos[0]
    assert envs.get_attr("task")[0] is SUITE[0]


def test_infrastructure_failure_is_neither_success_nor_failure(make):
    envs = make()
    envs.reset()
    kill_sandbox(envs.get_attr("sandbox")[0])
    _, rewards, dones, infos = envs.step(np.array([2, 2]))
    assert dones.all()
    assert not rewards.any()
    assert envs.infrastructure_failures == 2
    for info in infos:
        assert (info["outcome"], info["TimeLimit.truncated"], "is_success" in info) == ("infrastructure", True, False)
    assert envs.step(np.array([2, 2]))[1].tolist() == [1.0, 1.0]


@pytest.mark.screen
def test_ppo_trains_and_renders_screens(make):
    envs = make(screen=(64, 48), render_mode="rgb_array", max_turns=2)
    model = PPO("MultiInputPolicy", VecMonitor(envs), n_steps=4, batch_size=8, n_epochs=1, seed=1)
    model.learn(8)
    assert model.num_timesteps == 8
    assert envs.render().shape == (96, 64, 3) or envs.render().shape == (48, 128, 3)


@pytest.mark.parametrize(
    ("envs", "named"),
    [
        (lambda: SyncVectorEnv([Line]), "SameStep"),
        (lambda: gym.make_vec("CodingEnv-v0", autoreset_mode="SameStep", **FAST), "observations have text: stderr, stdout"),
        (
            lambda: BytesObservation(gym.make_vec("CodingEnv-v0", autoreset_mode="SameStep", **FAST), length=4),
            "actions have text",
        ),
    ],
)
def test_unsupported_environment_is_refused(envs, named):
    with closing(envs()) as made, pytest.raises(ConfigurationError, match=named):
        SB3VecEnv(made)


def test_example_runs_with_tiny_settings(tmp_path, monkeypatch, capsys):
    picture = tmp_path / "curve.png"
    options = ["--provider", "local", "--timesteps", "128", "--num-envs", "4", "--n-steps", "16", "--episodes", "4"]
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), *options, "--output", str(picture)])
    # In this process, which has imported PyTorch already.
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    shown = capsys.readouterr().out
    assert "success rate of the random policy" in shown
    assert "success rate of the trained policy" in shown
    assert picture.read_bytes().startswith(b"\x89PNG")
