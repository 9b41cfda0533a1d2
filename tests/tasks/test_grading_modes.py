"""Where the tests of tasks run: what their references permit, unless they say it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from coding_gym.errors import ConfigurationError
from coding_gym.tasks import Asserts, Grader, ProgramCase, Programs, Task, TaskSuite, UnitTests, checks, load_suite

DOCUMENTATION = '"""Double it."""'
PUBLISHED = {
    "task_id": "BigCodeBench/0",
    "complete_prompt": f"import math\nTWO = 2\ndef task_func(x):\n    {DOCUMENTATION}\n",
    "instruct_prompt": "Write a function that doubles.",
    "code_prompt": "import math\nTWO = 2\ndef task_func(x):\n",
    "canonical_solution": "    return TWO * x",
    "test": "import unittest\nclass TestCases(unittest.TestCase):\n"
    "    def test_1(self):\n        self.assertEqual(task_func(math.floor(1.5)), TWO)\n"
    "    def test_2(self):\n        self.assertEqual(task_func(3), 6)\n",
    "entry_point": "task_func",
    "libs": "['math']",
    "doc_struct": "{}",
}
ANNOTATED = {
    **{name: PUBLISHED[name] for name in ("task_id", "canonical_solution", "test", "entry_point")},
    "prompt": PUBLISHED["complete_prompt"],
    "instruction": PUBLISHED["instruct_prompt"],
    "prompt_wo_doc": PUBLISHED["code_prompt"],
    "clean_canonical_solution": PUBLISHED["canonical_solution"],
    "libs": ["math"],
}
ASSERTS = {"prompt": "Double.", "tests": ["assert double(1) == 2"], "reference": "def double(x): return 2 * x"}


def load(path: Path, *rows: Mapping[str, Any], **options: Any) -> TaskSuite:
    path = path / "rows.json"
    path.write_text(json.dumps(rows))
    return load_suite(path, **options)


def test_both_files_of_big_code_bench_are_equal(tmp_path: Path) -> None:
    for options in ({}, {"instruct": True}, {"grading": "isolated"}):
        assert load(tmp_path, PUBLISHED, **options)[0] == load(tmp_path, ANNOTATED, **options)[0]
    task = load(tmp_path, ANNOTATED)[0]
    assert (task.grading, task.metadata["libs"], task.prompt) == (None, ["math"], PUBLISHED["complete_prompt"])
    assert load(tmp_path, ANNOTATED, instruct=True)[0].prompt == PUBLISHED["instruct_prompt"]


def test_prompt_is_available_to_isolated_tests(tmp_path: Path, grader: Grader) -> None:
    task = load(tmp_path, PUBLISHED, grading="isolated")[0]
    assert task.tests == UnitTests(preamble="import math\nTWO = 2\n", source=PUBLISHED["test"])
    # Imports of the submission may have other names.
    for code in ("    return 2 * x", "from math import prod\ndel math\ndef task_func(x): return prod([2, x])"):
        verdict = grader.grade(task, code)
        assert (verdict.solved, verdict.mode) == (True, "isolated"), verdict


def test_tests_of_rows_without_solutions_must_agree(tmp_path: Path, grader: Grader) -> None:
    (task,) = load(tmp_path, {name: value for name, value in PUBLISHED.items() if name != "canonical_solution"})
    assert (task.grading, task.reference) == (None, None)
    verdict = grader.grade(task, "    return 2 * x")
    assert (verdict.solved, verdict.mode, verdict.broken) == (True, "agreement", "")


def test_option_overrides_the_mode_of_rows(tmp_path: Path, humaneval: TaskSuite) -> None:
    assert {task.grading for task in load(tmp_path, ASSERTS, PUBLISHED, grading="isolated")} == {"isolated"}
    faithful = load(tmp_path, ASSERTS, PUBLISHED, grading="faithful")
    assert {task.grading for task in faithful} == {"faithful"}
    assert Task.from_json(faithful[0].to_json()) == faithful[0]
    faithful.save(tmp_path / "saved.jsonl")
    assert {task.grading for task in load_suite(tmp_path / "saved.jsonl")} == {"faithful"}
    assert {task.grading for task in load_suite(tmp_path / "saved.jsonl", grading="isolated")} == {"isolated"}
    assert load_suite("basics", grading="faithful")[0].grading == "faithful"
    assert {task.grading for task in humaneval} == {None}


@pytest.mark.parametrize(
    ("row", "grading", "complaint"),
    [
        (ASSERTS, "fast", "grading 'agreement', 'isolated', 'faithful', 'copy', 'layer' or 'session'; got 'fast'"),
        ({**ASSERTS, "reference": None}, "faithful", "a reference for grading 'faithful'"),
        ({"prompt": "", "inputs": ["1"], "outputs": ["1"]}, "faithful", "Asserts or UnitTests for grading 'faithful'"),
    ],
)
def test_impossible_mode_is_reported_with_its_row(tmp_path: Path, row: Any, grading: str, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=f"rows.json, element 1: Expected task 'rows/0' to have {complaint}"):
        load(tmp_path, row, grading=grading)


CASE = "import unittest\nfrom solution import *\nimport solution\nclass T(unittest.TestCase):\n    def test_it(self):\n        "

# Tests, and their reference, by the mode that it permits.
MODES = {
    "values": ("agreement", "assert double(2) == 4", "def double(x): return 2 * x"),
    "one file": (
        "agreement",
        "import unittest\nclass T(unittest.TestCase):\n    def test_it(self): self.assertEqual(double(2), 4)\n",
        "import unittest\ndef double(x): return 2 * x\nclass Mine(unittest.TestCase):\n    def test_mine(self): self.fail()\n",
    ),
    "two files": ("agreement", f"{CASE}self.assertEqual(double(2), 4)", "def double(x): return 2 * x"),
    "pytest": (
        "agreement",
        "import pytest\ndef test_it():\n    with pytest.raises(TypeError): double()",
        "def double(x): return x",
    ),
    "parameters": (
        "faithful",
        "import pytest\nfrom solution import double\n"
        "@pytest.mark.parametrize('x', [1, 2])\ndef test_it(x): assert double(x) == 2 * x",
        "def double(x): return 2 * x",
    ),
    "fixtures": (
        "faithful",
        "from solution import double\ndef test_it(tmp_path): assert double(tmp_path)",
        "def double(x): return x",
    ),
    "a patch": (
        "faithful",
        f"from unittest import mock\n{CASE}with mock.patch('time.time', lambda: 3): self.assertEqual(now(), 3)",
        "import time\ndef now(): return time.time()",
    ),
    "state of a module": (
        "faithful",
        "import decimal\ndecimal.getcontext().prec = 3\nassert third() == decimal.Decimal('0.333')",
        "import decimal\ndef third(): return decimal.Decimal(1) / 3",
    ),
}


@pytest.mark.parametrize("name", MODES)
def test_mode_is_found_out_by_running_the_reference(grader: Grader, name: str) -> None:
    mode, source, reference = MODES[name]
    tests = UnitTests(source=source) if "def test_" in source else Asserts(cases=(source,))
    verdict = grader.grade(Task(id="t", prompt="", tests=tests, reference=reference), reference)
    assert (verdict.mode, verdict.solved, verdict.broken, verdict.disagreement) == (mode, True, "", ""), verdict


# References that fail in plain Python, and what is said of them.
BROKEN = {
    "wrong": (Asserts(cases=("assert one() == 1", "assert one() == 2")), "def one(): return 1", "'1'"),
    "no module": (Asserts(setup="import nonexistent", cases=("assert one()",)), "def one(): return 1", "ModuleNotFoundError"),
    "syntax": (Asserts(cases=("assert one()",)), "def one(: return 1", "SyntaxError"),
    "name": (UnitTests(source="def test_it(): assert one() == two()"), "def one(): return 1", "test_it"),
    "exit": (Asserts(cases=("assert one()",)), "import os\nos._exit(0)", "its process ended"),
    "program": (Programs(cases=(ProgramCase(stdout="2"),)), "print(1)", "differs"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_task_whose_reference_fails_is_broken(
    grader: Grader, name: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    tests, reference, complaint = BROKEN[name]
    task = Task(id=f"t/{tmp_path.name}", prompt="", tests=tests, reference=f"{reference}\n# {tmp_path.name}")
    verdict = grader.grade(task, reference)
    assert not verdict.solved
    assert complaint in verdict.broken
    assert [task.id in record.getMessage() for record in caplog.records] == [True]
    grader.grade(task, reference)
    assert len(caplog.records) == 1


def test_checks_are_kept_across_processes(grader: Grader, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    task = Task(id="t", prompt="", tests=Asserts(cases=("assert f() == 1",)), reference=f"def f(): return 1\n# {tmp_path.name}")
    assert grader.grade(task, "def f(): return 1").mode == "agreement"
    (kept,) = (tmp_path / "coding_gym" / "tasks").iterdir()
    kept.write_text('{"mode":"isolated"}')
    assert grader.grade(task, "def f(): return 1").mode == "agreement"
    monkeypatch.setattr(checks, "_known", {})
    assert grader.grade(task, "def f(): return 1").mode == "isolated"
    kept.write_text("{")
    monkeypatch.setattr(checks, "_known", {})
    assert grader.grade(task, "def f(): return 1").mode == "agreement"
    assert kept.read_text() != "{"
