"""Check of a suite: whether the references of its tasks pass, and where their tests run."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

from coding_gym.errors import ConfigurationError
from coding_gym.tasks.checks import record_mode
from coding_gym.tasks.grading import Grader, show_progress
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
        problem: Why its reference fails, or it cannot be graded; empty if the reference passes, or there is none.
        is_weak: Whether there are too few questions to detect forged results reliably.
        is_tamper_resistant: Whether its submissions have to pass in a process to which they have no access.
        reference: Verdict on its reference; None if it has none.
        unchanged: For a repository, the verdict on a submission that changes nothing; None otherwise.
    """

    task_id: str
    mode: GradingMode | None = None
    problem: str = ""
    is_weak: bool = False
    is_tamper_resistant: bool = True
    reference: Verdict | None = None
    unchanged: Verdict | None = None

    @classmethod
    def of(cls, task_id: str, reference: Verdict | None, unchanged: Verdict | None) -> CheckedTask:
        """Return the result for the verdicts on the reference, and on no change."""
        if reference is None:
            problem = ""
        elif not reference.solved:
            problem = _problem_of(reference)
        elif unchanged is not None and unchanged.is_infrastructure:
            problem = unchanged.message
        else:
            problem = "its tests pass without a solution" if unchanged is not None and unchanged.solved else ""
        return cls(
            task_id=task_id,
            mode=None if reference is None else reference.mode,
            problem=problem,
            is_weak=reference is not None and reference.is_weak,
            is_tamper_resistant=reference is None or reference.tamper_resistant,
            reference=reference,
            unchanged=unchanged,
        )


def check_tasks(tasks: Iterable[Task], grader: Grader, *, progress: bool = False) -> Iterator[CheckedTask]:
    """Grade the references of tasks, and repositories without a change; yield a result for each task, in order.

    The strictest mode in which a script passes that is the reference of a task of a repository is recorded for its submissions,
    if the task does not say which mode it is.

    Args:
        tasks: The tasks.
        grader: Grades them.
        progress: Whether to show a progress bar on stderr.

    Raises:
        ProviderError: If no sandbox is available.
    """
    all_tasks = list(tasks)
    with ThreadPoolExecutor(grader.workers) as threads, show_progress(len(all_tasks), shown=progress) as report:
        for checked in threads.map(partial(_check, grader), all_tasks):
            if (verdict := checked.reference or checked.unchanged) is not None:
                report(verdict)
            yield checked


def _check(grader: Grader, task: Task) -> CheckedTask:
    try:
        return _graded(grader, task)
    except ConfigurationError as error:
        return CheckedTask(task_id=task.id, problem=str(error))


def _graded(grader: Grader, task: Task) -> CheckedTask:
    reference = None if task.reference is None else _grade_reference(grader, task, task.reference)
    is_repository = isinstance(task.tests, RepositoryTests)
    if is_repository and reference is not None:
        # It may have been refused before any of the modes.
        if reference.is_infrastructure or reference.mode not in (GradingMode.COPY, GradingMode.LAYER, GradingMode.SESSION):
            return CheckedTask.of(task.id, reference, None)
        task = replace(task, grading=reference.mode)
    return CheckedTask.of(task.id, reference, grader.grade(task, "") if is_repository else None)


def _grade_reference(grader: Grader, task: Task, reference: str) -> Verdict:
    """Grade a reference, in the strictest mode in which it passes, which is recorded."""
    if not isinstance(task.tests, RepositoryTests) or task.grading is not None or task.tests.submission == "patch":
        return grader.grade(task, reference)
    for mode in (GradingMode.COPY, GradingMode.LAYER):
        verdict = grader.grade(replace(task, grading=mode), reference)
        if verdict.solved:
            record_mode(task, mode)
        if verdict.solved or verdict.is_infrastructure:
            return verdict
    return grader.grade(replace(task, grading=GradingMode.SESSION), reference)


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
