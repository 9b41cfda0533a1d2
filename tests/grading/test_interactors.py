"""Programs that talk with an interactor."""

from __future__ import annotations

import pytest

from coding_gym.sandbox import Sandbox
from coding_gym_server.languages import find_language
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
from tests.grading.judging import Judge, grade_all

_LIMITS = GradingLimits(cpu_timeout=5.0, wall_timeout=30.0)

GUESS = """
import sys

hidden = int(open(sys.argv[1]).read())
output = open(sys.argv[2], "w")
for count in range(1, 9):
    line = sys.stdin.readline()
    if not line:
        sys.exit(1)
    guess = int(line)
    print("<" if hidden < guess else ">" if hidden > guess else "=", flush=True)
    if guess == hidden:
        print(count, file=output)
        print("found after", count, file=sys.stderr)
        sys.exit(0)
print("too many guesses", file=sys.stderr)
sys.exit(1)
"""

BISECT = """
low, high = 1, 100
while True:
    middle = (low + high) // 2
    print(middle, flush=True)
    match input():
        case "<": high = middle - 1
        case ">": low = middle + 1
        case _: break
"""

BISECT_IN_CPP = """
#include <iostream>
int main() {
  int low = 1, high = 100;
  char answer;
  do {
    std::cout << (low + high) / 2 << std::endl;
    std::cin >> answer;
    if (answer == '<') high = (low + high) / 2 - 1;
    if (answer == '>') low = (low + high) / 2 + 1;
  } while (answer != '=');
}
"""


@pytest.fixture
def run(judge: Judge):
    """Function that grades a program that guesses 37, and 99, with an interactor."""

    def grade(code: str, interactor: Checker | str = GUESS, *, language: str = "python", **options) -> Graded:
        if isinstance(interactor, str):
            interactor = Checker(code=interactor)
        cases = tuple(ProgramCase(stdin=f"{number}\n", stdout="") for number in (37, 99))
        tests = Programs(cases=cases, interactor=interactor, language=language, **options)
        return judge(Submission(code=code, tests=tests, limits=_LIMITS))

    return grade


def test_right_program_passes(run):
    graded = run(BISECT)
    assert graded.outcome is VerdictOutcome.PASSED, graded
    assert [case.outcome for case in graded.cases] == [CaseOutcome.PASSED] * 2


@pytest.mark.skipif(bool(find_language("cpp").missing()), reason="needs a C++ compiler")
def test_program_and_interactor_in_other_languages(run):
    assert run(BISECT_IN_CPP, language="cpp").outcome is VerdictOutcome.PASSED
    kattis = """
#include <fstream>
#include <iostream>
#include <string>
int main(int, char** names) {
  int hidden, guess;
  std::ifstream(names[1]) >> hidden;
  for (int count = 0; count < 8 && std::cin >> guess; count++) {
    std::cout << (hidden < guess ? '<' : hidden > guess ? '>' : '=') << std::endl;
    if (guess == hidden) return 42;
  }
  std::ofstream(std::string(names[3]) + "judgemessage.txt") << "not found";
  return 43;
}
"""
    interactor = Checker(code=kattis, language="cpp", protocol=CheckerProtocol.KATTIS)
    assert run(BISECT, interactor).outcome is VerdictOutcome.PASSED
    graded = run("print(50, flush=True); input()", interactor)
    assert (graded.outcome, graded.cases[0].message) == (VerdictOutcome.FAILED, "not found")


FAILURES = {
    "wrong": ("for n in range(8): print(100 + n, flush=True); input()", CaseOutcome.FAILED, "too many guesses"),
    "ends early": ("print(1, flush=True); input()", CaseOutcome.FAILED, "the checker refuses its output"),
    "prints nothing": ("", CaseOutcome.FAILED, "the checker refuses its output"),
    "raises": ("print(1, flush=True); input(); 1 / 0", CaseOutcome.ERROR, "exit code 1: ZeroDivisionError: division by zero"),
    "fails after it is accepted": (f"{BISECT}\n1 / 0", CaseOutcome.ERROR, "exit code 1: ZeroDivisionError: division by zero"),
    "is killed": ("import os; os.kill(os.getpid(), 9)", CaseOutcome.KILLED, "signal 9 killed it"),
    "loops": ("while True: pass", CaseOutcome.TIMEOUT, "it exceeded the time limit"),
    "loops after it is accepted": (f"{BISECT}\nwhile True: pass", CaseOutcome.TIMEOUT, "it exceeded the time limit"),
    "floods": ("while True: print(50)", None, ""),
}


