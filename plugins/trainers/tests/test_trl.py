from __future__ import annotations

import inspect
import json
import subprocess
import sys
from pathlib import Path

import pytest

from coding_gym.errors import ConfigurationError
from coding_gym.tasks import Asserts, Grader, Task, TaskSuite
from coding_gym.wrappers.actions import extract_code
from coding_gym_trainers.trl import TaskEnvironments, TaskReward, prompt_rows, text_of

FAST = {"provider": "local", "preload": ()}
TESTS = Asserts(cases=("assert one() == 1", "assert one() > 0", "assert str(one()) == '1'", "assert one() < 3"))
SUITE = TaskSuite("few", [Task(id=name, prompt=f"Write {name}().", entry_point="one", tests=TESTS) for name in "ab"])
RIGHT = "def one():\n    return 1\n"
CLOSE = "def one():\n    return 2\n"
EXAMPLE = Path(__file__).parents[3] / "examples" / "grpo_reward.py"


@pytest.fixture(scope="module")
def grader():
    with Grader(**FAST, workers=2) as grader:
        yield grader


@pytest.fixture(scope="module")
def environments():
    with TaskEnvironments(SUITE, rollouts=2, max_turns=3, **FAST) as environments:
        yield environments


@pytest.fixture(scope="module")
def environment(environments):
    return environments()


@pytest.fixture
def trl():
    pytest.importorskip("trl", reason="TRL is not installed: pip install 'coding-gym[trl]'")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (RIGHT, RIGHT),
        (f"So:\n```python\n{CLOSE}```\nor better\n```py\n{RIGHT}```\n", RIGHT),
        (f"```\n{RIGHT}```", RIGHT),
        (f"```python\n{RIGHT}", RIGHT),
        ("```sh\nls\n```", ""),
        ("", ""),
    ],
)
def test_code_is_extracted_from_completion(text, code):
    assert extract_code(text) == code


def test_text_is_joined_from_assistant_messages():
    messages = [
        {"role": "assistant", "content": "a"},
        {"role": "tool", "content": "b"},
        {"role": "assistant", "content": None},
        {"role": "assistant", "content": "c"},
    ]
    assert (text_of("a"), text_of(messages), text_of([])) == ("a", "a\nc", "")


def test_reward_equals_task_score(grader):
    reward = TaskReward(SUITE, grader=grader)
    texts = [RIGHT, f"```python\n{CLOSE}```", "I do not know.", "\ud800", ""]
    assert reward.__name__ == "tests_passed"
    expected = [1.0, 0.5, 0.0, 0.0, 0.0]
    assert reward(texts, texts, task_id=list("ababa"), completion_ids=[], trainer_state=None) == expected
    messages = [[{"role": "assistant", "content": text}] for text in texts]
    assert reward(prompts=messages, completions=messages, task_id=list("ababa")) == expected
    with pytest.raises(ConfigurationError, match="'z'"):
        reward(["x"], ["x"], task_id=["z"])
    with pytest.raises(ConfigurationError, match="mem"):
        TaskReward(SUITE, grader=grader, mem="1g")


def test_equal_code_of_a_batch_is_graded_once(grader, monkeypatch):
    repeats = []
    grade_many = grader.grade_many

    def watch(answers):
        for verdict in grade_many(answers):
            repeats.append(verdict.is_repeat)
            yield verdict

    monkeypatch.setattr(grader, "grade_many", watch)
    texts = [RIGHT, CLOSE, f"```python\n{RIGHT}```", CLOSE, RIGHT]
    assert TaskReward(SUITE, grader=grader)(texts, texts, task_id=list("aaaab")) == [1.0, 0.5, 1.0, 0.5, 1.0]
    assert repeats == [False, False, True, True, False]


def test_infrastructure_failure_gives_no_reward():
    with TaskReward(SUITE, provider="remote", base_url="http://127.0.0.1:9", start_timeout=0.5) as unreachable:
        assert unreachable(["x"], [RIGHT], task_id=["a"]) == [None]


def test_prompt_rows_have_prompt_and_task_id():
    assert prompt_rows(SUITE)[1] == {"prompt": [{"role": "user", "content": "Write b()."}], "task_id": "b"}
    assert prompt_rows(SUITE, conversational=False, with_prompt=False)[0] == {"prompt": "", "task_id": "a"}


def test_environment_episode_returns_output_and_reward(environment):
    assert environment.reset(prompt=[], task_id="a") == "Write a()."
    assert environment.python("x = 1\nprint(x)") == "1"
    assert environment.python("def one():\n    return x + 1") == "[no output]\n[2 of 4 tests passed]"
    assert environment.get_reward() == 0.5
    assert environment.python(f"1 / 0\n{RIGHT}").endswith("division by zero\n[exit code 1]\n[0 of 4 tests passed]")
    assert environment.python(RIGHT) == "[the episode is over]"
    assert environment.get_reward() == 0.5
    assert environment.reset(task_id="b") == "Write b()."
    assert environment.get_reward() == 0.0
    assert environment.python("\ud800") == "[nothing was run: the code is too long, or not text]"
    assert environment.python(RIGHT) == "[no output]\n[4 of 4 tests passed]"
    assert environment.get_reward() == 1.0


def test_reset_without_task_id_is_refused(environment):
    with pytest.raises(ConfigurationError, match="prompt_rows"):
        environment.reset(prompt=[])


def test_environment_exposes_single_tool(environment):
    public = [name for name, _ in inspect.getmembers(type(environment), inspect.isfunction) if not name.startswith("_")]
    assert public == ["get_reward", "python", "reset"]


@pytest.mark.usefixtures("trl")
def test_transformers_describes_tool_schema(environment):
    schema = subprocess.run([sys.executable, "-c", DESCRIBE], capture_output=True, text=True, check=True, timeout=100)
    function = json.loads(schema.stdout)["function"]
    assert function["name"] == "python"
    assert function["parameters"]["required"] == ["code"]


@pytest.mark.usefixtures("trl")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("options", [[], ["--environment"]], ids=["function", "environment"])
def test_example_learns(options):
    command = [sys.executable, EXAMPLE, "--provider", "local", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    rewards = [float(line.rpartition(" ")[2]) for line in done.stdout.splitlines() if line.startswith("update ")]
    assert rewards[0] < 0.3
    assert rewards[-1] > 0.6


DESCRIBE = """
import json
from transformers.utils import get_json_schema
from coding_gym_trainers.trl import TaskEnvironment
print(json.dumps(get_json_schema(TaskEnvironment.python)))
"""
