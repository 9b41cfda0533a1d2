"""Groups of cases that are worth points together."""

from __future__ import annotations

import pytest

from coding_gym_server.protocol.grading import (
    CaseGroup,
    Checker,
    GradingLimits,
    ProgramCase,
    Programs,
    Submission,
    VerdictOutcome,
)
from tests.grading.judging import Judge

_CASES = tuple(ProgramCase(stdin=f"{number}\n", stdout=f"{number}\n") for number in range(5))
_GROUPS = (CaseGroup(points=20, cases=(0, 1)), CaseGroup(points=50, cases=(0, 1, 2, 3)), CaseGroup(points=30, cases=(4,)))
_LIMITS = GradingLimits(cpu_timeout=1.0, wall_timeout=30.0)


@pytest.mark.parametrize(
    ("wrong", "outcomes", "reward"),
    [
        ("", "passed passed passed passed passed", 1.0),
        ("if n == 2:\n    while True: pass", "passed passed timeout not_run passed", 0.5),
        ("if n == 0: print('x')", "failed not_run not_run not_run passed", 0.3),
        ("if n == 1: sys.exit(1)", "passed error not_run not_run passed", 0.3),
        ("if n in (0, 4): sys.exit(1)", "error not_run not_run not_run error", 0.0),
    ],
)
def test_reward_is_the_share_of_points(judge: Judge, wrong: str, outcomes: str, reward: float) -> None:
    code = f"import sys\nn = int(input())\n{wrong}\nprint(n)"
    graded = judge(Submission(code=code, tests=Programs(cases=_CASES, groups=_GROUPS), limits=_LIMITS))
    assert [case.outcome for case in graded.cases] == outcomes.split()
    assert graded.reward == pytest.approx(reward)
    assert (graded.outcome is VerdictOutcome.PASSED) == (not wrong)


def test_group_has_the_points_of_its_worst_case(judge: Judge) -> None:
    checker = Checker(code="import sys\nprint('points', open(sys.argv[2]).read())\nsys.exit(7)")
    code = "print(0.5 if int(input()) < 2 else 0.8)"
    tests = Programs(cases=_CASES, groups=_GROUPS[::2], checker=checker)
    assert judge(Submission(code=code, tests=tests)).reward == pytest.approx((20 * 0.5 + 30 * 0.8) / 50)


def test_groups_of_other_cases_are_refused() -> None:
    with pytest.raises(ValueError, match=r"expected groups of the 1 cases, which begin with 0, got \[3\]"):
        Programs(cases=_CASES[:1], groups=(CaseGroup(points=1, cases=(0, 3)),))
    for points, cases in ((0, (0,)), (1, ()), (float("nan"), (0,))):
        with pytest.raises(ValueError, match="expected a group of at least one case with a positive number of points"):
            CaseGroup(points=points, cases=cases)
