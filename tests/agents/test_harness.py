"""Harnesses: agents that run in a session, and call a model on this side."""

from __future__ import annotations

import importlib.util
import json
import sys
from contextlib import closing

import gymnasium as gym
import pytest

from coding_gym.agents import run_harness
from coding_gym.agents.file_changes import FileChange
from coding_gym.doors import Egress, ServerTarget
from coding_gym.errors import ConfigurationError
from coding_gym.sandbox.pool import SandboxPool
from coding_gym.tasks import Asserts, Task, TaskSuite
from tests.support.chat_endpoint import ChatEndpoint, completion
from tests.support.environments import OPTIONS

every_provider = pytest.mark.every_provider

AGENT = """
import json, os, subprocess, sys, urllib.request
messages = [{"role": "user", "content": sys.argv[1]}]
while True:
    body = json.dumps({"model": "m", "messages": messages}).encode()
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions", body,
        {"Content-Type": "application/json", "Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]},
    )
    reply = json.load(urllib.request.urlopen(request, timeout=60))["choices"][0]["message"]["content"]
    messages.append({"role": "assistant", "content": reply})
    if reply == "done":
        break
    ran = subprocess.run(reply, shell=True, capture_output=True, text=True)
    messages.append({"role": "user", "content": ran.stdout + ran.stderr})
print("finished")
"""
COMMAND = ["python3", "-c", AGENT]


@pytest.fixture(scope="module")
def harness_pool(provider):
    with SandboxPool(1, provider=provider, preload=(), sessions=4, acquire_timeout=60) as pool:
        yield pool


@pytest.fixture
def env(harness_pool):
    with closing(gym.make("CodingEnv-v0", pool=harness_pool, **OPTIONS)) as env:
        env.reset(seed=1, options={"files": {"kept.txt": "same\n", "changed.txt": "one\ntwo\n", "removed.txt": "old"}})
        yield env


def script(*replies):
    return lambda _, count: completion(replies[min(count, len(replies)) - 1])


@every_provider
def test_agent_runs_in_the_session(env):
    commands = (
        "cat changed.txt",
        "echo three >> changed.txt; rm removed.txt; mkdir new; printf '\\377' > new/file; echo x > new/t",
    )
    with ChatEndpoint(script(*commands, "done")) as endpoint:
        run = run_harness(env, [*COMMAND, "change it"], model=endpoint.url)
    assert (run.outcome, run.failure, run.result.stdout) == ("ok", None, b"finished\n")
    assert len(run.calls) == len(endpoint.requests) == 3
    assert [message["content"] for message in run.messages] == ["change it", commands[0], "one\ntwo\n", commands[1], "", "done"]
    assert run.changes == (
        FileChange("changed.txt", b"one\ntwo\n", b"one\ntwo\nthree\n"),
        FileChange("new/file", None, b"\xff"),
        FileChange("new/t", None, b"x\n"),
        FileChange("removed.txt", b"old", None),
    )
    assert run.diff == (
        "--- a/changed.txt\n+++ b/changed.txt\n@@ -1,2 +1,3 @@\n one\n two\n+three\n"
        "Binary files /dev/null and b/new/file differ\n"
        "--- /dev/null\n+++ b/new/t\n@@ -0,0 +1 @@\n+x\n"
        "--- a/removed.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-old\n\\ No newline at end of file\n"
    )
    assert (run.verdict, run.reward) == (None, 0.0)
    assert env.step("print(open('changed.txt').read())")[0]["stdout"].endswith("three\n\n")


def test_key_of_the_endpoint_stays_outside(env):
    with ChatEndpoint(script("echo $OPENAI_API_KEY", "done"), api_key="real") as endpoint:
        target = ServerTarget(endpoint.url, headers={"Authorization": "Bearer real"})
        run = run_harness(env, [*COMMAND, "x"], model=target)
    assert run.outcome == "ok"
    assert run.messages[2]["content"] == "unused\n"


def test_function_as_a_model(env):
    def answer(request):
        return {"choices": [{"index": 0, "message": {"role": "assistant", "content": "done"}, "finish_reason": "stop"}]}

    assert run_harness(env, [*COMMAND, "x"], model=answer, port=4000).outcome == "ok"
    assert run_harness(env, [*COMMAND, "x"], model=answer, port=4000).outcome == "ok"


@pytest.mark.parametrize("status", [500, 429])
def test_failure_of_the_endpoint_is_infrastructure(env, status):
    with ChatEndpoint(lambda *_: (status, {}, b"overloaded")) as endpoint:
        run = run_harness(env, [*COMMAND, "x"], model=endpoint.url)
    assert run.outcome == "infrastructure"
    assert run.failure.startswith(f"the endpoint of the model failed: status {status}: overloaded")
    assert run.result.exit_code == 1
    assert run.messages == []


