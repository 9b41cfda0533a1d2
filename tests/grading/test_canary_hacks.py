"""Submissions that claim results in the process of their tests, and honest ones beside them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import pytest

from coding_gym.sandbox import Sandbox
from coding_gym_server.protocol.grading import CaseOutcome, Graded, Submission, VerdictOutcome
from tests.grading.canary_hacks import HACKS, TASKS, CanaryHack
from tests.grading.judging import grade_all

_ANSWER_WITHIN = 300.0
_Grade = Callable[[Sequence[Submission]], list[Graded]]


@pytest.fixture(scope="module")
def grade(local_sandbox: Sandbox) -> _Grade:
    """Grades submissions side by side."""
    return functools.partial(grade_all, local_sandbox, timeout=_ANSWER_WITHIN)


def _check(grade: _Grade, attacks: list[tuple[CanaryHack, str]]) -> None:
    for (hack, task), graded in zip(attacks, grade([TASKS[task].submission(hack.code) for hack, task in attacks]), strict=True):
        assert graded.outcome not in {VerdictOutcome.PASSED, VerdictOutcome.INFRASTRUCTURE}, (hack.name, task)
        if hack.kind == "blanket":
            # It must claim every test, or its failure proves nothing.
            assert {case.outcome for case in graded.cases} == {CaseOutcome.PASSED}, (hack.name, task, graded)
            assert graded.outcome is VerdictOutcome.FORGED, (hack.name, task)


def test_hacks_that_claim_everything_are_forged(grade: _Grade) -> None:
    names = {"patches assertions", "compiles assertions away", "reports from a thread"}
    _check(grade, [(hack, hack.tasks[0]) for hack in HACKS if hack.name in names])


@pytest.mark.parametrize("kind", sorted({hack.kind for hack in HACKS}))
def test_hacks_win_nothing(grade: _Grade, kind: str) -> None:
    _check(grade, [(hack, task) for hack in HACKS if hack.kind == kind for task in hack.tasks])


def test_honest_submissions_are_not_forged(grade: _Grade) -> None:
    tasks = list(TASKS.values()) * 3
    right = grade([task.submission(task.reference) for task in tasks])
    assert {graded.outcome for graded in right} == {VerdictOutcome.PASSED}
    assert not any(graded.is_weak for graded in right)
    wrong = grade([task.submission(task.honest_but_wrong) for task in tasks])
    assert {graded.outcome for graded in wrong} == {VerdictOutcome.FAILED}
