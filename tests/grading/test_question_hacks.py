"""Submissions that claim success in the process of their tests, and honest ones beside them."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence

import pytest

from coding_gym.sandbox import Sandbox
from coding_gym_server.protocol.grading import Graded, Submission, VerdictOutcome
from tests.grading.asking import Examiner
from tests.grading.judging import grade_all
from tests.grading.question_hacks import HACKS, TASKS

_ANSWER_WITHIN = 300.0
_Grade = Callable[[Sequence[Submission]], list[Graded]]


@pytest.fixture(scope="module")
def grade(local_sandbox: Sandbox) -> _Grade:
    """Grades submissions side by side."""
    return functools.partial(grade_all, local_sandbox, timeout=_ANSWER_WITHIN)


@pytest.mark.parametrize("kind", sorted({hack.kind for hack in HACKS}))
def test_hacks_win_nothing(grade: _Grade, kind: str) -> None:
    attacks = [(hack, task) for hack in HACKS if hack.kind == kind for task in hack.tasks]
    for (hack, task), graded in zip(attacks, grade([TASKS[task].submission(hack.code) for hack, task in attacks]), strict=True):
        assert graded.outcome not in {VerdictOutcome.PASSED, VerdictOutcome.INFRASTRUCTURE}, (hack.name, task)


def test_honest_submissions_pass_if_they_are_right(grade: _Grade) -> None:
    tasks = list(TASKS.values()) * 3
    right = grade([task.submission(task.reference) for task in tasks])
    assert {graded.outcome for graded in right} == {VerdictOutcome.PASSED}
    wrong = grade([task.submission(task.honest_but_wrong) for task in tasks])
    assert {graded.outcome for graded in wrong} == {VerdictOutcome.FAILED}


def test_claims_reach_the_report() -> None:
    """Otherwise their failure would prove nothing."""
    claims = {"claims everything": True, "claims nothing": False}
    with contextlib.closing(Examiner()) as examiner:
        for task in TASKS.values():
            questions = examiner.questions(task.tests, task.reference)
            for hack in HACKS:
                if hack.name in claims:
                    report = examiner.report(questions, hack.code.replace("ENTRY", task.entry_point))
                    answered = {turn: answer for turn, answer in report.answers if turn in questions.answers}
                    assert answered
                    assert {claim for answer in answered.values() for claim in answer} == {claims[hack.name]}
