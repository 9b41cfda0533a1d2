"""What ``CodingTask-v0`` shows of a program: its run on the task's sample, or the verdict."""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec

from coding_gym.tasks import CaseOutcome, OutputRule, ProgramCase, Programs, RepositoryTests, Task, Verdict, VerdictOutcome
from coding_gym_server.protocol import TIMEOUT_EXIT_CODE, Outcome

__all__ = ["SUBMIT", "ShownRun", "prompt_of", "sample_run", "shown_run"]

SUBMIT = "submit"
"""Action that submits the changes to a repository."""

_KILLED_EXIT_CODE = 137
_ENDS = {
    VerdictOutcome.PASSED: (Outcome.OK, 0),
    VerdictOutcome.TIMEOUT: (Outcome.TIMEOUT, TIMEOUT_EXIT_CODE),
    VerdictOutcome.MEMORY: (Outcome.MEMORY, _KILLED_EXIT_CODE),
    VerdictOutcome.KILLED: (Outcome.KILLED, _KILLED_EXIT_CODE),
}
_ERROR = Outcome.ERROR, 1
_NO_OUTPUT = "\0"
"""What no program prints that the server decodes: so that each run is reported with its output."""


def prompt_of(task: Task) -> str:
    """Return the prompt of a task, with its sample input if it does not contain that, or with how to submit changes."""
    if isinstance(task.tests, RepositoryTests):
        return f"{task.prompt}\n\nThe action {SUBMIT!r} submits your changes."
    sample = task.sample_input
    # Prompts indent examples.
    if sample is None or " ".join(sample.split()) in " ".join(task.prompt.split()):
        return task.prompt
    return f"{task.prompt}\n\nSample input:\n\n{sample}"


def sample_run(task: Task, *, max_output_chars: int) -> Task | None:
    """Return a task whose verdict has the output of a submission for the sample input; None without one.

    Its outcome is ``failed`` if the submission ends with exit code 0.

    Args:
        task: The task.
        max_output_chars: Maximum number of code points of stdout, and of stderr.
    """
    tests = task.tests
    if task.sample_input is None or not isinstance(tests, Programs) or tests.interactor is not None:
        return None
    case = ProgramCase(stdin=task.sample_input, stdout=_NO_OUTPUT)
    return replace(
        task,
        tests=msgspec.structs.replace(tests, cases=(case,), compare=OutputRule.LINES, tolerance=None, checker=None),
        limits=msgspec.structs.replace(task.limits, max_output_chars=max_output_chars),
    )


@dataclass(frozen=True)
class ShownRun:
    """What is shown of a program.

    Attributes:
        stdout: Its stdout.
        stderr: Its stderr, and why it has not passed, if the verdict decides the outcome.
        outcome: Its outcome.
        exit_code: Its exit code.
    """

    stdout: str
    stderr: str
    outcome: Outcome
    exit_code: int


def shown_run(verdict: Verdict, sample: Verdict | None, *, stdout: str, stderr: str) -> ShownRun:
    """Return what is shown of a program, so that its outcome and the verdict do not contradict each other.

    Args:
        verdict: The verdict.
        sample: The verdict of its run on the sample; None without a sample: the verdict is the outcome.
        stdout: What it has printed without a sample, and without input.
        stderr: Likewise.
    """
    if verdict.outcome is VerdictOutcome.ERROR and all(case.outcome is CaseOutcome.NOT_RUN for case in verdict.cases):
        # What the compiler says, which knows no tests.
        return ShownRun("", f"{verdict.message}\n", *_ERROR)
    if sample is not None:
        stdout, stderr = sample.stdout, sample.stderr
        if verdict.solved or (sample.outcome is VerdictOutcome.FAILED and verdict.outcome is VerdictOutcome.FAILED):
            return ShownRun(stdout, stderr, Outcome.OK, 0)
        if sample.outcome is not VerdictOutcome.FAILED:
            return ShownRun(stdout, stderr, *_ENDS.get(sample.outcome, _ERROR))
    return ShownRun(stdout, stderr + _summary(verdict), *_ENDS.get(verdict.outcome, _ERROR))


def _summary(verdict: Verdict) -> str:
    """Return the verdict in words, without its messages, which may quote the tests."""
    return "" if verdict.solved else f"{verdict.outcome.value}: {verdict.passed} of {verdict.total} tests passed\n"
