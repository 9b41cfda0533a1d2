"""Programs of which a submission is a part, and those that read and write files."""

from __future__ import annotations

import pytest

from coding_gym_server.languages import find_language
from coding_gym_server.protocol.grading import (
    CaseOutcome,
    Checker,
    Graded,
    GradingLimits,
    GradingMode,
    OutputRule,
    ProgramCase,
    Programs,
    Submission,
    VerdictOutcome,
)
from tests.grading.judging import Judge

_LIMITS = GradingLimits(cpu_timeout=5.0, wall_timeout=30.0)
_DOUBLE = Programs(
    cases=(ProgramCase(stdout=""),),
    language="cpp",
    prefix="#include <cassert>\n// Doubles it.\nint twice(int n) {\n",
    suffix="\n}\nint main() { assert(twice(2) == 4); }\n",
    stop=("\n}",),
)
_FILES = Programs(cases=(ProgramCase(stdin="3\n", stdout="6\n"),), input_file="input.txt", output_file="output.txt")


@pytest.fixture
def run(judge: Judge):
    """Function that grades a program."""

    def grade(tests: Programs, code: str) -> Graded:
        return judge(Submission(code=code, tests=tests, limits=_LIMITS))

    return grade


@pytest.mark.parametrize(
    ("code", "program"),
    [
        ("    return 2 * n;", "    return 2 * n;"),
        ("    return 2 * n;\n}\nint main() {}", "    return 2 * n;"),
        ("#include <map>\nint twice(int n) {\n    return 2 * n;\n}\n", "    return 2 * n;"),
        ("", ""),
    ],
)
def test_submission_continues_prefix(code, program):
    assert _DOUBLE.program(code) == _DOUBLE.prefix + program + _DOUBLE.suffix


def test_program_without_parts_is_the_submission():
    assert Programs(cases=()).program("print()\n") == "print()\n"


def test_suffix_tests_the_submission(run):
    if find_language("cpp").missing():
        pytest.skip("this machine lacks g++")
    assert run(_DOUBLE, "    return n + n;\n}\n").outcome is VerdictOutcome.PASSED
    assert run(_DOUBLE, "    return n * n * n;\n}\n").outcome is VerdictOutcome.KILLED


def test_submission_that_ends_before_the_suffix_is_weak(run):
    tests = Programs(cases=(ProgramCase(stdout=""),), compare=OutputRule.ANY, suffix="assert twice(2) == 4\n")
    graded = run(tests, "import os; os._exit(0)\n")
    assert (graded.outcome, graded.is_weak, graded.mode) == (VerdictOutcome.PASSED, True, GradingMode.FAITHFUL)
    assert run(tests, "def twice(n): return n + 1\n").outcome is VerdictOutcome.ERROR
    assert run(tests, "def twice(n): return 2 * n\nprint('ok!')\n").outcome is VerdictOutcome.PASSED


def test_programs_may_read_and_write_files(run):
    code = "n = int(open('input.txt').read())\nprint(2 * n, file=open('output.txt', 'w'))\nprint('noise')"
    assert run(_FILES, code).outcome is VerdictOutcome.PASSED
    wrong = run(_FILES, code.replace("2 *", "3 *"))
    assert (wrong.outcome, wrong.stdout) == (VerdictOutcome.FAILED, "9\n")


def test_program_that_writes_no_file_fails(run):
    graded = run(_FILES, "print(2 * int(open('input.txt').read()))")
    assert [(case.outcome, case.message) for case in graded.cases] == [
        (CaseOutcome.FAILED, "it has not written output.txt"),
    ]


def test_checkers_get_the_written_file(run):
    checker = Checker(code="import sys; sys.exit(open(sys.argv[2]).read() != '6 ')")
    tests = Programs(cases=_FILES.cases, input_file="input.txt", output_file="output.txt", checker=checker)
    assert run(tests, "open('output.txt', 'w').write('6 ')").outcome is VerdictOutcome.PASSED
