"""Loaders choose where tests run, and options override them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from coding_gym.errors import ConfigurationError
from coding_gym.tasks import Asserts, Grader, Task, TaskSuite, UnitTests, load_suite
from coding_gym.tasks.loaders.modes import suited_mode

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
    assert (task.grading, task.metadata["libs"], task.prompt) == ("faithful", ["math"], PUBLISHED["complete_prompt"])
    assert load(tmp_path, ANNOTATED, instruct=True)[0].prompt == PUBLISHED["instruct_prompt"]


def test_prompt_is_available_to_isolated_tests(tmp_path: Path, grader: Grader) -> None:
    task = load(tmp_path, PUBLISHED, grading="isolated")[0]
    assert task.tests == UnitTests(source=f"import math\nTWO = 2\n{PUBLISHED['test']}")
    # Imports of the submission may have other names.
    for code in ("    return 2 * x", "from math import prod\ndel math\ndef task_func(x): return prod([2, x])"):
        verdict = grader.grade(task, code)
        assert (verdict.solved, verdict.mode) == (True, "isolated"), verdict


def test_rows_without_solutions_are_isolated(tmp_path: Path) -> None:
    (task,) = load(tmp_path, {name: value for name, value in PUBLISHED.items() if name != "canonical_solution"})
    assert (task.grading, task.reference) == ("isolated", None)


def test_option_overrides_the_mode_of_rows(tmp_path: Path, humaneval: TaskSuite) -> None:
    assert {task.grading for task in load(tmp_path, ASSERTS, PUBLISHED, grading="isolated")} == {"isolated"}
    faithful = load(tmp_path, ASSERTS, PUBLISHED, grading="faithful")
    assert {task.grading for task in faithful} == {"faithful"}
    assert Task.from_json(faithful[0].to_json()) == faithful[0]
    faithful.save(tmp_path / "saved.jsonl")
    assert {task.grading for task in load_suite(tmp_path / "saved.jsonl")} == {"faithful"}
    assert {task.grading for task in load_suite(tmp_path / "saved.jsonl", grading="isolated")} == {"isolated"}
    assert load_suite("basics", grading="faithful")[0].grading == "faithful"
    # In one process, the prompt's helpers are those of the submission.
    assert "def poly" not in load_suite("humaneval", grading="faithful")["HumanEval/32"].tests.setup
    assert {task.grading for task in humaneval} == {"isolated"}


@pytest.mark.parametrize(
    ("row", "grading", "complaint"),
    [
        (ASSERTS, "fast", "grading 'isolated' or 'faithful'; got 'fast'"),
        ({**ASSERTS, "reference": None}, "faithful", "a reference for faithful grading"),
        ({"prompt": "", "inputs": ["1"], "outputs": ["1"]}, "faithful", "Asserts or UnitTests for faithful grading"),
    ],
)
def test_impossible_mode_is_reported_with_its_row(tmp_path: Path, row: Any, grading: str, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=f"rows.json, element 1: Expected task 'rows/0' to have {complaint}"):
        load(tmp_path, row, grading=grading)


SHARING = [
    "from unittest.mock import patch\n@patch('solution.fetch')\ndef test_it(fetch): ...",
    "from unittest import mock\ndef test_it():\n    with mock.patch.object(solution, 'fetch'): ...",
    "import unittest.mock as m\nwith m.patch.dict('os.environ', {}):\n    assert f()",
    "import random\nrandom.seed(1)\nassert f() == 3",
    "import numpy as np\nfrom random import choice\nnp.random.seed(choice([1, 2]))\nassert f() == 3",
    "shop = Shop()\nshop.stock['tea'] = 3\nassert shop.sell('tea')",
    "import unittest\nclass T(unittest.TestCase):\n    def setUp(self):\n        self.order.menu[0].append('tea')",
    "import os\ndel os.environ['HOME']\nassert f()",
    "def test_it(tmp_path): ...",
    "async def test_it(*, monkeypatch): ...",
    "class TestDouble:\n    def test_it(self): ...",
    "import pytest\n@pytest.fixture\ndef data(): ...\ndef test_it(): ...",
    "from pytest import mark\nimport pytest\n@pytest.mark.parametrize('x', [1])\ndef test_it(x=0): ...",
]
ISOLATED = [
    "from unittest.mock import patch\nwith patch('builtins.print') as printed:\n    f()",
    "from unittest.mock import patch\n@patch('sys.stdout')\ndef check(out): assert f()",
    "from unittest.mock import MagicMock\nassert f(MagicMock())",
    "import random\nrandom.seed(1)\nassert f(random.random())",
    "from numpy.random import seed, rand\nseed(1)\nassert f(rand(3))",
    "def patch(x): ...\npatch('solution.fetch')\nassert f()",
    "import unittest\nclass T(unittest.TestCase):\n    def setUp(self):\n        self.calls.append(1); self.seen['a'] = 1",
    "import sys\ncalls = {}\ncalls['a'] = [1]\ncalls['a'].append(2)\nsys.path.append('/x')\nassert f(calls)",
    "def test_it(x=1): ...",
    "import pytest\nwith pytest.raises(ValueError):\n    f()",
    "assert f(",
]


@pytest.mark.parametrize("source", SHARING)
def test_tests_that_share_a_process_are_faithful(source: str) -> None:
    assert suited_mode(UnitTests(source=source), reference="x = 1") == "faithful"
    assert suited_mode(Asserts(setup=source, cases=("assert f()",)), reference="x = 1") == "faithful"
    assert suited_mode(UnitTests(source=source), reference=None) == "isolated"


@pytest.mark.parametrize("source", ISOLATED)
def test_tests_that_share_nothing_are_isolated(source: str) -> None:
    assert suited_mode(UnitTests(source=source), reference="x = 1") == "isolated"


def test_rows_with_patches_become_faithful_tasks(tmp_path: Path) -> None:
    plain, human_eval = load(
        tmp_path,
        {**ASSERTS, "tests": ["import random\nrandom.seed(1)", "assert double(1) == 2"]},
        {
            "prompt": "def double(x):\n",
            "entry_point": "double",
            "canonical_solution": "    return 2 * x",
            "test": f"import unittest\n{SHARING[0]}",
        },
    )
    assert plain.grading == human_eval.grading == "faithful"
