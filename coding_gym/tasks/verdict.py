"""``Verdict``: the result of grading a submission."""

from __future__ import annotations

from dataclasses import dataclass

from coding_gym._html import caption, colored, document, element, folded, mark, preformatted, table
from coding_gym_server.protocol.grading import CaseOutcome, CaseResult, Graded, GradingMode, VerdictOutcome

__all__ = ["Verdict"]

_ALL_OR_NOTHING = (GradingMode.FAITHFUL, GradingMode.COPY, GradingMode.LAYER, GradingMode.SESSION)
"""Modes in which tests run in one process, or session, with what they test."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Result of grading a submission.

    Attributes:
        task_id: Id of the task.
        outcome: Outcome of the submission. ``infrastructure`` says nothing about the submission: exclude it from averages.
        cases: Result of each test, in order.
        message: Why the submission could not be loaded, or the infrastructure error; empty otherwise.
        stdout: Its stdout, truncated in the middle; for a program, of the first run that did not pass.
        stderr: Its stderr, truncated in the middle; for a program, of the first run that did not pass.
        load_seconds: Wall-clock time until the submission was loaded, in seconds.
        seconds: Total wall-clock time, in seconds.
        cpu_seconds: CPU time used by the submission, in seconds.
        mode: Where the tests ran: ``isolated`` from the submission, or in its process, ``faithful`` to the test framework.
        disagreement: Why a submission that passed apart from its tests failed with them in one process; empty if it did not.
        broken: Why the reference of the task fails its tests, so that no submission can pass; empty if it passes them, or was
            not graded.
        is_weak: Whether the tests ran in the faithful mode with too few questions to keep programs from guessing the answers.
        executed: Audit event by which isolated tests executed what the submission may have chosen, such as
            ``pickle.find_class``; empty if they did not.
        reward: Reward that the tests have written, or the share of the points of groups, 0 to 1; None if there is none.
        checker_failed: Whether the outcome is ``infrastructure`` because the checker of the task did not decide.
        is_repeat: Whether it is the verdict on an equal submission, so that this one was not graded again.
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
    mode: GradingMode = GradingMode.ISOLATED
    disagreement: str = ""
    broken: str = ""
    is_weak: bool = False
    executed: str = ""
    reward: float | None = None
    checker_failed: bool = False
    is_repeat: bool = False

    @classmethod
    def of(cls, task_id: str, graded: Graded, *, broken: str = "") -> Verdict:
        """Return the verdict for a task from the server's result.

        Args:
            task_id: Id of the task.
            graded: The result.
            broken: Why the reference of the task fails its tests.
        """
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
            mode=graded.mode,
            disagreement=graded.disagreement,
            broken=broken,
            is_weak=graded.is_weak,
            executed=graded.executed,
            reward=graded.reward,
            checker_failed=graded.checker_failed,
        )

    def _repr_html_(self) -> str:
        score = "" if self.score is None else f", {self.passed} of {self.total} tests, score {self.score:.2f}"
        cases = ((mark(case.outcome is CaseOutcome.PASSED), case.name, case.outcome.value, case.message) for case in self.cases)
        notes = [
            f"{self.mode.value} mode" if self.mode in _ALL_OR_NOTHING else "",
            "weak" if self.is_weak else "",
            "the task is broken" if self.broken else "",
            f"tests executed code ({self.executed})" if self.executed else "",
        ]
        return document(
            caption(
                element("b", self.task_id),
                ": ",
                colored(self.outcome.value, is_good=self.solved),
                f"{score}, {self.seconds:.2f} s",
                *(f", {note}" for note in notes if note),
            ),
            preformatted(self.message or self.disagreement or self.broken, is_error=True),
            table(("", "test", "outcome", "message"), cases, total=self.total),
            folded("stdout", preformatted(self.stdout)),
            folded("stderr", preformatted(self.stderr, is_error=True)),
        )

    @property
    def passed(self) -> int:
        """Number of tests that passed."""
        return sum(case.outcome is CaseOutcome.PASSED for case in self.cases)

    @property
    def total(self) -> int:
        """Number of tests."""
        return len(self.cases)

    @property
    def score(self) -> float | None:
        """Fraction of tests that passed, 0 to 1; None after an infrastructure error, to keep it out of averages.

        A test to which a checker has given points counts in part. With groups, it is the share of their points. In the faithful
        mode, and for changes to repositories, 1 if all tests passed, and 0 otherwise, unless the tests write a reward.
        """
        if self.is_infrastructure:
            return None
        if self.reward is not None:
            return self.reward
        if self.mode in _ALL_OR_NOTHING:
            return float(self.solved)
        scores = [float(case.outcome is CaseOutcome.PASSED) if case.score is None else case.score for case in self.cases]
        return sum(scores) / self.total if self.total else 0.0

    @property
    def solved(self) -> bool:
        """Whether all tests passed."""
        return self.outcome is VerdictOutcome.PASSED

    @property
    def tamper_resistant(self) -> bool:
        """Whether it had to pass in a process to which it had no access, where the tests executed nothing of it."""
        return self.mode not in _ALL_OR_NOTHING and not self.executed

    @property
    def is_infrastructure(self) -> bool:
        """Whether grading failed because of an infrastructure error, not the submission."""
        return self.outcome is VerdictOutcome.INFRASTRUCTURE
