"""Commands and examples on a cluster."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from coding_gym.cli.main import app
from coding_gym.datasets import load
from plugins.ray.tests.conftest import HOST
from tests.support.requirements import import_extra

import_extra("ray")


ROOT = Path(__file__).parents[3]
OPTIONS = ["--option", "preload=[]", "--option", f"provider={HOST['provider']}", "--option", "screen=null"]


@pytest.fixture(autouse=True)
def node(cluster):
    return cluster.set_nodes(1)


def test_grade(tmp_path):
    samples = tmp_path / "samples.jsonl"
    rows = [
        {"task_id": "basics/add_up", "completion": "def add_up(*numbers):\n    return sum(*numbers)\n"},
        {"task_id": "basics/add_up", "completion": "1 / 0"},
    ]
    samples.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    result = CliRunner().invoke(
        app, ["grade", str(samples), "--suite", "basics", "--pool", "ray", "--provider", "local", "--k", "1", "-q"]
    )
    assert result.exit_code == 0, result.output
    graded = [json.loads(line) for line in (tmp_path / "samples.jsonl_results.jsonl").read_text().splitlines()]
    assert [row["task_id"] for row in graded] == ["basics/add_up"] * 2
    assert graded[1]["passed"] is False


def test_collect(tmp_path):
    script = tmp_path / "script.json"
    script.write_text(json.dumps(["print(6 * 7)"]))
    arguments = [
        "collect",
        "--out",
        str(tmp_path / "data"),
        "--episodes",
        "5",
        "--policy",
        str(script),
        "--pool",
        "ray",
        *OPTIONS,
    ]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert [episode.steps[1].observation["stdout"] for episode in load(tmp_path / "data")] == ["42\n"] * 5


def test_example_learns(cluster):
    command = [
        sys.executable,
        "examples/ray_rollouts.py",
        "--address",
        cluster.address,
        "--provider",
        "local",
        "--episodes",
        "60",
    ]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ}, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    assert "1 nodes with 2 places" in done.stdout
    assert "0 lost" in done.stdout
    first, last = map(float, re.findall(r"(?:quarter|last) ([0-9.]+)", done.stdout))
    assert last > first


def test_simulation_serves_in_order(tmp_path):
    plot = tmp_path / "plot.png"
    command = [sys.executable, "examples/ray_simulation.py", "--nodes", "1", "20", "--plot", str(plot)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=True)
    rows = [[cell.strip() for cell in line.split("|")] for line in done.stdout.splitlines()]
    assert [row[0] for row in rows] == ["nodes", "1", "20"]
    assert {row[rows[0].index("out of order")] for row in rows[1:]} == {"0.0"}
    assert plot.read_bytes().startswith(b"\x89PNG")
