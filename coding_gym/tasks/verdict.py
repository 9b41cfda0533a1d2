"""``Verdict``: what grading a submission gives."""

from __future__ import annotations

from dataclasses import dataclass

from coding_gym_server.grading.messages import CaseOutcome, CaseResult, Graded, VerdictOutcome

__all__ = ["Verdict"]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What grading a submission gives.

    Attributes:
        task_id: Of which task.
        outcome: What became of the submission. ``infrastructure`` says nothing about it: leave it out of every mean.
        cases: What became of each test, in their order.
        message: Why it could not be loaded, or what failed of ours; empty otherwise.
        stdout: What it printed, cut in the middle; of a program, in the first run that did not pass.
        stderr: Likewise.
        load_seconds: How long it took until the submission was loaded, wall clock.
        seconds: How long all took, wall clock.
        cpu_seconds: The CPU time that the submission used.
    """

    task_id: str
    outcome: VerdictOutcome
    cases: tuple[CaseResult, ...] = ()
    message: str = ""
    stdout: str = ""
    stderr: str = ""
    load_seconds: float = 0.0
    seconds: float = 0.0
    cpu_seconds: float = 0.0

    @classmethod
    def of(cls, task_id: str, graded: Graded) -> Verdict:
        """Return what the server says, with the task that it is about."""
        return cls(
            task_id=task_id,
            outcome=graded.outcome,
            cases=graded.cases,
            message=graded.message,
            stdout=graded.stdout,
            stderr=graded.stderr,
            load_seconds=graded.load_seconds,
            seconds=graded.seconds,
            cpu_seconds=graded.cpu_seconds,
        )

    @property
    def passed(self) -> int:
        """How many tests passed."""
        return sum(case.outcome is CaseOutcome.PASSED for case in self.cases)

    @property
    def total(self) -> int:
        """How many tests there are."""
        return len(self.cases)

    @property
    def score(self) -> float | None:
        """The part of the tests that passed, 0 to 1; None after a fault of ours, so that nobody averages it in."""
        if self.is_infrastructure:
            return None
        return self.passed / self.total if self.total else 0.0

    @property
    def solved(self) -> bool:
        """Whether all tests passed."""
        return self.outcome is VerdictOutcome.PASSED

    @property
    def is_infrastructure(self) -> bool:
        """Whether a fault of ours, not the submission, is to blame."""
        return self.outcome is VerdictOutcome.INFRASTRUCTURE
