# /// script
# dependencies = ["httpx==0.28.1", "uv==0.13.9", "verifiers[openenv]==0.4.0"]
# ///
"""Suites for verifiers run in its own evaluation, with its own harness, against an endpoint with prepared replies."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from verifiers.v1.cli.eval.runner import run_eval
from verifiers.v1.configs.cli.eval import EvalConfig

from coding_gym.audit import audit, load_verifier, own_hacks
from coding_gym.errors import ConfigurationError
from coding_gym.tasks import Asserts, Task, TaskSuite
from coding_gym_trainers.verifiers import CodingGymConfig, CodingGymData, CodingGymTask, CodingGymTaskset, close_sandboxes
from tests.support.chat_endpoint import ChatEndpoint, streamed
from tests.support.running_server import RunningServer

pytestmark = [pytest.mark.timeout(300), pytest.mark.filterwarnings("default")]

PACKAGE = Path(__file__).parents[4] / "examples" / "verifiers"
BIN = Path(sys.executable).parent
STREAMING = ("stream", "stream_options")
TESTS = Asserts(cases=("assert one() == 1", "assert one() > 0", "assert str(one()) == '1'", "assert one() < 3"))
REFERENCE = "def one():\n    return 1 # secret\n"
RIGHT = "So:\n```python\ndef one():\n    return 1\n```\n"
CLOSE = "```python\ndef one():\n    return 2\n```"
UNREACHABLE = {"provider": "remote", "sandbox": {"base_url": "http://127.0.0.1:9", "start_timeout": 0.5}}


@pytest.fixture(autouse=True)
def command_path(monkeypatch):
    # verifiers' runtimes run uv.
    monkeypatch.setenv("PATH", f"{BIN}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.syspath_prepend(str(PACKAGE))
    yield
    close_sandboxes()


@pytest.fixture
def suite(tmp_path):
    """File of three tasks, of which the last has no reference."""
    path = tmp_path / "few.jsonl"
    tasks = [Task(id=name, prompt=f"Write {name}.", entry_point="one", tests=TESTS, reference=REFERENCE) for name in "ab"]
    tasks.append(Task(id="c", prompt="Write c.", entry_point="one", tests=TESTS))
    path.write_text("".join(f"{task.to_json()}\n" for task in tasks))
    return str(path)


@pytest.fixture
def multi_turn_package(tmp_path, monkeypatch):
    (tmp_path / "coding_gym_turns.py").write_text(
        "from verifiers.v1.harnesses.null import NullHarness\n"
        "from coding_gym_trainers.verifiers import CodingGymEnv, CodingGymTaskset\n"
        "__all__ = ['CodingGymEnv', 'CodingGymTaskset', 'NullHarness']\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    return "coding_gym_turns"


@contextmanager
def replying(replies):
    """Endpoint that gives the replies for the task that is named in the first message of the user, turn by turn."""

    def answer(body, _):
        user = [message["content"] for message in body["messages"] if message["role"] == "user"]
        name = user[0].removeprefix("Write ").removesuffix(".")
        return streamed(replies[name][len(user) - 1])

    with ChatEndpoint(answer, fields=STREAMING) as endpoint:
        yield endpoint


def evaluate(endpoint, tmp_path, suite, *, package="coding-gym-tasks", task=None, role="agent", **env):
    config = EvalConfig(
        env={
            "taskset": {
                "id": package,
                "suite": suite,
                "task": {"provider": "local", "sandbox": {"preload": []}, **(task or {})},
            },
            role: {"runtime": {"type": "subprocess"}},
            **env,
        },
        model="tiny",
        client={"base_url": endpoint.url, "api_key_var": "NO_SUCH_KEY"},
        output_dir=tmp_path / "outputs",
        push=False,
        rich=None,
    )
    episodes = asyncio.run(run_eval(config))
    (traces,) = (tmp_path / "outputs").glob("*/traces.jsonl")
    return {episode.task.data.id: episode for episode in episodes}, traces.read_text()


def rewards(episodes):
    return {
        name: {key: reward.value for key, reward in episode.traces[0].rewards.items()} for name, episode in episodes.items()
    }


def test_replies_are_graded_by_hidden_tests(tmp_path, suite):
    replies = {"a": [RIGHT], "b": [f"First {RIGHT} or\n{CLOSE}"], "c": ["I do not know."]}
    with replying(replies) as endpoint:
        episodes, traces = evaluate(endpoint, tmp_path, suite)
    assert all(episode.ok for episode in episodes.values())
    assert rewards(episodes) == {"a": {"tests_passed": 1.0}, "b": {"tests_passed": 0.5}, "c": {"tests_passed": 0.0}}
    assert episodes["a"].traces[0].metrics == {"score": 1.0, "solved": 1.0, "tests": 4.0}
    assert episodes["a"].task.key == f"{suite}:a"
    # Neither tests nor references are recorded.
    assert "assert" not in traces
    assert "secret" not in traces
    assert all("one() == 1" not in json.dumps(request) for request in endpoint.requests)


def test_fault_is_an_error_without_reward(tmp_path, suite):
    with replying({"a": [RIGHT], "b": [RIGHT], "c": [RIGHT]}) as endpoint:
        episodes, _ = evaluate(endpoint, tmp_path, suite, task=UNREACHABLE)
    for episode in episodes.values():
        (trace,) = episode.traces
        assert not episode.ok
        assert trace.last_error.type == "SandboxError"
        assert "could not be graded" in trace.last_error.message
        assert trace.rewards == {"tests_passed": None}


def test_episode_has_turns_in_one_interpreter(tmp_path, suite, multi_turn_package):
    replies = {
        "a": ["```python\nvalue = 1\nprint('hello')\n```", "```python\ndef one():\n    return value\n```"],
        "b": [CLOSE, "I give up", "```python\n1 / 0\n```"],
        "c": [RIGHT],
    }
    with replying(replies) as endpoint:
        episodes, traces = evaluate(
            endpoint, tmp_path, suite, package=multi_turn_package, role="player", max_turns=3, episodes=2
        )
    assert all(episode.ok for episode in episodes.values())
    assert rewards(episodes) == {"a": {"tests_passed": 1.0}, "b": {"tests_passed": 0.5}, "c": {"tests_passed": 1.0}}
    assert episodes["a"].traces[0].metrics == {"solved": 1.0, "turns": 2.0}
    assert episodes["b"].traces[0].metrics == {"solved": 0.0, "turns": 3.0}
    told = [m["content"] for request in endpoint.requests for m in request["messages"] if m["role"] == "user"]
    assert "hello" in told
    assert "[no output]\n[2 of 4 tests passed]" in told
    assert "secret" not in traces


def test_fault_in_turn_is_an_error_without_reward(tmp_path, suite, multi_turn_package):
    with replying({"a": [RIGHT], "b": [RIGHT], "c": [RIGHT]}) as endpoint:
        episodes, _ = evaluate(endpoint, tmp_path, suite, package=multi_turn_package, role="player", task=UNREACHABLE)
    assert [(episode.ok, episode.last_error.type) for episode in episodes.values()] == [(False, "SandboxError")] * 3
    assert [trace.rewards for episode in episodes.values() for trace in episode.traces] == []


def test_task_is_made_again_from_its_data(suite):
    # As verifiers' environment server does in another process.
    for task in CodingGymTaskset(CodingGymConfig(suite=suite)):
        data = CodingGymData.model_validate_json(task.data.model_dump_json())
        again = CodingGymTask(data, task.config)
        assert (again.key, again.task) == (task.key, task.task)
        assert "assert" not in data.model_dump_json()


def test_missing_suite_is_an_error():
    with pytest.raises(ConfigurationError, match="no-such-suite"):
        list(CodingGymTaskset(CodingGymConfig(suite="no-such-suite")))


def run_command(name, *arguments, tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE)}
    return subprocess.run(
        [str(BIN / name), *arguments, "--output-dir", str(tmp_path / "outputs")],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


def test_references_are_validated_by_command(tmp_path, suite):
    arguments = [
        "coding-gym-tasks",
        "--taskset.suite",
        suite,
        "--taskset.task.provider",
        "local",
        "--runtime.type",
        "subprocess",
    ]
    ended = run_command("vf-validate", *arguments, "--no-rich", tmp_path=tmp_path)
    (results,) = (tmp_path / "outputs").glob("*/results.jsonl")
    rows = [json.loads(line) for line in results.read_text().splitlines()]
    assert len(rows) == 3, ended.stdout + ended.stderr
    by_reason = sorted(row["reason"] for row in rows)
    assert by_reason == ["unchecked", "valid", "valid"]


def test_bundled_suite_is_evaluated_by_command(tmp_path):
    reply = "```python\ndef bill(prices, rate):\n    return '0'\n```"
    with ChatEndpoint(lambda *_: streamed(reply), fields=STREAMING) as endpoint:
        ended = run_command(
            "vf-eval",
            *("coding-gym-tasks", "--env.taskset.suite", "basics", "--env.taskset.task.provider", "local", "-n", "1"),
            *("--env.agent.runtime.type", "subprocess", "--model", "tiny", "--client.base-url", endpoint.url),
            *("--client.api-key-var", "NO_SUCH_KEY", "--no-push", "--no-rich"),
            tmp_path=tmp_path,
        )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    trace = json.loads(ended.stdout)
    assert trace["ok"]
    assert trace["task"]["data"]["id"].startswith("basics/")
    assert 0 <= trace["rewards"]["tests_passed"]["score"] < 1


def test_own_taskset_for_openenv_uses_our_server(tmp_path):
    """verifiers' taskset ``openenv``, to which a server is an address."""
    replies = ["```python\nx = 6 * 7\nprint(x)\n```", json.dumps({"code": "print(x + 1)"}), json.dumps({"code": "1 / 0"})]
    told = []

    def answer(body, _):
        told.append(json.loads(body["messages"][-1]["content"])["observation"])
        return streamed(replies[len(told) - 1])

    with RunningServer(tmp_path) as server, ChatEndpoint(answer, fields=STREAMING) as endpoint:
        config = EvalConfig(
            env={
                "taskset": {"id": "openenv", "base_url": server.url, "resets": [{"seed": 1, "rewards": ["quality"]}]},
                "player": {"harness": {"id": "null"}, "runtime": {"type": "subprocess"}, "max_turns": 3},
            },
            model="tiny",
            client={"base_url": endpoint.url, "api_key_var": "NO_SUCH_KEY"},
            output_dir=tmp_path / "outputs",
            push=False,
            rich=None,
        )
        (episode,) = asyncio.run(run_eval(config))
    assert episode.ok
    assert [observation["stdout"] for observation in told] == ["", "42\n", "43\n"]
    # Of three actions; the last one is an error in our sandbox, which OpenEnv's rules reward like any short code.
    assert episode.traces[0].rewards["openenv_reward"].value == pytest.approx(0.3)


