from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from coding_gym.cli.main import app
from coding_gym.datasets import load

LOCAL = ["--option", "provider=local", "--option", "preload=[]", "--option", "screen=null"]


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.mark.slow
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


@pytest.mark.slow
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
        (["--policy", "nonexistent:policy"], "no policy"),
        (["--policy", "missing.json"], "cannot be read"),
        (["--policy", "chat:m", "--base-url", "localhost"], "Expected base_url="),
        (["--base-url", "http://localhost"], "chat:MODEL"),
        (["--option", "screen"], "NAME=VALUE"),
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
