from __future__ import annotations

from contextlib import closing

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers.vector import RecordEpisodeStatistics

from coding_gym import CodingVectorEnv
from coding_gym.errors import ConfigurationError
from coding_gym.tasks import Asserts, Task, TaskSuite
from coding_gym.telemetry import observation, observed_pools
from coding_gym.wrappers.vector import FencedCode
from coding_gym_studio.watching.table import SessionTable
from plugins.ray.tests.conftest import HOST, PLACES
from tests.support.requirements import import_extra, require_display

import_extra("ray")

from coding_gym_ray import RayPool, RayVectorEnv  # noqa: E402 - requires the extra

ENV = {"screen": None, "step_timeout": 20, "max_episode_steps": 3}
NUM_ENVS = 2 * PLACES
SCRIPT = [
    ["x = 1", "print('ü' * 3)", "1 / 0", "import os; os._exit(3)"],
    ["x + 1", "import sys; print('e', file=sys.stderr)", "print(1)", "2"],
    ["print(x)", "y = [1]", "raise SystemExit(4)", "x"],
    ["x", "y", "7", "8"],
    ["import random; random.random()"] * 4,
]


@pytest.fixture(scope="module")
def pool(cluster):
    cluster.set_nodes(2)
    with RayPool(**HOST) as pool:
        yield pool


@pytest.mark.parametrize("mode", AutoresetMode)
def test_scripts_run_as_in_one_sandbox(pool, mode):
    options = {**ENV, "autoreset_mode": mode}
    with (
        closing(RayVectorEnv(NUM_ENVS, pool=pool, **options)) as here,
        closing(CodingVectorEnv(NUM_ENVS, **{**HOST, **options})) as there,
    ):
        assert len({env.unwrapped._slot.obtain().address.url for env in here.envs}) == 2
        assert here.single_observation_space == there.single_observation_space
        assert data_equivalence(here.reset(seed=3), there.reset(seed=3))
        for actions in SCRIPT:
            mine, other = here.step(actions), there.step(actions)
            assert data_equivalence(mine[:4], other[:4])
            assert mine[4].keys() == other[4].keys()
            if mode is AutoresetMode.DISABLED and mine[3].any():
                mask = {"reset_mask": mine[3]}
                assert data_equivalence(here.reset(options=mask), there.reset(options=mask))


def test_environments_answer_first_come_first_served(pool):
    with closing(RayVectorEnv(NUM_ENVS, pool=pool, **ENV)) as envs:
        envs.reset(seed=1)
        envs.send(["import time; time.sleep(1.5); print('slow')", *["print('fast')"] * (NUM_ENVS - 1)])
        seen = []
        while envs.pending.size > 1:
            observations, *_, infos = envs.recv(timeout=30)
            seen += observations["stdout"]
        assert seen == ["fast\n"] * (NUM_ENVS - 1)
        assert envs.recv(timeout=30)[0]["stdout"] == ("slow\n",)
        assert infos["env_id"].size


def test_tasks_and_wrappers(pool):
    task = Task(
        id="double",
        prompt="Double it.",
        entry_point="double",
        tests=Asserts(cases=("assert double(1) == 2", "assert double(2) == 4")),
        reference="def double(x):\n    return 2 * x\n",
    )
    suite = TaskSuite("one", [task])
    with closing(gym.make_vec("CodingTask-v0", num_envs=2, pool=pool, suite=suite, screen=None)) as bare:
        envs = RecordEpisodeStatistics(FencedCode(bare))
        envs.reset(seed=1)
        answers = ["```python\ndef double(x):\n    return 2 * x\n```", "```python\ndef double(x):\n    return 2\n```"]
        _, rewards, terminated, _, _ = envs.step(answers)
        assert rewards.tolist() == [1.0, 0.5]
        assert terminated.tolist() == [True, False]


def test_more_environments_than_places_are_refused(pool):
    with pytest.raises(ConfigurationError, match=f"num_envs=9 exceeds the {NUM_ENVS} places that 2 nodes"):
        RayVectorEnv(9, pool=pool, **ENV)


@pytest.mark.parametrize("options", [{"address": "auto"}, {"places": 1}, {"mem": "1g"}])
def test_options_of_the_pool_are_refused_beside_a_pool(pool, options):
    with pytest.raises(ConfigurationError, match=r"to (RayPool|SandboxPool) instead"):
        RayVectorEnv(1, pool=pool, **options)


def test_screens_are_those_of_one_sandbox(pool):
    code = "import tkinter; root = tkinter.Tk(); root.geometry('50x50+0+0'); root['bg'] = 'red'; root.mainloop()"
    options = {"screen": (64, 64), "step_timeout": 20}
    require_display()
    with (
        closing(RayVectorEnv(1, pool=pool, **options)) as here,
        closing(CodingVectorEnv(1, **{**HOST, **options})) as there,
    ):
        pictures = []
        for envs in (here, there):
            envs.reset(seed=1)
            pictures.append(envs.step([code])[0]["screenshot"])
        assert pictures[0].any()
        np.testing.assert_array_equal(*pictures)


def test_environments_and_pool_are_watched_in_the_process_of_the_trainer(pool, monkeypatch):
    table = SessionTable()
    monkeypatch.setattr(observation, "observers", (table,))
    with closing(RayVectorEnv(NUM_ENVS, pool=pool, **ENV)) as envs:
        envs.reset(seed=1)
        envs.step(["print(1)"] * (NUM_ENVS - 1) + ["1 / 0"])
        found = sorted(table.changes({}).sessions, key=lambda row: row.index)
        assert [(row.index, row.state, row.steps) for row in found] == [(index, "idle", 1) for index in range(NUM_ENVS)]
        assert [row.outcome for row in found] == ["ok"] * (NUM_ENVS - 1) + ["error"]
        assert table.get(found[0].id).history()[0].stdout == "1\n"
        assert len({row.group for row in found}) == 1
        assert pool in observed_pools()
        assert sum(watched.busy for watched in table.summary().pools) >= NUM_ENVS
    assert {row.state for row in table.changes({}).sessions} == {"closed"}
