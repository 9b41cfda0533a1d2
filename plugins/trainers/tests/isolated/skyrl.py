# /// script
# dependencies = ["httpx==0.28.1", "skyrl-gym==0.4.0"]
# ///
"""The environment for SkyRL does what SkyRL's generator expects of one."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
import skyrl_gym
from skyrl_gym.envs.base_text_env import BaseTextEnv
from skyrl_gym.metrics import aggregate_for_environment

from coding_gym.errors import ConfigurationError, TransportError
from coding_gym.tasks import Asserts, Task, TaskSuite
from coding_gym_trainers.skyrl import CodingGymEnv, close_sandboxes, dataset_rows
from tests.support.sandbox_faults import kill_sandbox

FAST = {"provider": "local", "preload": (), "episodes": 4}
TESTS = Asserts(cases=("assert one() == 1", "assert one() > 0", "assert str(one()) == '1'", "assert one() < 3"))
TASK = Task(id="one", prompt="Write one().", entry_point="one", tests=TESTS)
SUITE = TaskSuite("few", [TASK])
RIGHT = "I return it:\n```python\ndef one():\n    return 1\n```\n"
CLOSE = "```python\ndef one():\n    return 2\n```"


@pytest.fixture(scope="module", autouse=True)
def sandboxes_are_closed():
    yield
    close_sandboxes()


@pytest.fixture(scope="module", autouse=True)
def registered():
    skyrl_gym.register("coding_gym", entry_point="coding_gym_trainers.skyrl:CodingGymEnv", kwargs={"suite": SUITE, **FAST})
    yield
    skyrl_gym.envs.registration.deregister("coding_gym")


def row(truth="one", **fields):
    return {"reward_spec": {"method": "rule", "ground_truth": truth}, "max_turns": 3, **fields}


def make(extras=None, **options):
    return skyrl_gym.make("coding_gym", env_config={}, extras=row() if extras is None else extras, **options)


def play(env, prompt, replies):
    """Take the steps of SkyRL's generator, and return what the model reads and the rewards."""
    messages, _ = env.init(prompt)
    rewards = []
    for reply in replies:
        output = env.step(reply)
        rewards.append(output["reward"])
        messages = [*messages, {"role": "assistant", "content": reply}, *output["observations"]]
        if output["done"]:
            assert output["observations"] == []
            break
    metrics = env.get_metrics()
    env.close()
    return messages, rewards, metrics


def test_environment_is_made_by_registered_id():
    with closing(make()) as env:
        assert isinstance(env, BaseTextEnv)
        assert (env.spec.id, env.max_turns) == ("coding_gym", 3)


def test_trajectory_keeps_interpreter_and_ends_when_solved():
    prompt = [{"role": "user", "content": "Write one()."}]
    replies = ["```python\nvalue = 1\nprint('hello')\n```", CLOSE, RIGHT, "never"]
    messages, rewards, metrics = play(make(), prompt, replies)
    assert messages[0] == prompt[0]
    assert [each["content"] for each in messages if each["role"] == "user"][1:] == [
        "hello",
        "[no output]\n[2 of 4 tests passed]",
    ]
    assert rewards == [0.0, 0.5, 0.5]
    assert metrics == {"solved": 1.0, "score": 1.0, "turns": 3, "infrastructure": 0.0}


def test_trajectory_ends_after_its_turns():
    _, rewards, metrics = play(make(row(max_turns=2)), [], ["I do not know.", "```sh\nls\n```", RIGHT])
    assert rewards == [0.0, 0.0]
    assert (metrics["solved"], metrics["turns"]) == (0.0, 2)


def test_prose_without_fence_is_told_so():
    output_of = make()
    with closing(output_of) as env:
        text = env.step("Let me think about it")["observations"][0]["content"]
        assert "SyntaxError" in text
        assert text.endswith("put the code between ```python and ```]")


@pytest.mark.parametrize("reply", ["\ud800", "", "x = '" + "y" * 200_000 + "'"])
def test_ugly_replies_are_observations(reply):
    with closing(make()) as env:
        output = env.step(reply)
        assert (output["reward"], output["done"], output["metadata"]["outcome"]) == (0.0, False, "ok")
        assert env.step(RIGHT)["done"]


def test_sandboxes_may_have_single_sessions():
    with closing(make(row(max_turns=1), sessions=1, episodes=1)) as env:
        assert env.step(RIGHT)["reward"] == 1.0


def test_missing_max_turns_means_one():
    extras = row()
    del extras["max_turns"]
    with closing(make(extras)) as env:
        assert env.step(CLOSE)["done"]


