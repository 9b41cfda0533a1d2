"""Programs with several right outputs, which a checker accepts."""

from __future__ import annotations

import pytest

from coding_gym_server.languages import UnknownLanguageError, find_language
from coding_gym_server.protocol.grading import (
    CaseOutcome,
    Checker,
    CheckerProtocol,
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


def test_checkers_get_further_arguments(run):
    code = "import sys; sys.exit(sys.argv[4:] != ['case_sensitive', '1e-6'])"
    assert run("", Checker(code=code, arguments=("case_sensitive", "1e-6"))).outcome is VerdictOutcome.PASSED
    assert run("", Checker(code=code)).outcome is VerdictOutcome.FAILED


def test_unknown_language_of_a_checker_is_refused():
    with pytest.raises(UnknownLanguageError):
        Checker(code="", language="klingon")


KATTIS = """
import sys

total = int(open(sys.argv[1]).read())
parts = list(map(int, sys.stdin.read().split()))
assert sys.argv[3].endswith("/") and sys.argv[4:] == ["strict", "1e-6"]
print(f"{parts} of {total}", file=open(sys.argv[3] + "judgemessage.txt", "a"))
if sum(parts) != total:
    sys.exit(43)
if len(parts) > int(open(sys.argv[2]).read()):
    print("25", file=open(sys.argv[3] + "score.txt", "w"))
sys.exit(42)
"""


@pytest.mark.parametrize(
    ("code", "outcome", "message", "score"),
    [
        ("print(n - 1, 1)", CaseOutcome.PASSED, "", None),
        ("print(n, 1)", CaseOutcome.FAILED, "[7, 1] of 7", None),
        ("print(n - 3, 1, 1, 1)", CaseOutcome.FAILED, "[4, 1, 1, 1] of 7", 0.5),
    ],
)
def test_protocol_of_kattis(run, code, outcome, message, score):
    options = {"protocol": CheckerProtocol.KATTIS, "arguments": ("strict", "1e-6"), "max_points": 50.0}
    case = run(f"n = int(input())\n{code}", Checker(code=KATTIS, **options)).cases[0]
    assert (case.outcome, case.message, case.score) == (outcome, message, score)


@pytest.mark.parametrize("code", ["sys.exit(0)", "sys.exit(1)", "1 / 0"])
def test_protocol_of_kattis_has_no_other_exit_codes(run, code):
    graded = run("print(7)", Checker(code=f"import sys; {code}", protocol=CheckerProtocol.KATTIS))
    assert (graded.outcome, graded.checker_failed) == (VerdictOutcome.INFRASTRUCTURE, True)


@pytest.mark.parametrize(
    ("printed", "outcome", "score"),
    [
        ("1", CaseOutcome.PASSED, 1.0),
        ("True", CaseOutcome.PASSED, 1.0),
        ("0", CaseOutcome.FAILED, 0.0),
        ("false", CaseOutcome.FAILED, 0.0),
        ("0.25", CaseOutcome.FAILED, 0.25),
        ("2 of 3 lines differ\nscore: 1", CaseOutcome.PASSED, 1.0),
        ("yes", None, None),
        ("", None, None),
    ],
)
def test_points_are_printed(run, printed, outcome, score):
    code = f"import sys\nanswer, output = (open(name).read() for name in sys.argv[2:4])\nassert output == '7\\n' and answer == '2\\n'\nprint({printed!r})"
    graded = run("print(7)", Checker(code=code, protocol=CheckerProtocol.PRINTED))
    if outcome is None:
        assert (graded.outcome, graded.checker_failed) == (VerdictOutcome.INFRASTRUCTURE, True)
    else:
        assert (graded.cases[0].outcome, graded.cases[0].score) == (outcome, score)


def test_unknown_protocols_are_refused():
    with pytest.raises(ValueError, match="expected protocol to be one of testlib, kattis, printed, got 'codeforces'"):
        Checker(code="", protocol="codeforces")
