"""Programs with several right outputs, which a checker accepts."""

from __future__ import annotations

import pytest

from coding_gym_server.languages import UnknownLanguageError, find_language
from coding_gym_server.protocol.grading import (
    CaseOutcome,
    Checker,
    Graded,
    GradingLimits,
    ProgramCase,
    Programs,
    Submission,
    VerdictOutcome,
)
from tests.grading.judging import Judge

_LIMITS = GradingLimits(cpu_timeout=5.0, wall_timeout=30.0)

SUM = """
import sys

total, parts = int(open(sys.argv[1]).read()), list(map(int, open(sys.argv[2]).read().split()))
if sum(parts) != total:
    print(f"{parts} are not {total}", file=sys.stderr)
    sys.exit(1)
best = int(open(sys.argv[3]).read())
if len(parts) > best:
    print(f"points {best / len(parts)} with {len(parts)} parts", file=sys.stderr)
    sys.exit(7)
"""
"""Accepts summands of a number; with more than the expected count, in part."""

SUM_IN_CPP = """
#include <fstream>
#include "codes.h"
int main(int, char** names) {
  std::ifstream input(names[1]), output(names[2]);
  long total, part, sum = 0;
  input >> total;
  while (output >> part) sum += part;
  return sum == total ? OK : WRONG;
}
"""


@pytest.fixture
def run(judge: Judge):
    """Function that grades a program in Python, whose cases are 7 and 9, with a checker."""

    def grade(code: str, checker: Checker, *, best: int = 2) -> Graded:
        cases = tuple(ProgramCase(stdin=f"{number}\n", stdout=f"{best}\n") for number in (7, 9))
        return judge(Submission(code=code, tests=Programs(cases=cases, checker=checker), limits=_LIMITS))

    return grade


@pytest.mark.parametrize("parts", ["n", "n - 1, 1"])
def test_several_outputs_are_right(run, parts):
    graded = run(f"n = int(input())\nprint({parts})", Checker(code=SUM))
    assert (graded.outcome, [case.score for case in graded.cases]) == (VerdictOutcome.PASSED, [None, None])


def test_wrong_output_has_the_message_of_the_checker(run):
    graded = run("print(4, 3)", Checker(code=SUM))
    assert graded.outcome is VerdictOutcome.FAILED
    assert [case.outcome for case in graded.cases] == [CaseOutcome.PASSED, CaseOutcome.FAILED]
    assert graded.cases[1].message == "[4, 3] are not 9"


def test_points(run):
    graded = run("n = int(input())\nprint(n - 3, 1, 1, 1)", Checker(code=SUM))
    assert graded.outcome is VerdictOutcome.FAILED
    assert [(case.outcome, case.score) for case in graded.cases] == [(CaseOutcome.FAILED, 0.5)] * 2
    all_of_them = Checker(code="import sys\nprint(5)\nsys.exit(7)", max_points=5)
    assert [case.score for case in run("", all_of_them).cases] == [1.0, 1.0]


def test_checker_in_another_language(run):
    if find_language("cpp").missing():
        pytest.skip("this machine lacks g++")
    checker = Checker(code=SUM_IN_CPP, language="cpp", files={"codes.h": "enum { OK, WRONG };"})
    assert run("n = int(input())\nprint(n - 2, 2)", checker).outcome is VerdictOutcome.PASSED
    assert run("print(7)", checker).outcome is VerdictOutcome.FAILED


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("1 / 0", "exit code 3: ZeroDivisionError"),
        ("1 +", "exit code 3: SyntaxError"),
        ("import sys; sys.exit(3)", "exit code 3"),
        ("import sys; print('no number'); sys.exit(7)", "expected points, got 'no number'"),
        ("import os; os.abort()", "signal 6 killed it"),
        ("while True: pass", "it exceeded the time limit"),
    ],
)
def test_checker_that_does_not_decide_is_no_verdict(run, code, message):
    graded = run("print(7)", Checker(code=code, limits=GradingLimits(cpu_timeout=0.5, wall_timeout=30.0)))
    assert (graded.outcome, graded.checker_failed) == (VerdictOutcome.INFRASTRUCTURE, True)
    assert graded.message.startswith("the checker did not decide on test 0: ")
    assert message in graded.message


def test_programs_see_neither_the_checker_nor_what_it_reads(run):
    code = """
import os, pathlib

found = [str(path) for path in pathlib.Path(".").rglob("*")]
assert not found or found == ["main.py"], found
for name in ("input.txt", "output.txt", "answer.txt", "checker"):
    pathlib.Path(name).write_text("7")
pathlib.Path("sitecustomize.py").write_text("import os; os._exit(0)")
pathlib.Path("random.py").write_text("import os; os._exit(0)")
if os.fork() == 0:
    os.setsid()
    while True:
        for name in ("output.txt", "answer.txt"):
            try:
                pathlib.Path(name).write_text("7")
            except OSError:
                pass
print("wrong")
"""
    checker = Checker(code="import random, sys\nsys.exit(open('output.txt').read() != open('answer.txt').read())")
    graded = run(code, checker)
    assert [case.outcome for case in graded.cases] == [CaseOutcome.FAILED] * 2, graded.cases
    assert graded.outcome is VerdictOutcome.FAILED


def test_unknown_language_of_a_checker_is_refused():
    with pytest.raises(UnknownLanguageError):
        Checker(code="", language="klingon")
