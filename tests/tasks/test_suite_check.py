"""Checks of suites, when they are loaded and on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from coding_gym.cli import main as cli
from coding_gym.tasks import Grader, load_suite

GOOD = {"id": "good", "prompt": "Double.", "tests": {"type": "asserts", "cases": ["assert double(1) == 2"]}}
RIGHT = "def double(x): return 2 * x"
ROWS = [
    {**GOOD, "reference": RIGHT},
    {**GOOD, "id": "wrong", "reference": "def double(x): return x"},
    {**GOOD, "id": "bare"},
    {
        **GOOD,
        "id": "patched",
        "reference": "import time\ndef now(): return time.time()",
        "tests": {
            "type": "unittest",
            "source": "from unittest import mock\ndef test_now():\n"
            "    with mock.patch('time.time', lambda: 3): assert now() == 3",
        },
    },
    {"id": "program", "prompt": "Print 1.", "reference": "print(2)", "tests": {"type": "programs", "cases": [{"stdout": "1"}]}},
]


def suite_of(path: Path, *rows: object) -> Path:
    path = path / "suite.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def check(*arguments: object) -> Result:
    return CliRunner().invoke(cli.app, ["suites", "check", *map(str, arguments), "--provider", "local", "--quiet"])


def test_broken_and_weak_tasks_are_named_when_a_suite_is_loaded(
    grader: Grader, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    suite = load_suite(suite_of(tmp_path, *ROWS), check=grader)
    assert len(suite) == len(ROWS)
    messages = [record.getMessage() for record in caplog.records if record.name == "coding_gym.tasks.suite_check"]
    assert [message.split(":")[0] for message in messages] == [
        "task 'wrong' is broken",
        "task 'patched' is weak",
        "task 'program' is broken",
    ]


def test_command_lists_broken_and_weak_tasks(tmp_path: Path) -> None:
    result = check(suite_of(tmp_path, *ROWS))
    assert result.exit_code == 1, result.output
    lines = result.output.splitlines()
    assert [line.split(":")[:2] for line in lines[:-1]] == [["broken", " wrong"], ["weak", " patched"], ["broken", " program"]]
    assert lines[-1] == "5 tasks: 1 agreement, 2 broken, 1 faithful, 1 no reference (1 weak)"


def test_suite_without_broken_tasks_is_a_success(tmp_path: Path) -> None:
    result = check(suite_of(tmp_path, ROWS[0]))
    assert (result.exit_code, result.output) == (0, "1 task: 1 agreement\n")


def test_suites_and_their_tasks_are_listed(tmp_path: Path) -> None:
    listed = CliRunner().invoke(cli.app, ["suites"])
    assert listed.exit_code == 0, listed.output
    assert {"basics", "programs", "humaneval", "mbpp:PATH"} <= {line.split()[0] for line in listed.output.splitlines()}
    long = {**ROWS[0], "id": "long", "prompt": "\n  " + "x" * 200 + "\nmore"}
    tasks = CliRunner().invoke(cli.app, ["suites", "list", str(suite_of(tmp_path, ROWS[0], long))])
    assert [line.split()[0] for line in tasks.output.splitlines()] == [ROWS[0]["id"], "long"]
    assert tasks.output.splitlines()[1].endswith("xxx…")


def test_command_refuses_what_is_no_suite() -> None:
    result = check("nonexistent")
    assert result.exit_code == 1
    assert "There is no suite 'nonexistent'" in result.output
