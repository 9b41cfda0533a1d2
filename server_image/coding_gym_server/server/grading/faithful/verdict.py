"""Grades a submission with the tests of a task and some of their canaries."""

from __future__ import annotations

import secrets
import time

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

_CONFIRMATIONS = 30
"""How often the reference must fail a canary before a submission that passes it is called forged.

Validation runs it twice, after which a test that depends on chance may still be a canary.
"""


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
    for draw in grading.passed_canaries:
        if await _is_confirmed(submission, pool, draw, run):
            grading.is_forged = True
            break
    return grading.verdict()


async def _is_confirmed(submission: Submission, pool: CanaryPool, draw: Draw, run: RunOne) -> bool:
    """Return whether the reference fails a canary that a submission has passed, however often; else drop it from the pool."""
    canary, test = draw.canary, pool.tests[draw.number]
    assert canary is not None
    assert submission.reference is not None
    deadline = time.monotonic() + submission.limits.wall_timeout
    for _ in range(0 if canary.is_confirmed else _CONFIRMATIONS):
        ran = await run(submission.reference, test, canary.source, submission.limits)
        if ran.outcome is CaseOutcome.PASSED:
            test.canaries = [other for other in test.canaries if other is not canary]
            return False
        if time.monotonic() > deadline:
            break
    canary.is_confirmed = True
    return True


class _Grading:
    """Results of one grading so far.

    Args:
        submission: The submission.
        pool: The tests of its task.
    """

    def __init__(self, submission: Submission, pool: CanaryPool) -> None:
        self.has_failed = False
        self.is_over = False
        self.is_forged = False
        self._pool = pool
        self._limits = submission.limits
        self._left = submission.limits
        self._canary_seconds = 0.0
        self._passed_canaries: list[Draw] = []
        self._end: VerdictOutcome | None = None
        self._load_message = ""
        self._load_seconds = 0.0
        self._cpu_seconds = 0.0
        self._cases: dict[int, CaseResult] = {}

    @property
    def passed_canaries(self) -> list[Draw]:
        """The canaries that the submission has passed, if it has passed all tests as well."""
        has_passed = len(self._cases) == len(self._pool.tests) and not self.has_failed and self._end is None
        return self._passed_canaries if has_passed else []

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
            if ran.outcome is CaseOutcome.PASSED:
                self._passed_canaries.append(draw)
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
        return VerdictOutcome.FORGED if self.is_forged else VerdictOutcome.PASSED