def test_endpoint_that_is_gone_is_infrastructure(env):
    with ChatEndpoint(script("done")) as endpoint:
        url = endpoint.url
    run = run_harness(env, [*COMMAND, "x"], model=url)
    assert run.outcome == "infrastructure"
    assert "the endpoint of the model failed" in run.failure


def test_agent_that_fails(env):
    run = run_harness(env, "echo broken >&2; exit 3", model="http://127.0.0.1:1")
    assert (run.outcome, run.result.exit_code, run.result.stderr, run.calls) == ("error", 3, b"broken\n", ())


def test_time_limit(env):
    # Long enough for the shell to begin on a busy machine.
    run = run_harness(env, "echo begun; exec sleep 60", model="http://127.0.0.1:1", timeout=5)
    assert (run.outcome, run.result.stdout) == ("timeout", b"begun\n")


def test_lost_sandbox_is_infrastructure(env):
    env.unwrapped.abort()
    run = run_harness(env, "true", model="http://127.0.0.1:1")
    assert (run.outcome, run.result) == ("infrastructure", None)
    assert "the sandbox failed" in run.failure


def test_directory_and_variables(env):
    run = run_harness(env, "pwd; echo $NAME > $OTHER", model=lambda _: "", cwd="/tmp", variables={"NAME": "n", "OTHER": "o"})
    assert run.result.stdout == b"/tmp\n"
    assert FileChange("o", None, b"n\n") in run.changes


TASK = Task(id="twice", prompt="Write twice(x).", entry_point="twice", tests=Asserts(cases=("assert twice(2) == 4",)))
SUITE = TaskSuite("twice", [TASK])


@pytest.mark.parametrize(("program", "reward"), [("def twice(x): return 2 * x", 1.0), ("def twice(x): return x", 0.0)])
def test_verdict_of_a_task(program, reward):
    with closing(gym.make("CodingTask-v0", suite=SUITE, provider="local", preload=(), **OPTIONS)) as env:
        env.reset(seed=1)
        with ChatEndpoint(script(f"echo '{program}' > solution.py", "done")) as endpoint:
            run = run_harness(env, [*COMMAND, "solve it"], model=endpoint.url, solution="solution.py")
        assert (run.outcome, run.reward, run.verdict.passed) == ("ok", reward, reward == 1)


def test_task_without_a_solution():
    with closing(gym.make("CodingTask-v0", suite=SUITE, provider="local", preload=(), **OPTIONS)) as env:
        env.reset(seed=1)
        run = run_harness(env, "true", model=lambda _: "", solution="solution.py")
        assert (run.outcome, run.verdict, run.reward) == ("ok", None, 0.0)


def test_misuse(env):
    with pytest.raises(ConfigurationError, match="got an Egress"):
        run_harness(env, "true", model=Egress(allow=[]))
    with pytest.raises(ConfigurationError, match="solution= with a CodingTask-v0 only"):
        run_harness(env, "true", model="http://127.0.0.1:1", solution="x.py")
    with pytest.raises(ConfigurationError, match="Expected a CodingEnv"):
        run_harness(gym.make("CartPole-v1"), "true", model="http://127.0.0.1:1")


MINI = """
import json, sys
from minisweagent.agents.default import DefaultAgent
from minisweagent.environments.local import LocalEnvironment
from minisweagent.models.litellm_model import LitellmModel
import yaml, importlib.resources
from pathlib import Path
from minisweagent.config import builtin_config_dir
config = yaml.safe_load((Path(builtin_config_dir) / "default.yaml").read_text())["agent"]
model = LitellmModel(model_name="openai/m", cost_tracking="ignore_errors")
agent = DefaultAgent(model, LocalEnvironment(), **config)
print(agent.run(sys.argv[1]))
"""


def tool_call(command):
    """Return what a model responds that calls mini-swe-agent's tool."""
    call = {"id": "c", "type": "function", "function": {"name": "bash", "arguments": json.dumps({"command": command})}}
    message = {"role": "assistant", "content": "I run it.", "tool_calls": [call]}
    return {
        "id": "r",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }


@pytest.mark.skipif(importlib.util.find_spec("minisweagent") is None, reason="requires mini-swe-agent")
def test_mini_swe_agent(env, provider):
    if provider != "local":
        pytest.skip("the image lacks mini-swe-agent")
    commands = iter(["sed -i s/one/1/ changed.txt", "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"])
    variables = {"HOME": "/tmp", "MSWEA_SILENT_STARTUP": "1", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    command = [sys.executable, "-c", MINI, "replace it"]
    run = run_harness(env, command, model=lambda _: tool_call(next(commands)), variables=variables, timeout=300)
    assert run.outcome == "ok", run.result.stderr_text
    assert [change.path for change in run.changes] == ["changed.txt"]
    assert len(run.calls) == 2
    assert run.tools[0]["function"]["name"] == "bash"
    assert [message["role"] for message in run.messages] == ["system", "user", "assistant", "tool", "assistant"]
