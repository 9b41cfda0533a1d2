# /// script
# requires-python = ">=3.11,<3.14"
# dependencies = ["httpx==0.28.1", "msgspec==0.19.0", "reasoning-gym==0.1.23"]
#
# [tool.isolated]
# alone = ["gem-llm==0.1.0"]
# ///
"""The environment for GEM does what GEM's registry, wrappers and vector environments expect of one."""

from __future__ import annotations

import copy
from contextlib import closing

import gem
import pytest
from gem.core import Env
from gem.wrappers.observation_wrapper import ObservationWrapper
from gymnasium.error import ResetNeeded

from coding_gym.errors import ConfigurationError, SnapshotError
from coding_gym.tasks import Asserts, Task, TaskSuite
from coding_gym_trainers.gem import CodingGymEnv, close_sandboxes
from tests.support.sandbox_faults import kill_sandbox

FAST = {"provider": "local", "preload": (), "episodes": 4}
TESTS = Asserts(cases=("assert one() == 1", "assert one() > 0", "assert str(one()) == '1'", "assert one() < 3"))
SUITE = TaskSuite("few", [Task(id=name, prompt=f"Write {name}().", entry_point="one", tests=TESTS) for name in "abcd"])
RIGHT = "I return it:\n```python\ndef one():\n    return 1\n```\n"
CLOSE = "```python\ndef one():\n    return 2\n```"


@pytest.fixture(scope="module", autouse=True)
def registered():
    gem.register("coding:few", "coding_gym_trainers.gem:CodingGymEnv", suite=SUITE, **FAST)
    yield
    close_sandboxes()


@pytest.fixture
def env():
    with closing(gem.make("coding:few")) as env:
        yield env


def test_environment_is_made_by_registered_id(env):
    assert isinstance(env, Env)
    assert (env.env_id, env.unwrapped) == ("coding:few", env)


def test_episode_keeps_interpreter_and_ends_when_solved(env):
    observation, info = env.reset(task_id="b")
    assert observation.startswith("Put the code into one fenced block")
    assert observation.endswith("\n\nWrite b().")
    assert info["task_id"] == env.task.id == "b"
    assert env.step("```python\nvalue = 1\nprint('hello')\n```")[:4] == ("hello", 0.0, False, False)
    assert env.step(CLOSE)[:4] == ("[no output]\n[2 of 4 tests passed]", 0.5, False, False)
    *_, info = last = env.step("```python\ndef one():\n    return value\n```")
    assert last[1:4] == (0.5, True, False)
    assert info["solved"]


def test_episode_is_truncated_after_its_turns():
    with closing(gem.make("coding:few", max_turns=1, system=None)) as env:
        assert env.reset(task_id="a")[0] == "Write a()."
        assert env.step("I do not know")[1:4] == (0.0, False, True)


def test_task_is_drawn_with_seed():
    def tasks(env):
        with closing(env):
            return [env.reset()[1]["task_id"] for _ in range(6)]

    first, again, other = (tasks(gem.make("coding:few", seed=seed)) for seed in (1, 1, 2))
    assert first == again != other
    with closing(gem.make("coding:few")) as env:
        assert env.reset(seed=1)[1]["task_id"] == first[0]


def test_random_action_runs(env):
    env.reset(seed=1)
    for _ in range(3):
        action = env.sample_random_action()
        assert action.startswith("```python\n")
        assert env.step(action)[-1]["outcome"] in ("ok", "error", "timeout", "killed")


def test_copy_continues_from_same_state(env):
    env.reset(seed=1, task_id="a")
    env.step("```python\nimport random\nvalue = [1]\nopen('note', 'w').write('kept')\n```")
    env.step(CLOSE)
    with closing(env.spawn(same_state=True)) as twin:
        assert isinstance(twin, CodingGymEnv)
        assert twin.task == env.task
        number = "```python\nprint(random.random(), open('note').read())\n```"
        assert env.step(number)[0] == twin.step(number)[0]
        env.close()
        # The copy is independent of its original, and the best score continues.
        assert twin.step("```python\ndef one():\n    return value[0]\n```")[1:4] == (0.5, True, False)


