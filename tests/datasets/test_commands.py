from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from coding_gym.cli.main import app
from coding_gym.datasets import load
from tests.support.running_server import RunningServer
from tests.support.timing import eventually

LOCAL = ["--option", "provider=local", "--option", "preload=[]", "--option", "screen=null"]


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_scripted_collection_is_exported_and_replayed(tmp_path):
    script = tmp_path / "script.json"
    script.write_text(json.dumps(["import random", "print(random.random())", "1/0"]))
    out = tmp_path / "out"
    command = ["collect", "--policy", script, "--episodes", 3, "--seed", 5, "--out", out, "--sessions", 2, *LOCAL]
    result = run(*command)
    assert result.exit_code == 0, result.output
    dataset = load(out)
    assert result.output == f"{out}: 3 episodes, SHA-256 {dataset.sha256}\n"
    assert dataset.manifest.arguments.env_options == {"provider": "local", "preload": [], "screen": None}
    # Repeat the command: the dataset is already complete.
    assert run(*command).output == result.output

    result = run("replay", out)
    assert (result.exit_code, result.output) == (0, "3 of 3 episodes were reproduced.\n")

    result = run("export", out, tmp_path / "parquet")
    assert (result.exit_code, result.output) == (0, f"wrote {tmp_path}/parquet/data/train-00000-of-00001.parquet\n")
    result = run("export", out, tmp_path / "chat.jsonl", "--to", "chat")
    assert (result.exit_code, result.output) == (0, f"wrote {tmp_path}/chat.jsonl: 3 conversations\n")

    result = run(*command[:-6], "--option", "provider=local", "--max-steps", 2)
    assert result.exit_code == 1
    assert "env_options.preload was [], now it is None" in result.stderr


def test_token_of_a_server_comes_from_the_environment(tmp_path, monkeypatch):
    out = tmp_path / "out"
    with RunningServer(tmp_path, token="secret") as server:
        remote = ["--option", "provider=remote", "--option", f"base_url={server.url}", "--option", "screen=null"]
        command = ["collect", "--episodes", 1, "--max-steps", 1, "--sessions", 1, "--out", out, *remote]
        monkeypatch.delenv("CODING_GYM_TOKEN", raising=False)
        assert run(*command).exit_code == 1
        monkeypatch.setenv("CODING_GYM_TOKEN", "secret")
        result = run(*command)
        assert (result.exit_code, run("replay", out, *remote).exit_code) == (0, 0), result.output
    assert "secret" not in (out / "manifest.json").read_text()


def test_replay_reports_first_difference(tmp_path):
    program = tmp_path / "program.py"
    program.write_text("print(open('/proc/uptime').read())")
    out = tmp_path / "out"
    assert run("collect", "--policy", program, "--episodes", 2, "--out", out, *LOCAL).exit_code == 0
    result = run("replay", out, "--episode", 1, "--option", "provider=local")
    assert result.exit_code == 1
    first, last = result.output.splitlines()
    assert first.startswith("episode 1, step 1, observation.stdout: expected '")
    assert last == "0 of 1 episodes were reproduced."


def test_policy_is_imported_and_unknown_environment_refused(tmp_path, monkeypatch):
    (tmp_path / "my_policies.py").write_text("def stop(observation, info, rng):\n    return None\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    result = run("collect", "--env", "CartPole-v1", "--policy", "my_policies:stop", "--episodes", 2, "--out", "out")
    assert result.exit_code == 0, result.output
    assert load("out").manifest.arguments.policy == {"name": "my_policies.stop"}
    result = run("collect", "--env", "Nonexistent-v1", "--episodes", 2, "--out", "other")
    assert result.exit_code == 1
    assert "Nonexistent" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--policy", "nothing"], "module:function"),
        (["--policy", "nonexistent:policy"], "Expected a policy as MODULE:NAME"),
        (["--policy", "missing.json"], "cannot be read"),
        (["--policy", "chat:m", "--base-url", "localhost"], "Expected base_url="),
        (["--base-url", "http://localhost"], "chat:MODEL"),
        (["--option", "screen"], "NAME=VALUE"),
        (["--option", "token=x"], "CODING_GYM_TOKEN"),
    ],
)
def test_invalid_arguments_are_refused(tmp_path, arguments, said):
    result = run("collect", "--episodes", 1, "--out", tmp_path / "out", *arguments)
    assert result.exit_code in (1, 2)
    assert said in result.stderr
    assert not (tmp_path / "out").exists()


def test_replay_without_dataset_is_refused(tmp_path):
    result = run("replay", tmp_path)
    assert result.exit_code == 1
    assert "There is no dataset in" in result.stderr.replace("\n", " ")


def test_arguments_may_be_corrected_until_an_episode_is_written(tmp_path):
    out = tmp_path / "out"
    command = ["collect", "--env", "CodingEnv-v0", "--policy", "random", "--episodes", 2, "--out", out]
    result = run(*command, "--option", "provider=local", "--option", "screne=null")
    assert result.exit_code == 1
    assert "did you mean 'screen'" in result.stderr.replace("\n", " ")
    script = tmp_path / "script.json"
    script.write_text('["1"]')
    corrected = ["collect", "--policy", script, "--episodes", 1, "--out", out, *LOCAL]
    assert run(*corrected).exit_code == 0
    assert load(out).manifest.arguments.env_options == {"provider": "local", "preload": [], "screen": None}
    result = run(*corrected, "--seed", 7)
    assert result.exit_code == 1
    assert "different arguments" in result.stderr.replace("\n", " ")


def test_interrupt_is_no_fault_and_says_how_to_continue(tmp_path):
    script = tmp_path / "script.json"
    script.write_text(json.dumps(["import time; time.sleep(0.3)"] * 3))
    out = tmp_path / "out"
    command = ["collect", "--policy", script, "--episodes", 40, "--sessions", 2, "--out", out, *LOCAL]
    program = "import sys; from coding_gym.cli.main import app; app(sys.argv[1:])"
    process = subprocess.Popen(
        [sys.executable, "-c", program, *map(str, command)], stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert eventually(lambda: (out / "episodes.log").exists() and (out / "episodes.log").stat().st_size > 1000, 60)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert f"Interrupted. All completed episodes are in {out}; the same command continues." in said
    assert "Traceback" not in said
    assert not (out / "faults.jsonl").exists()


def test_missing_api_key_is_named(tmp_path, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    result = run("collect", "--policy", "chat:gpt", "--episodes", 1, "--out", tmp_path / "out")
    assert result.exit_code == 1
    assert "requires an API key: set the environment variable OPENAI_API_KEY" in result.stderr.replace("\n", " ")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("to", ["chat", "parquet", "parquet-episodes", "minari"])
def test_export_of_nothing_is_refused(tmp_path, monkeypatch, to):
    pytest.importorskip({"chat": "json", "minari": "minari"}.get(to, "pyarrow"))
    out = tmp_path / "out"
    assert run("collect", "--policy", "random", "--episodes", 1, "--out", out, "--option", "screne=1").exit_code == 1
    result = run("export", out, tmp_path / "target" if to != "minari" else "nothing/none-v0", "--to", to)
    assert result.exit_code == 1
    assert "There " in result.stderr
    assert not (tmp_path / "target").exists()


def test_filter_that_selects_nothing_is_refused(tmp_path):
    assert run("export", tmp_path, "x", "--to", "parquet", "--only-solved").exit_code == 2
