"""Rows of contest problems, with the limits, files and checkers of their sites."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from coding_gym.errors import ConfigurationError
from coding_gym.tasks import Checker, Grader, GradingLimits, ProgramCase, TaskSuite, load_suite
from coding_gym_server.languages import find_language
from tests.support.requirements import import_extra

ANY_DIVISOR = """
import sys

number, answer, found = (int(open(name).read()) for name in sys.argv[1:4])
print(int(number % found == 0 and (found > 1) == (answer > 1)))
"""
CODEFORCES = {
    "id": "7/A",
    "aliases": None,
    "contest_id": "7",
    "contest_name": "Codeforces Beta Round 7",
    "index": "A",
    "time_limit": 2.0,
    "memory_limit": 64.0,
    "title": "Divisor",
    "description": "Find a divisor of a number.",
    "input_format": "A number.",
    "output_format": "A divisor larger than 1.",
    "interaction_format": None,
    "note": "Any divisor is right.",
    "examples": [{"input": "6", "output": "2"}],
    "rating": 800,
    "tags": ["math"],
    "testset_size": 2,
    "official_tests": [{"input": "6\n", "output": "2\n"}, {"input": "35\n", "output": "5\n"}],
    "official_tests_complete": True,
    "input_mode": "stdio",
    "generated_checker": ANY_DIVISOR,
    "executable": True,
    "generated_tests": 0,
}
CODE_CONTESTS = {
    "name": "1_A. Double",
    "description": "Double the number.",
    "public_tests": {"input": ["1\n"], "output": ["2\n"]},
    "private_tests": {"input": ["2\n"], "output": ["4\n"]},
    "generated_tests": {"input": [], "output": []},
    "solutions": {"language": [2, 1, 3], "solution": ["int main() {}", "print 2", "print(2 * int(input()))"]},
    "incorrect_solutions": {"language": [], "solution": []},
    "time_limit": {"seconds": 1, "nanos": 500_000_000},
    "memory_limit_bytes": 64_000_000,
    "input_file": "",
    "output_file": "",
}
TESTLIB = "enum { OK, WRONG };\n"
CHECKER = """
#include <fstream>
#include <testlib.h>
int main(int, char** names) {
  std::ifstream input(names[1]), output(names[2]);
  long number, found;
  return input >> number && output >> found && found > 1 && number % found == 0 ? OK : WRONG;
}
"""
CODE_CONTESTS_PLUS = {
    "source": "codeforces",
    "id": "7_A",
    "title": "Divisor",
    "description": "Find a divisor of a number.",
    "time_limit": 2000,
    "memory_limit": 256,
    "validator": "int main() {}",
    "generator": "int main() {}",
    "generator_cmd": "./gen 1",
    "checker": CHECKER,
    "correct_submissions": [{"code": "int main() {}", "language": "cpp"}, {"code": "print(input())", "language": "py3"}],
    "incorrect_submissions": [],
    "test_cases": [{"input": "6\n", "output": "2\n"}, {"input": "35\n", "output": "5\n"}],
    "true_positive_rate": 1.0,
}
TACO = {
    "question": "Double the number.",
    "solutions": json.dumps(["print(2 * int(input()))"]),
    "starter_code": "",
    "input_output": json.dumps({"inputs": ["1\n"], "outputs": ["2\n"]}),
    "difficulty": "EASY",
    "raw_tags": "[]",
    "name": "Double",
    "source": "codeforces",
    "time_limit": "0.5 seconds",
    "memory_limit": "256.0 megabytes",
}


def load(path: Path, *rows: Mapping[str, Any], **options: Any) -> TaskSuite:
    path = path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return load_suite(path, **options)


def test_codeforces_rows_become_tasks(tmp_path: Path) -> None:
    (task,) = load(tmp_path, CODEFORCES)
    assert (task.id, task.sample_input, task.metadata["source"], task.metadata["rating"]) == ("7/A", "6", "Codeforces", 800)
    assert task.tests.cases == (ProgramCase(stdin="6\n", stdout="2\n"), ProgramCase(stdin="35\n", stdout="5\n"))
    assert task.tests.checker == Checker(code=ANY_DIVISOR, protocol="printed")
    assert task.tests.compare == "tokens"
    assert task.limits == GradingLimits(cpu_timeout=2.0, max_memory_bytes=64 << 20)
    headings = ["Divisor", "Find a", "Input\n\nA number", "Output\n\nA divisor", "Note\n\nAny", "Example input\n\n6"]
    places = [task.prompt.index(heading) for heading in headings]
    assert places == sorted(places)


@pytest.mark.parametrize(("printed", "is_right"), [("number", True), ("min(number, 3)", False)])
def test_codeforces_checkers_decide(tmp_path: Path, grader: Grader, printed: str, is_right: bool) -> None:
    verdict = grader.grade(load(tmp_path, CODEFORCES)[0], f"number = int(input())\nprint({printed})")
    assert (verdict.solved, verdict.is_infrastructure) == (is_right, False)


def test_codeforces_problems_with_files(tmp_path: Path, grader: Grader) -> None:
    (task,) = load(tmp_path, CODEFORCES | {"input_mode": "file"})
    assert "Read input.txt and write output.txt." in task.prompt
    code = "print(open('input.txt').read(), file=open('output.txt', 'w'))"
    assert grader.grade(task, code).solved
    assert not grader.grade(task, "print(input())").solved


def test_options_precede_checkers(tmp_path: Path) -> None:
    assert load(tmp_path, CODEFORCES, compare="lines")[0].tests.checker is None


def test_rows_that_are_not_supported_may_be_skipped(tmp_path: Path) -> None:
    interactive = CODEFORCES | {"interaction_format": "Guess."}
    with pytest.raises(ConfigurationError, match=r"line 1: .*interactive.*unsupported='skip'"):
        load(tmp_path, interactive, CODEFORCES)
    assert load(tmp_path, interactive, CODEFORCES, unsupported="skip").ids == ("7/A",)
    with pytest.raises(ConfigurationError, match="unsupported= to be 'refuse' or 'skip', got 'other'"):
        load(tmp_path, CODEFORCES, unsupported="other")


def test_rows_with_prompts_say_their_language(tmp_path: Path) -> None:
    rows = [CODEFORCES | {"language": language, "prompt": "Write it."} for language in ("cpp", "python")]
    suite = load(tmp_path, *rows)
    assert [(task.id, task.tests.language) for task in suite] == [("7/A/cpp", "cpp"), ("7/A/python", "python")]
    assert load(tmp_path, rows[0], language="java")[0].tests.language == "java"


def test_generated_tests_are_added(tmp_path: Path) -> None:
    pyarrow, parquet = import_extra("pyarrow"), import_extra("pyarrow.parquet")
    tests = [("7/A", "9\n", "3\n"), ("7/B", "", "")]
    columns = {name: [test[place] for test in tests] for place, name in enumerate(("problem_id", "input", "output"))}
    parquet.write_table(pyarrow.table(columns), tmp_path / "test_cases_0007.parquet")
    row = CODEFORCES | {"generated_tests": 1}
    assert len(load(tmp_path, row)[0].tests.cases) == 2
    (task,) = load(tmp_path, row, generated_tests=tmp_path)
    assert task.tests.cases[2:] == (ProgramCase(stdin="9\n", stdout="3\n"),)
    with pytest.raises(ConfigurationError, match=r"test_cases_0008.parquet to be a file of generated tests"):
        load(tmp_path, row | {"id": "8/A"}, generated_tests=tmp_path)


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        (CODEFORCES | {"executable": False}, "it is not executable"),
        (CODEFORCES | {"input_mode": "tape"}, "input_mode to be stdio or file, got 'tape'"),
        (CODEFORCES | {"official_tests": [], "examples": []}, "no test cases"),
        (CODEFORCES | {"official_tests": [{"input": "1"}]}, "official_tests to have input and output"),
        (CODEFORCES | {"time_limit": "soon"}, "time_limit to be a number with a unit"),
        (CODE_CONTESTS_PLUS | {"test_cases": []}, "no test cases, .*config='1x'"),
        (CODE_CONTESTS_PLUS, "includes testlib.h: pass testlib=PATH"),
    ],
)
def test_invalid_rows_are_refused(tmp_path: Path, row: Mapping[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        load(tmp_path, row)


def test_code_contests_rows_have_limits_and_solutions(tmp_path: Path) -> None:
    (task,) = load(tmp_path, CODE_CONTESTS)
    assert task.limits == GradingLimits(cpu_timeout=1.5, max_memory_bytes=64_000_000)
    assert task.reference == "print(2 * int(input()))"
    (task,) = load(tmp_path, CODE_CONTESTS | {"input_file": "a.in", "output_file": "a.out"}, language="cpp20")
    assert (task.tests.language, task.reference) == ("cpp20", "int main() {}")
    assert (task.tests.input_file, task.tests.output_file) == ("a.in", "a.out")


def test_code_contests_plus_checkers_decide(tmp_path: Path, grader: Grader) -> None:
    if find_language("cpp").missing():
        pytest.skip("this machine lacks g++")
    (tmp_path / "testlib.h").write_text(TESTLIB)
    (task,) = load(tmp_path, CODE_CONTESTS_PLUS, testlib=tmp_path / "testlib.h")
    assert (task.id, task.reference, task.metadata["true_positive_rate"]) == ("7_A", "print(input())", 1.0)
    assert task.limits == GradingLimits(cpu_timeout=2.0, max_memory_bytes=256 << 20)
    assert grader.grade(task, task.reference).solved
    assert grader.grade(task, "print(2)").passed == 1


def test_limits_of_rows_can_be_changed(tmp_path: Path) -> None:
    assert load(tmp_path, TACO)[0].limits == GradingLimits(cpu_timeout=0.5, max_memory_bytes=256 << 20)
    assert load(tmp_path, TACO, time_factor=60)[0].limits.cpu_timeout == 30.0
    assert load(tmp_path, TACO, time_factor=60)[0].limits.wall_timeout == 90.0
    assert load(tmp_path, TACO | {"time_limit": "500 ms"})[0].limits.cpu_timeout == 0.5
    limits = GradingLimits(cpu_timeout=3.0)
    assert load(tmp_path, TACO, limits=limits)[0].limits == limits
    assert load(tmp_path, TACO | {"time_limit": None, "memory_limit": None})[0].limits == GradingLimits()
    with pytest.raises(ConfigurationError, match="time_factor= to be a positive number, got 0"):
        load(tmp_path, TACO, time_factor=0)


def test_contests_are_loaded_in_a_language(tmp_path: Path, grader: Grader) -> None:
    (task,) = load(tmp_path, TACO, language="bash")
    assert (task.tests.language, task.prefix, task.reference) == ("bash", "", None)
    assert task.prompt == "Double the number.\n\nWrite the program in bash."
    assert grader.grade(task, 'read n; echo "$((2 * n))"').solved
    calls = TACO | {"input_output": json.dumps({"fn_name": "f", "inputs": [[1]], "outputs": [2]})}
    with pytest.raises(ConfigurationError, match=r"call a function of Python, and language='cpp'"):
        load(tmp_path, calls, language="cpp")
    with pytest.raises(ConfigurationError, match=r"language= to be None or a language: expected a language.*'klingon'"):
        load(tmp_path, TACO, language="klingon")