FORGEABLE = """
import verifiers.v1 as vf

class Assertions(vf.Task):
    @vf.reward
    async def passes(self, trace):
        code = trace.last_reply.removeprefix("```python").removesuffix("```")
        try:
            exec(code + "\\nassert one() == 1", {})
        except Exception:
            return 0.0
        return 1.0

class Forgeable(vf.Taskset):
    def load(self):
        yield Assertions(vf.TaskData(prompt="Write one."), self.config.task)

__all__ = ["Forgeable"]
"""


def test_holes_of_tasksets_are_named(tmp_path, monkeypatch):
    (tmp_path / "forgeable_taskset.py").write_text(FORGEABLE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    task = Task(id="a", prompt="Write one.", entry_point="one", tests=TESTS, reference=REFERENCE)
    hacks = [hack for hack in own_hacks() if hack.name in ("object that equals everything", "os._exit when called")]
    with load_verifier("verifiers:forgeable-taskset", timeout=30) as verifier:
        report = audit(TaskSuite("one", [task]), verifier, hacks=hacks, most_mutants=1)
    found = {check.title: list(check.holes) for check in report.checks if check.is_failure}
    assert found.pop("hacks earn nothing") == ["operators of the submission decide: object that equals everything"]
    assert found.pop("there is a verdict, whatever a program does") == [
        "the exit code counts as the result: os._exit when called"
    ]
    assert found.pop("stubs fail") == ["returns True", "returns 1"]
    assert not any(found.values())
    with pytest.raises(ConfigurationError, match="id of a taskset"):
        load_verifier("verifiers:no-such-taskset")
    with load_verifier("verifiers:forgeable-taskset") as verifier:
        (judgment,) = verifier.judge([(dataclasses.replace(task, id="b", prompt="Another."), REFERENCE)])
    assert "no task with the id or the prompt of 'b'" in judgment.why
