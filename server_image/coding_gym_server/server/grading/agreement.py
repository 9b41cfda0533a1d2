"""The verdicts of submissions that are run together with their tests, in plain Python: alone, or after another examiner."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from coding_gym_server.protocol.grading import CaseOutcome, CaseResult, Graded, GradingMode, VerdictOutcome
from coding_gym_server.server.grading.faithful.questions import Questions

__all__ = ["ENDS", "PlainRun", "agreed", "faithful", "reason_of"]

ENDS = {
    CaseOutcome.TIMEOUT: "it exceeded the time limit",
    CaseOutcome.MEMORY: "it exceeded the memory limit",
    CaseOutcome.OUTPUT: "it exceeded the output limit",
    CaseOutcome.KILLED: "its process ended",
}
"""How the process of a submission ends before it has reported."""

_MESSAGES = ENDS | {
    CaseOutcome.KILLED: "the submission ended",
    CaseOutcome.FAILED: "an assertion failed",
    CaseOutcome.ERROR: "it raised an exception",
    CaseOutcome.NOT_RUN: "the submission could not be executed",
}
"""In the process of the tests, the submission knows them and could report them: messages contain nothing from there."""


@dataclass(frozen=True, kw_only=True)
class PlainRun:
    """How a run of a submission together with its tests ended.

    Attributes:
        end: How its process ended before it had reported: ``timeout``, ``memory`` or ``killed``; None if it has reported.
        error: Why nothing could be run, as its process claims; empty otherwise.
        outcomes: Outcomes by name of the test, as its process claims.
        cpu_seconds: CPU time that it has used.
    """

    end: CaseOutcome | None = None
    error: str = ""
    outcomes: dict[str, CaseOutcome] = field(default_factory=dict)
    cpu_seconds: float = 0.0

    @property
    def has_passed(self) -> bool:
        """Whether all tests have passed."""
        return not self.reason

    @property
    def reason(self) -> str:
        """Why it has not passed; empty if it has."""
        if self.end is not None:
            return ENDS[self.end]
        if self.error or not self.outcomes:
            return self.error or "there is no test"
        failed = [name for name, outcome in self.outcomes.items() if outcome is not CaseOutcome.PASSED]
        return f"it fails {len(failed)} of {len(self.outcomes)} tests, the first of which is {failed[0]!r}" if failed else ""

    def outcome_of(self, name: str, missing: CaseOutcome) -> CaseOutcome:
        """Return the outcome of a test; ``missing`` if all could be run, but it was not among them."""
        return self.end or (CaseOutcome.ERROR if self.error else self.outcomes.get(name, missing))

    @property
    def outcome(self) -> VerdictOutcome:
        """The verdict."""
        if self.end is not None:
            return VerdictOutcome(self.end.value)
        return VerdictOutcome.PASSED if self.has_passed else VerdictOutcome.FAILED


def agreed(graded: Graded, plain: PlainRun) -> Graded:
    """Return the result of a submission that passed apart from its tests, after it was run together with them.

    The process of the plain run sees the tests, and can claim what it likes. So names and messages are those of the first run,
    and a test counts only if it has passed in both.

    Args:
        graded: The result of the first run, in which all tests passed.
        plain: The second run.
    """
    cpu_seconds = graded.cpu_seconds + plain.cpu_seconds
    outcomes = [plain.outcome_of(case.name, CaseOutcome.FAILED) for case in graded.cases]
    has_passed = all(outcome is CaseOutcome.PASSED for outcome in outcomes)
    if has_passed and plain.has_passed:
        return msgspec.structs.replace(graded, cpu_seconds=cpu_seconds)
    if has_passed:
        # What failed has no name of a test, such as the tear-down of a class.
        outcomes = [CaseOutcome.FAILED for _ in outcomes]
    message = "it passed apart from the tests, but not together with them"
    cases = [
        case if outcome is CaseOutcome.PASSED else msgspec.structs.replace(case, outcome=outcome, message=message)
        for case, outcome in zip(graded.cases, outcomes, strict=True)
    ]
    reason = "it failed" if plain.end is None else ENDS[plain.end]
    return msgspec.structs.replace(
        graded,
        outcome=VerdictOutcome.FAILED if plain.has_passed else plain.outcome,
        cases=tuple(cases),
        disagreement=f"It passed apart from the tests, but together with them, in plain Python, {reason}.",
        cpu_seconds=cpu_seconds,
    )


def faithful(questions: Questions, ran: PlainRun, *, load_error: str) -> Graded:
    """Return the result of a submission that answers the questions of a task, and then faces its tests.

    Args:
        questions: The questions of its task.
        ran: Its last run: with the questions, of which one was answered wrongly, or in plain Python.
        load_error: Why it could not be executed, from a process without tests; empty if it could be.
    """
    # The process could have made up the names of its outcomes.
    names = [*questions.names.values()] or ["tests"]
    outcomes = [CaseOutcome.NOT_RUN if load_error else ran.outcome_of(name, CaseOutcome.FAILED) for name in names]
    if ran.has_passed or set(outcomes) == {CaseOutcome.PASSED}:
        outcomes = [CaseOutcome.PASSED if ran.has_passed else CaseOutcome.FAILED for _ in names]
    return Graded(
        outcome=VerdictOutcome.ERROR if load_error else ran.outcome,
        cases=tuple(
            CaseResult(name=name, outcome=outcome, message=_MESSAGES.get(outcome, ""))
            for name, outcome in zip(names, outcomes, strict=True)
        ),
        message=load_error,
        mode=GradingMode.FAITHFUL,
        is_weak=questions.is_weak,
        cpu_seconds=ran.cpu_seconds,
    )


def reason_of(graded: Graded) -> str:
    """Return why a submission has not passed."""
    failed = [case for case in graded.cases if case.outcome is not CaseOutcome.PASSED]
    first = f"test {failed[0].name!r}: {failed[0].message}" if failed else graded.outcome.value
    return graded.message or first
