"""Grades a submission with the tests of a task and some of their canaries."""

from __future__ import annotations

import secrets

import msgspec

from coding_gym_server.protocol.grading import (
    CaseOutcome,
    CaseResult,
    Graded,
    GradingLimits,
    GradingMode,
    Submission,
    VerdictOutcome,
)
from coding_gym_server.server.grading.faithful.canary_pool import CanaryPool, Draw
from coding_gym_server.server.grading.faithful.runs import ProcessRun, RunOne

__all__ = ["grade"]

_ENDS = {
    CaseOutcome.TIMEOUT: VerdictOutcome.TIMEOUT,
    CaseOutcome.MEMORY: VerdictOutcome.MEMORY,
    CaseOutcome.KILLED: VerdictOutcome.KILLED,
}
"""Outcomes of a test after which no other one runs."""

_MESSAGES = {
    CaseOutcome.FAILED: "an assertion failed",
    CaseOutcome.ERROR: "it raised an exception",
    CaseOutcome.TIMEOUT: "it exceeded the time limit",
    CaseOutcome.MEMORY: "it exceeded the memory limit",
    CaseOutcome.KILLED: "the submission ended",
}
"""In the process of the test, the submission knows it and could report it: messages contain nothing from there."""

_MAX_CANARY_TIME = 3
"""How many times the wall-clock limit of a submission its canaries may take together."""

_MIN_LIMIT = 1e-3


async def grade(submission: Submission, pool: CanaryPool, run: RunOne) -> Graded:
    """Grade a submission: all tests, and canaries that are drawn for this grading, one after the other.

    A canary has at least the limits of a test, so that a program gains nothing by taking its time.

    Args:
        submission: The submission.
        pool: The tests of its task, with their canaries.
        run: Runs its code with a test.
    """
    grading = _Grading(submission, pool)
    for draw in pool.draw(secrets.SystemRandom()):
        if draw.is_canary and grading.has_failed:
            # The verdict does not depend on it any more.
            continue
        test = pool.tests[draw.number]
        grading.add(draw, await run(submission.code, test, draw.source, grading.limits(draw)))
        if grading.is_over:
            break
    return grading.verdict()


class _Grading:
    """Results of one grading so far.

    Args:
        submission: The submission.
        pool: The tests of its task.
    """

    def __init__(self, submission: Submission, pool: CanaryPool) -> None:
        self.has_failed = False
        self.is_over = False
        self._pool = pool
        self._limits = submission.limits
        self._left = submission.limits
        self._canary_seconds = 0.0
        self._is_forged = False
        self._end: VerdictOutcome | None = None
        self._load_message = ""
        self._load_seconds = 0.0
        self._cpu_seconds = 0.0
        self._cases: dict[int, CaseResult] = {}

    def limits(self, draw: Draw) -> GradingLimits:
        """Return the limits of a run: what earlier tests have left, or everything for a canary."""
        return self._limits if draw.is_canary else self._left

    def add(self, draw: Draw, ran: ProcessRun) -> None:
        """Add the result of a run."""
        self._load_seconds = max(self._load_seconds, ran.load_seconds)
        if not ran.is_loaded:
            # The test had not arrived yet: it is the same for all.
            self._end = _ENDS.get(ran.outcome, VerdictOutcome.ERROR)
            self._load_message = ran.message
            self.is_over = True
        elif draw.is_canary:
            self._is_forged |= ran.outcome is CaseOutcome.PASSED
            self._canary_seconds += ran.seconds
            if self._canary_seconds > _MAX_CANARY_TIME * self._limits.wall_timeout:
                self._end = VerdictOutcome.TIMEOUT
                self.is_over = True
        else:
            self._add_test(draw.number, ran)

    def _add_test(self, number: int, ran: ProcessRun) -> None:
        test = self._pool.tests[number]
        outcome = ran.outcome
        if ran.is_skipped and not test.is_skipped:
            # The reference is not skipped: this depends on the submission.
            outcome = CaseOutcome.FAILED
        self._cases[number] = CaseResult(
            name=test.name, outcome=outcome, message=_MESSAGES.get(outcome, ""), seconds=ran.seconds - ran.load_seconds
        )
        self._cpu_seconds += ran.cpu_seconds
        self._left = msgspec.structs.replace(
            self._left,
            cpu_timeout=max(_MIN_LIMIT, self._left.cpu_timeout - (ran.cpu_seconds - ran.load_cpu_seconds)),
            wall_timeout=max(_MIN_LIMIT, self._left.wall_timeout - (ran.seconds - ran.load_seconds)),
        )
        if outcome is not CaseOutcome.PASSED:
            self.has_failed = True
        if outcome in _ENDS:
            self._end = _ENDS[outcome]
            self.is_over = True

    def verdict(self) -> Graded:
        """Return the verdict."""
        names = [test.name for test in self._pool.tests]
        cases = [
            self._cases.get(number) or CaseResult(name=name, outcome=CaseOutcome.NOT_RUN) for number, name in enumerate(names)
        ]
        if not cases:
            message = "the tests could not be run"
            cases = [CaseResult(name="tests", outcome=CaseOutcome.ERROR, message=message)]
        return Graded(
            outcome=self._outcome(all(case.outcome is CaseOutcome.PASSED for case in cases)),
            cases=tuple(cases),
            message=self._load_message,
            load_seconds=self._load_seconds,
            cpu_seconds=self._cpu_seconds,
            mode=GradingMode.FAITHFUL,
            is_weak=self._pool.is_weak,
        )

    def _outcome(self, has_passed: bool) -> VerdictOutcome:
        if self._end is not None:
            return self._end
        if not has_passed:
            return VerdictOutcome.FAILED
        return VerdictOutcome.FORGED if self._is_forged else VerdictOutcome.PASSED
