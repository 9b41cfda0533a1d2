"""Rows with several columns of tests, and rows whose cases are calls of functions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from coding_gym.errors import ConfigurationError
from coding_gym.tasks import Asserts, Grader, Programs, Task, UnitTests, load_suite

SOLUTION = "def double(x):\n    return 2 * x\n"
NEGATIVE_WRONG = "def double(x):\n    return 2 * abs(x)\n"
LARGE_WRONG = "def double(x):\n    return min(2 * x, 100)\n"

MBPP_PLUS = {
    "task_id": 2,
    "code": SOLUTION,
    "prompt": "Write a function to double.",
    "source_file": "Benchmark Questions Verification V2.ipynb",
    "test_imports": [],
    "test_list": ["assert double(1) == 2", "assert double(2) == 4"],
    "test": (
        "import math\n\n\ndef is_floats(x) -> bool:\n    return isinstance(x, float)\n\n\n"
        "def assertion(out, exp, atol):\n    exact_match = out == exp\n"
        "    if atol == 0 and is_floats(exp):\n        atol = 1e-6\n"
        "    assert exact_match or math.isclose(out, exp, abs_tol=atol)\n\n\n"
        "inputs = [[1], [-1], [100]]\nresults = [2, -2, 200]\n"
        "for i, (inp, exp) in enumerate(zip(inputs, results)):\n    assertion(double(*inp), exp, 0)\n"
    ),
}
CASES = (
    "import unittest\n\n\nclass TestIt(unittest.TestCase):\n    def test_it(self):\n        self.assertEqual(double(-1), -2)\n"
)
FUNCTIONS = "from solution import double\n\n\ndef test_it():\n    assert double(100) == 200\n"
CHECK = "def check(candidate):\n    assert candidate(-1) == -2\n"
PROMPT = {"prompt": "Double.", "solution": SOLUTION}
LIST = ["assert double(1) == 2"]


def load(path: Path, row: Mapping[str, Any]) -> Task:
    (path / "rows.jsonl").write_text(json.dumps(row))
    return load_suite(path / "rows.jsonl")[0]


@pytest.mark.parametrize(
    ("row", "kind", "wrong"),
    [
        (MBPP_PLUS, Asserts, [NEGATIVE_WRONG, LARGE_WRONG]),
        (MBPP_PLUS | {"test": CASES}, UnitTests, [NEGATIVE_WRONG]),
        (MBPP_PLUS | {"test": "", "unit_tests": FUNCTIONS}, UnitTests, [LARGE_WRONG]),
        (PROMPT | {"test_list": LIST, "test": "assert double(-1) == -2"}, Asserts, [NEGATIVE_WRONG]),
        (PROMPT | {"test_list": LIST, "test_code": FUNCTIONS}, UnitTests, [LARGE_WRONG]),
        (PROMPT | {"test": CASES, "test_code": FUNCTIONS, "test_list": LIST}, UnitTests, [NEGATIVE_WRONG, LARGE_WRONG]),
        (PROMPT | {"test_list": LIST, "test": CHECK, "entry_point": "double"}, Asserts, [NEGATIVE_WRONG]),
        (
            {"prompt": "def double(x):\n", "entry_point": "double", "canonical_solution": "    return 2 * x\n", "test": CHECK}
            | {"test_list": ["assert double(100) == 200"]},
            Asserts,
            [NEGATIVE_WRONG, LARGE_WRONG],
        ),
        (
            PROMPT | {"test_list": LIST, "test_cases": [{"fn_name": "double", "input": [100], "output": 200}]},
            Asserts,
            [LARGE_WRONG],
        ),
        (PROMPT | {"tests": LIST, "unit_tests": json.dumps(["assert double(100) == 200"])}, Asserts, [LARGE_WRONG]),
    ],
)
def test_all_columns_of_tests_count(
    tmp_path: Path, grader: Grader, row: Mapping[str, Any], kind: type, wrong: list[str]
) -> None:
    task = load(tmp_path, row)
    assert isinstance(task.tests, kind)
    assert task.reference is not None
    verdict = grader.grade(task, task.reference)
    assert verdict.solved, verdict
    for code in wrong:
        verdict = grader.grade(task, code)
        assert verdict.outcome == "failed"
        assert 0 < verdict.passed < verdict.total


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("example_test", "def check(double):\n    assert double(100) == 200\ncheck(double)\n"),
        ("hidden_tests", ["assert double(100) == 200"]),
        ("extraTestCases", [{"fn_name": "double", "input": [100], "output": 200}]),
        ("unittests", FUNCTIONS),
    ],
)
def test_columns_with_other_names_of_tests_count(tmp_path: Path, grader: Grader, column: str, value: object) -> None:
    row = {"prompt": "def double(x):\n", "entry_point": "double", "canonical_solution": "    return 2 * x\n", "test": CHECK}
    for fields in (MBPP_PLUS | {"entry_point": "double"}, row, PROMPT | {"tests": LIST, "entry_point": "double"}):
        task = load(tmp_path, {**fields, column: value})
        assert grader.grade(task, SOLUTION).solved
        assert grader.grade(task, LARGE_WRONG).outcome == "failed"


def test_same_names_in_two_columns_do_not_replace_each_other(tmp_path: Path, grader: Grader) -> None:
    second = CASES.replace("-1", "100").replace("-2", "BIG") + "\n\nBIG = 200\n"
    first = CASES.replace("-2", "BIG") + "\n\nBIG = -2\n"
    task = load(tmp_path, PROMPT | {"test": first, "test_code": second})
    assert grader.grade(task, SOLUTION).total == 2
    assert grader.grade(task, SOLUTION).solved
    for code in (NEGATIVE_WRONG, LARGE_WRONG):
        assert grader.grade(task, code).passed == 1
    helper = "def near(a, b):\n    assert a == b{}\n\nnear(double(1), 2)\n"
    task = load(tmp_path, PROMPT | {"test": helper.format(""), "test_code": helper.format(" + 0")})
    assert grader.grade(task, SOLUTION).solved
    argument = "def near(a, b):\n    assert a == b\n\ndef far(near):\n    near(double(1), 3)\nassert double(1) == 2"
    with pytest.raises(ConfigurationError, match="near of the column test_code is already defined differently"):
        load(tmp_path, PROMPT | {"test": helper.format(" + 0"), "test_code": argument})


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("hidden_tests", ["3 is doubled to 6"]),
        ("testInputs", [1, 2]),
        ("unittest_source", "self.assertEqual(double(3), 6)"),
        ("test_patch", "diff --git a/b c/d"),
        ("extra-tests", {"a": 1}),
        ("test_list_2", '["assert double(3) = 6"]'),
        ("test", 'print("no tests here")'),
        ("test_code", {"script": "run"}),
        ("test_cases", [[1, 2]]),
        ("unit_tests", ["double(1)", "double(2)"]),
    ],
)
@pytest.mark.parametrize("row", [MBPP_PLUS | {"test": ""}, PROMPT | {"tests": LIST}], ids=["MBPP", "plain"])
def test_tests_that_are_not_understood_are_an_error(tmp_path: Path, row: Mapping[str, Any], column: str, value: object) -> None:
    with pytest.raises(ConfigurationError, match=rf"line 1: .*\b{column}\b"):
        load(tmp_path, {**row, column: value})


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("contest_id", "abc 1"),
        ("latest_commit", "a b c"),
        ("test_framework", "pytest"),
        ("test_count", 7),
        ("average_test_score", 0.5),
        ("test_code", ""),
        ("hidden_tests", []),
        ("unit_tests", "[]"),
        ("testtype", None),
    ],
)
def test_other_columns_are_ignored(tmp_path: Path, column: str, value: object) -> None:
    assert load(tmp_path, {**MBPP_PLUS, column: value}) == load(tmp_path, MBPP_PLUS)


def test_the_only_definition_of_a_solution_is_checked(tmp_path: Path, grader: Grader) -> None:
    task = load(tmp_path, {"prompt": "Double.", "gold_standard_solution": f"```python\n{SOLUTION}```", "test": CHECK})
    assert (task.entry_point, task.reference) == ("double", SOLUTION)
    assert grader.grade(task, SOLUTION).solved


def test_descriptions_of_functions_are_no_tests(tmp_path: Path) -> None:
    described = [{"function_name": "double", "function_declaration": "def double(x):", "docstring": "Doubles."}]
    row = {"question": "Double.", "solution": SOLUTION, "test": FUNCTIONS, "test_info": described}
    assert load(tmp_path, row).entry_point == "double"


def test_setup_code_precedes_tests_of_any_format(tmp_path: Path, grader: Grader) -> None:
    row = {"prompt": "def double(x):\n", "entry_point": "double", "canonical_solution": "    return 2 * x\n"}
    task = load(
        tmp_path, row | {"test": CHECK.replace("-1", "N"), "test_setup_code": "N = -1", "test_imports": ["import math"]}
    )
    assert grader.grade(task, task.reference or "").solved


def test_programs_and_asserts_are_not_combined(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="column test_cases runs a program, and the column test_list does not"):
        load(tmp_path, PROMPT | {"test_list": LIST, "test_cases": [{"input": "1", "output": "2"}]})
    both = PROMPT | {"inputs": ["1"], "outputs": ["2"], "test_cases": [{"input": "2", "output": "4"}]}
    tests = load(tmp_path, both).tests
    assert isinstance(tests, Programs)
    assert [case.stdin for case in tests.cases] == ["1", "2"]


METHOD = "class Solution:\n    def total(self, xs):\n        return sum(xs)\n"
TOTAL = "def total(xs):\n    return sum(xs)\n"
ADD = "def add(a, b):\n    return a + b\n"
QUESTION = {"prompt": "Add."}
ADD_CASES = [{"input": [1, 2], "output": 3}, {"input": [-1, 1], "output": 0}]
TYPED = [{"type": "function_call", "fn_name": "add", **case} for case in ADD_CASES]
LINES = [
    {"testtype": "functional", "input": "1\n2", "output": "3"},
    {"testtype": "functional", "input": "-1\n1", "output": "0"},
]
CALLS: dict[str, tuple[Mapping[str, Any], str]] = {
    "function_call": ({"tests": TYPED}, ADD),
    "function_call in JSON": ({"tests": json.dumps(TYPED)}, ADD),
    "verification_info": ({"verification_info": str({"language": "python", "test_cases": TYPED})}, ADD),
    "functional": ({"tests": [{**case, "metadata": {"func_name": "add"}} for case in LINES]}, ADD),
    "functional, of the row": ({"test_cases": LINES, "metadata": json.dumps({"func_name": "add"})}, ADD),
    "functional, starter code": (
        {"tests": LINES, "starter_code": "class Solution:\n    def add(self, a, b):\n        "},
        "class Solution:\n    def add(self, a, b):\n        return a + b\n",
    ),
    "fn_name in object": ({"tests": {"fn_name": "add", "inputs": [[1, 2], [-1, 1]], "outputs": [3, [0]]}}, ADD),
    "fn_name beside": ({"fn_name": "add", "inputs": [[1, 2], [-1, 1]], "outputs": [[3], 0]}, ADD),
    "fn_name, texts": ({"fn_name": "add", "inputs": ["1\n2", "-1\n1"], "outputs": ["3", "0"]}, ADD),
    "entry_point": ({"entry_point": "add", "test_cases": ADD_CASES}, ADD),
    "entry_point, names": ({"entry_point": "add", "test_cases": [{"input": {"a": 1, "b": 2}, "output": 3}]}, ADD),
    "entry_point, call": ({"entry_point": "add", "test_cases": [{"input": "1, b=2", "output": "3"}]}, ADD),
    "entry_point, list": ({"entry_point": "total", "test_cases": [{"input": [[1, 2]], "output": 3}]}, TOTAL),
    "entry_point, one list": (
        {"entry_point": "total", "solution": TOTAL, "test_cases": [{"input": [1, 2], "output": 3}]},
        TOTAL,
    ),
    "method": (
        {"entry_point": "total", "solution": METHOD, "test_cases": [{"input": "[1, 2]", "output": "3"}]},
        METHOD,
    ),
    "method, entry point": ({"entry_point": "Solution().total", "test_cases": [{"input": [[1, 2]], "output": 3}]}, METHOD),
    "empty": ({"entry_point": "head", "test_cases": [{"input": "[3]\n0", "output": "[]"}]}, "def head(xs, n): return xs[:n]"),
    "literals": (
        {"entry_point": "pair", "test_cases": [{"input": "(1, {2})", "output": "(True, None)"}]},
        "def pair(p): return (p == (1, {2}), None)",
    ),
    "words": ({"entry_point": "same", "test_cases": [{"input": '"a b"', "output": "a b"}]}, "def same(x): return x"),
    "numbers as keys": (
        {"tests": [{"type": "function_call", "fn_name": "get", "input": [{"1": 5}, 1], "output": 5}]},
        "def get(d, k): return d[k]",
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_cases_that_name_a_function_call_it(tmp_path: Path, grader: Grader, name: str) -> None:
    fields, solution = CALLS[name]
    task = load(tmp_path, QUESTION | fields)
    assert isinstance(task.tests, Asserts)
    verdict = grader.grade(task, solution)
    assert verdict.solved, verdict
    assert verdict.total == len(task.tests.cases)
    for wrong in ("", solution.replace("return", "return 1,")):
        assert not grader.grade(task, wrong).solved, wrong


def test_cases_of_programs_stay_programs(tmp_path: Path) -> None:
    for kind in ({"type": "stdin_stdout"}, {"testtype": "stdin"}):
        row = QUESTION | {"entry_point": "main", "tests": [{**kind, "input": "1", "output": "2"}]}
        task = load(tmp_path, row)
        assert isinstance(task.tests, Programs)
        assert task.entry_point is None


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"tests": [{"type": "function_call", "input": [1], "output": 2}]}, "tests call a function, which is not named"),
        ({"tests": [*TYPED, {"type": "stdin_stdout", "input": "1", "output": "2"}]}, "both calls of functions and runs"),
        ({"fn_name": "f", "inputs": ["f(x)"], "outputs": ["1"]}, "arguments of a call"),
        ({"fn_name": "f", "inputs": [1], "outputs": []}, "as many outputs"),
    ],
)
def test_invalid_calls_are_refused(tmp_path: Path, fields: Mapping[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        load(tmp_path, QUESTION | fields)
