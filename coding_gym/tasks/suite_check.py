"""Check of a suite: whether the references of its tasks pass, and where their tests run."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from coding_gym.tasks.grading import Grader
from coding_gym.tasks.repository.tests import RepositoryTests
from coding_gym.tasks.task import Task
from coding_gym.tasks.verdict import Verdict
from coding_gym_server.protocol.grading import CaseOutcome, GradingMode

__all__ = ["CheckedTask", "check_tasks", "warn_of"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class CheckedTask:
    """Result of the check of a task.

    Attributes:
        task_id: Id of the task.
        mode: Where its tests run; None if it has no reference.
        problem: Why its reference fails; empty if it passes, or there is none.
        is_weak: Whether there are too few questions to detect forged results reliably.
        is_tamper_resistant: Whether its submissions have to pass in a process to which they have no access.
    """

    task_id: str
    mode: GradingMode | None = None
    problem: str = ""
    is_weak: bool = False
    is_tamper_resistant: bool = True

    @classmethod
    def of(cls, verdict: Verdict) -> CheckedTask:
        """Return the result for the verdict on a reference."""
        return cls(
            task_id=verdict.task_id,
            mode=verdict.mode,
            problem="" if verdict.solved else _problem_of(verdict),
            is_weak=verdict.is_weak,
            is_tamper_resistant=verdict.tamper_resistant,
        )


def check_tasks(tasks: Iterable[Task], grader: Grader, *, progress: bool = False) -> Iterator[CheckedTask]:
    """Grade the references of tasks, and repositories without a change; yield a result for each task, in order.

    Args:
        tasks: The tasks.
        grader: Grades them.
        progress: Whether to show a progress bar on stderr.

    Raises:
        ConfigurationError: If a task cannot be graded.
        ProviderError: If no sandbox is available.
    """
    all_tasks = list(tasks)
    submissions = [(task, code) for task in all_tasks for code in _submissions_of(task)]
    verdicts = grader.grade_many(submissions, progress=progress)
    for task in all_tasks:
        checked = CheckedTask(task_id=task.id) if task.reference is None else CheckedTask.of(next(verdicts))
        if isinstance(task.tests, RepositoryTests):
            unchanged = next(verdicts)
            if not checked.problem and unchanged.solved:
                checked = replace(checked, mode=unchanged.mode, problem="its tests pass without a solution")
        yield checked


def _submissions_of(task: Task) -> list[str]:
    """Return what a task is checked with: its reference, and for a repository no change, which must fail."""
    return [*([] if task.reference is None else [task.reference]), *([""] if isinstance(task.tests, RepositoryTests) else [])]


def warn_of(checked: CheckedTask) -> None:
    """Log a warning if the reference of a task fails, or results of its submissions could be forged."""
    if checked.problem:
        _log.warning("task %r is broken: its reference fails: %s", checked.task_id, checked.problem)
    elif checked.is_weak:
        _log.warning("task %r is weak: it has too few questions to detect forged results reliably", checked.task_id)


def _problem_of(verdict: Verdict) -> str:
    failed = next((case for case in verdict.cases if case.outcome is not CaseOutcome.PASSED), None)
    first = f"test {failed.name}: {failed.message or failed.outcome.value}" if failed is not None else ""
    return verdict.broken or verdict.message or verdict.disagreement or first or verdict.outcome.value