def test_environments_run_in_threads_and_share_sandboxes():
    # More trajectories of one turn than there are places: they wait for each other to be closed.
    def one(number):
        return play(make(row(max_turns=1)), [], [RIGHT if number % 2 else CLOSE])[1]

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(one, range(12))) == [[0.5], [1.0]] * 6


def test_row_may_have_its_own_tests():
    for truth in (TASK.to_json(), json.loads(TASK.to_json())):
        with closing(make(row(truth), suite=None)) as env:
            output = env.step(RIGHT)
            assert (output["done"], output["reward"], output["metadata"]["task_id"]) == (True, 1.0, "one")


def test_configuration_of_skyrl_has_precedence():
    env = skyrl_gym.make("coding_gym", env_config={"suite": "basics"}, extras=row("basics/bill"))
    env.close()


@pytest.mark.parametrize(
    ("extras", "options", "named"),
    [
        ({}, {}, "reward_spec.ground_truth"),
        ({"reward_spec": None}, {}, "reward_spec.ground_truth"),
        ({"reward_spec": json.dumps(row()["reward_spec"])}, {}, "reward_spec.ground_truth"),
        (row("two"), {}, "'two'"),
        (row(["one"]), {}, "one"),
        (row("not JSON"), {"suite": None}, "suite="),
        (row({"prompt": "x"}), {"suite": None}, "reward_spec.ground_truth"),
        (row(max_turns=0), {}, "max_turns"),
        (row(), {"episodes": 0}, "episodes"),
        (row(), {"retries": -1}, "retries"),
        (row(), {"step_timout": 1}, "step_timeout"),
    ],
)
def test_invalid_rows_and_options_are_refused(extras, options, named):
    with pytest.raises(ConfigurationError, match=named):
        make(extras, **options)


def test_dataset_rows_name_tasks():
    (only,) = dataset_rows(SUITE, system=None)
    assert only["prompt"] == [{"role": "user", "content": "Write one()."}]
    assert (only["env_class"], only["reward_spec"]["ground_truth"]) == ("coding_gym", "one")
    assert dataset_rows("basics")[0]["prompt"][0]["role"] == "system"


def test_metrics_leave_out_lost_trajectories():
    metrics = [
        {"solved": 1.0, "score": 1.0, "turns": 1, "infrastructure": 0.0},
        {"solved": 0.0, "score": 0.0, "turns": 3, "infrastructure": 1.0},
        {},
    ]
    assert aggregate_for_environment("coding_gym", metrics) == {
        "solved": 1.0,
        "score": 1.0,
        "turns": 1.0,
        "infrastructure": 0.5,
    }
    assert aggregate_for_environment("coding_gym", []) == {}


def test_lost_trajectory_is_replayed_in_another_sandbox():
    with closing(make()) as env:
        env.step("```python\nvalue = 1\n```")
        kill_sandbox(env._episode.env.sandbox)
        output = env.step("```python\ndef one():\n    return value\n```")
        assert (output["done"], output["reward"], output["metadata"]["solved"]) == (True, 1.0, True)
        assert env.get_metrics()["infrastructure"] == 0.0


@pytest.mark.parametrize("lost_reward", [None, -1])
def test_fault_is_not_score(lost_reward):
    with closing(make(retries=0, lost_reward=lost_reward)) as env:
        env.step(CLOSE)
        kill_sandbox(env._episode.env.sandbox)
        if lost_reward is None:
            with pytest.raises(TransportError, match="'one'"):
                env.step(RIGHT)
        else:
            output = env.step(RIGHT)
            assert (output["done"], output["reward"]) == (True, -1.0)
            assert output["metadata"]["outcome"] == "infrastructure"
        assert env.get_metrics()["infrastructure"] == 1.0
    assert CodingGymEnv.aggregate_metrics([env.get_metrics()]) == {"infrastructure": 1.0}


def test_unreachable_server_is_an_error():
    env = make(provider="remote", base_url="http://127.0.0.1:9", start_timeout=0.5)
    with closing(env), pytest.raises(Exception, match=r"127\.0\.0\.1:9"):
        env.step(RIGHT)


@pytest.mark.docker
def test_image_of_row(docker_engine):
    options = {**FAST, "provider": "docker", "episodes": 2}
    with closing(make(row(image="debian:trixie-slim"), **options)) as env:
        env.init([{"role": "user", "content": "Write one()."}])
        output = env.step(
            "```python\nimport subprocess; print(subprocess.getoutput('id -un; command -v python3; echo end'))\n```"
        )
        assert "root\nend" in output["observations"][0]["content"]
        assert env.step(RIGHT)["reward"] == 1.0