def test_copies_of_copy_are_independent(env):
    env.reset(seed=1, task_id="a")
    env.step("```python\nvalue = [1]\n```")
    with closing(env.spawn(same_state=True)) as twin, closing(twin.spawn(same_state=True)) as triplet:
        twin.step("```python\nvalue.append(2)\n```")
        assert [each.step("```python\nprint(value)\n```")[0] for each in (env, twin, triplet)] == ["[1]", "[1, 2]", "[1]"]
        # All four steps of an episode count, also those before the copy.
        assert [each.step("")[3] for each in (env, twin, triplet)] == [False, True, False]


def test_copies_do_not_take_places_of_others(env):
    env.reset(seed=1)
    copies = [env.spawn(same_state=True) for _ in range(6)]
    others = [gem.make("coding:few") for _ in range(3)]
    assert [other.reset(seed=1)[1]["outcome"] for other in others] == ["ok"] * 3
    assert [each.step(RIGHT)[2] for each in (*copies, *others)] == [True] * 9
    for each in (*copies, *others):
        each.close()


def test_environment_of_same_arguments_begins_anew(env):
    env.reset(seed=1)
    with closing(env.spawn()) as other, closing(env.spawn(max_turns=1, system=None)) as short:
        assert other.reset(task_id="a")[0].endswith("Write a().")
        assert other.step("")[3] is False
        assert short.reset(task_id="a")[0] == "Write a()."
        assert short.step("")[3] is True


def test_state_that_cannot_be_copied_is_an_error(env):
    with pytest.raises(ResetNeeded):
        env.spawn(same_state=True)
    env.reset(seed=1)
    with pytest.raises(ConfigurationError, match="max_turns"):
        env.spawn(same_state=True, max_turns=2)
    env.step("```python\nimport threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n```")
    with pytest.raises(SnapshotError, match="thread"):
        env.spawn(same_state=True)
    # It continues.
    assert env.step(RIGHT)[2]


@pytest.mark.parametrize("async_mode", [False, True])
def test_vector_environment_steps_all(async_mode):
    envs = gem.make_vec(["coding:few"] * 3, async_mode=async_mode, seed=3, max_turns=2)
    observations, infos = envs.reset()
    assert len(observations) == 3
    assert len({info["task_id"] for info in infos}) > 1
    observations, rewards, terminated, truncated, _ = envs.step([RIGHT, CLOSE, "?"])
    assert rewards.tolist() == [1.0, 0.5, 0.0]
    assert (terminated.tolist(), truncated.tolist()) == ([True, False, False], [False] * 3)
    # The episode that ended was reset in the same step.
    assert observations[0].startswith("Put the code")
    for env in envs.envs:
        env.close()


def test_wrapper_shows_history(env):
    wrapped = ObservationWrapper(env, include_chat_template=False)
    wrapped.reset(seed=1)
    text = wrapped.step("```python\nprint(6 * 7)\n```")[0]
    assert text.endswith("```python\nprint(6 * 7)\n```\n42\n")
    # AsyncVectorEnv copies infos.
    assert copy.deepcopy(wrapped.step("")[-1])["outcome"] == "ok"


def test_fault_is_replayed_and_otherwise_no_score(env):
    env.reset(task_id="a")
    env.step("```python\nvalue = 1\n```")
    kill_sandbox(env._episode.env.sandbox)
    assert env.step("```python\nprint(value)\n```")[0] == "1"
    env._episode.retries = 0
    kill_sandbox(env._episode.env.sandbox)
    _, reward, terminated, truncated, info = env.step(RIGHT)
    assert (reward, terminated, truncated, info["outcome"]) == (0.0, False, True, "infrastructure")
    assert env.reset(task_id="a")[1]["outcome"] == "ok"
    assert env.step(RIGHT)[2]


@pytest.mark.parametrize(
    "options", [{"suite": None}, {"suite": "no-such-suite"}, {"max_turns": 0}, {"episodes": 0}, {"mmem": "1g"}]
)
def test_invalid_options_are_refused(options):
    with pytest.raises(ConfigurationError):
        gem.make("coding:few", **options)


def test_too_many_environments_are_an_error():
    envs = [gem.make("coding:few", episodes=1) for _ in range(2)]
    envs[0].reset(seed=1)
    with pytest.raises(TimeoutError, match="episodes=1"):
        envs[1]._episode.begin(seed=1, patience=0.1)
    envs[0].close()
    assert envs[1].reset(seed=1)[1]["outcome"] == "ok"
    envs[1].close()
