# /// script
# dependencies = ["httpx==0.28.1", "mini-swe-agent==2.4.6"]
# ///
"""mini-swe-agent's agents run their commands in a sandbox."""

from __future__ import annotations

import json

import pytest
from minisweagent.agents.default import DefaultAgent
from minisweagent.environments import get_environment
from minisweagent.environments.local import LocalEnvironment
from minisweagent.exceptions import Submitted
from minisweagent.models.test_models import DeterministicModel, make_output
from pydantic import ValidationError

from coding_gym.errors import ConfigurationError, TransportError
from coding_gym_trainers.minisweagent import SandboxEnvironment
from tests.support.sandbox_faults import kill_sessions

NAME = "coding_gym_trainers.minisweagent.SandboxEnvironment"


@pytest.fixture(scope="module")
def shared(pool):
    with SandboxEnvironment(pool=pool, timeout=20, env={"GREETING": "grüß ✓"}) as env:
        yield env


def run(env, command, **options):
    return env.execute({"command": command}, **options)


def test_agent_works_in_sandbox(shared, tmp_path):
    outputs = [
        make_output("Write.", [{"command": "echo 'print(6 * 7)' > answer.py"}]),
        make_output("Fail.", [{"command": "python3 nowhere.py"}]),
        make_output("Run.", [{"command": "python3 answer.py"}]),
        make_output("Done.", [{"command": "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; cat answer.py"}]),
    ]
    agent = DefaultAgent(
        DeterministicModel(outputs=outputs),
        shared,
        system_template="You use {{system}} {{release}} {{machine}}.",
        instance_template="{{task}}",
        cost_limit=100.0,
        output_path=tmp_path / "trajectory.json",
    )
    result = agent.run("Print 42.")
    assert (result["exit_status"], result["submission"]) == ("Submitted", "print(6 * 7)\n")
    observations = [str(message["content"]) for message in agent.messages if "<returncode>" in str(message["content"])]
    assert "<returncode>2</returncode>" in observations[1]
    assert "No such file" in observations[1]
    assert "<returncode>0</returncode>\n<output>\n42\n</output>" in observations[2]
    saved = json.loads((tmp_path / "trajectory.json").read_text())["info"]["config"]
    assert saved["environment_type"] == NAME
    assert saved["environment"]["timeout"] == 20
    assert agent.messages[0]["content"].startswith("You use Linux ")


@pytest.mark.parametrize(
    "command",
    [
        "echo hi",
        "echo out; echo err >&2; echo out",
        "exit 3",
        "no_such_program 2>/dev/null",
        "kill -9 $$",
        "",
        "printf '\\377\\376'",
        "cat",
        "echo 'é ✓ 漢字'",
    ],
)
def test_outputs_equal_those_of_local_environment(shared, command):
    ours, theirs = run(shared, command), LocalEnvironment(timeout=20).execute({"command": command})
    # The return code of a signal is that of a shell.
    theirs["returncode"] = theirs["returncode"] % 256 if theirs["returncode"] >= 0 else 128 - theirs["returncode"]
    assert ours == theirs


def test_files_persist_and_variables_do_not(shared):
    run(shared, "mkdir -p sub; export X=1; echo kept > sub/file")
    assert run(shared, "echo -n $X; cat file", cwd="sub")["output"] == "kept\n"
    assert run(shared, "pwd", cwd="/usr")["output"] == "/usr\n"
    assert run(shared, "echo $GREETING")["output"] == "grüß ✓\n"
    nowhere = run(shared, "true", cwd="/nowhere")
    assert (nowhere["output"], nowhere["returncode"]) == ("/nowhere: No such file or directory\n", 127)


def test_timeout_kills_and_keeps_output(shared):
    output = run(shared, "echo begun; (sleep 61.17; touch late) & sleep 61.17", timeout=0.5)
    assert (output["output"], output["returncode"]) == ("begun\n", -1)
    assert "timed out after 0.5 seconds" in output["exception_info"]
    assert output["extra"]["exception_type"] == "TimeoutExpired"
    assert run(shared, "pgrep -f 'sleep 61[.]17' || echo none")["output"] == "none\n"


def test_large_output_says_what_it_lacks(shared):
    output = run(shared, "head -c 20000000 /dev/zero | tr '\\0' x")["output"]
    assert output.endswith(f"x\n[{20_000_000 - (16 << 20)} more bytes]")


@pytest.mark.parametrize("command", ["echo \0", "echo \ud800", "echo " + "x" * (17 << 20)], ids=["null", "surrogate", "long"])
def test_command_that_cannot_run_is_an_output(shared, command):
    output = run(shared, command)
    assert (output["output"], output["returncode"]) == ("", -1)
    assert "An error occurred" in output["exception_info"]
    assert run(shared, "echo on")["output"] == "on\n"


def test_submission_needs_success_and_first_line(shared):
    marker = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
    assert run(shared, f"{marker}; false")["returncode"] == 1
    assert run(shared, f"echo first; {marker}")["returncode"] == 0
    with pytest.raises(Submitted) as caught:
        run(shared, f"{marker}; echo 'the ✓ answer'")
    assert caught.value.messages[0]["extra"]["submission"] == "the ✓ answer\n"


def test_environment_is_made_by_name(pool):
    env = get_environment({"environment_class": NAME, "timeout": 5, "sandbox": {"provider": "local", "preload": ()}})
    assert run(env, "echo hi")["output"] == "hi\n"
    env.cleanup()
    env.cleanup()
    with pytest.raises(Exception, match="closed"):
        run(env, "echo hi")


def test_invalid_options_are_refused():
    with pytest.raises(ValidationError):
        SandboxEnvironment(timeuot=5)
    with pytest.raises(ConfigurationError):
        SandboxEnvironment(sandbox={"no_such_option": 1})


def test_command_that_exceeds_limit_is_an_output():
    with SandboxEnvironment(sandbox={"provider": "local", "pids_limit": 60}) as env:
        run(env, "touch kept")
        output = run(env, "for i in $(seq 200); do sleep 60 & done; wait")
        assert output["returncode"] == 137
        assert "the sandbox's limit is 60" in output["output"]
        assert run(env, "ls")["output"] == "kept\n"


def test_lost_session_is_not_an_output():
    with SandboxEnvironment(sandbox={"provider": "local"}) as env:
        kill_sessions(env._env.sandbox)
        for _ in range(2):
            with pytest.raises(TransportError):
                run(env, "echo hi")


def test_lost_sandbox_is_not_an_output():
    with SandboxEnvironment(sandbox={"provider": "local"}) as env:
        env._env.sandbox.close()
        with pytest.raises(TransportError):
            run(env, "echo hi")
    with SandboxEnvironment(sandbox={"provider": "local"}) as env:
        agent = DefaultAgent(
            DeterministicModel(outputs=[make_output("Go.", [{"command": "echo hi"}])]),
            env,
            system_template="s",
            instance_template="i",
        )
        env._env.sandbox.close()
        with pytest.raises(TransportError):
            agent.run("task")
        assert agent.messages[-1]["extra"]["exit_status"] == "TransportError"


@pytest.mark.docker
def test_image(docker_engine):
    with SandboxEnvironment(image="debian:trixie-slim", sandbox={"provider": "docker"}) as env:
        assert run(env, "id -un; pwd; . /etc/os-release; echo $ID; command -v python3")["output"] == "root\n/\ndebian\n"