@pytest.mark.parametrize("name", FAILURES)
def test_program_fails(run, name):
    code, outcome, message = FAILURES[name]
    graded = run(code)
    assert graded.outcome not in (VerdictOutcome.PASSED, VerdictOutcome.INFRASTRUCTURE)
    if outcome is not None:
        assert (graded.cases[0].outcome, graded.cases[0].message) == (outcome, message)


def test_both_wait_for_each_other(judge: Judge):
    tests = Programs(cases=(ProgramCase(stdout=""),), interactor=Checker(code="input()"))
    limits = GradingLimits(cpu_timeout=5.0, wall_timeout=0.5)
    graded = judge(Submission(code="input()", tests=tests, limits=limits))
    assert (graded.outcome, graded.cases[0].message) == (VerdictOutcome.TIMEOUT, "it exceeded the time limit")


def test_interactor_that_fails_after_the_program_does_not_accept_it(run):
    graded = run("print(1)", "import sys; sys.stdin.read(); 1 / 0")
    message = "it ended before the interactor, which failed: exit code 3: ZeroDivisionError: division by zero"
    assert (graded.outcome, graded.cases[0].message) == (VerdictOutcome.FAILED, message)


def test_interactor_that_does_not_decide(run):
    for code in ("1 / 0", "import sys; sys.exit(3)", "import os; os.abort()", "while True: pass"):
        interactor = Checker(code=code, limits=GradingLimits(cpu_timeout=1.0, wall_timeout=10.0))
        graded = run("input()", interactor)
        assert (graded.outcome, graded.checker_failed) == (VerdictOutcome.INFRASTRUCTURE, True), code
        assert graded.message.startswith("the checker did not decide on test 0: ")


def test_checker_gets_what_the_interactor_has_written(run):
    checker = "import sys; count = int(open(sys.argv[2]).read()); sys.exit(count > {limit})"
    assert run(BISECT, checker=Checker(code=checker.format(limit=8))).outcome is VerdictOutcome.PASSED
    assert run(BISECT, checker=Checker(code=checker.format(limit=1))).outcome is VerdictOutcome.FAILED


def test_points_of_an_interactor(run):
    interactor = 'import sys; print("points 0.5", file=sys.stderr); sys.exit(7)'
    graded = run("", interactor)
    assert (graded.outcome, [case.score for case in graded.cases]) == (VerdictOutcome.FAILED, [0.5] * 2)


def test_program_finds_nothing_of_the_interactor(run):
    code = f"""
import os
assert os.listdir(".") == ["main.py"], os.listdir(".")
for pid in filter(str.isdigit, os.listdir("/proc")):
    if int(pid) != os.getpid():
        try:
            found = os.listdir(f"/proc/{{pid}}/cwd")
        except PermissionError:
            continue
        raise AssertionError(found)
{BISECT}
"""
    graded = run(code)
    assert graded.outcome is VerdictOutcome.PASSED, graded.message


def test_many_at_once_end(sandbox: Sandbox):
    tests = Programs(cases=(ProgramCase(stdin="37", stdout=""),) * 2, interactor=Checker(code=GUESS))
    submissions = [Submission(code=BISECT, tests=tests, limits=_LIMITS)] * 12
    submissions += [Submission(code="print(1)", tests=Programs(cases=(ProgramCase(stdout="1"),)), limits=_LIMITS)] * 12
    assert {graded.outcome for graded in grade_all(sandbox, submissions)} == {VerdictOutcome.PASSED}


def test_interactor_cannot_print_its_decision():
    with pytest.raises(ValueError, match="expected an interactor that exits with its decision"):
        Programs(cases=(), interactor=Checker(code="", protocol=CheckerProtocol.PRINTED))
