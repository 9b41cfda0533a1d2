"""Benchmarks of the processes that do not multiply with processors, and so limit what more of them can bring."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing

from benchmarks.grading import references_of_humaneval
from benchmarks.plan import BenchPlan
from benchmarks.processes import cpu_seconds_of_sandboxes
from benchmarks.report import Row
from coding_gym.tasks import Grader, Task

__all__ = ["measure_scaling"]

_CODE = "print('hi')"
_SESSIONS = 64
_SANDBOXES = (1, 2, 4)
_WORKERS = (1, 2, 4, 16)
_SECONDS = 5


def measure_scaling(plan: BenchPlan) -> Iterator[Row]:
    """Measure the rate of steps and of gradings, and the CPU time that each costs the client and the busiest other process."""
    for sandboxes in _SANDBOXES:
        yield from _measure_steps(plan, sandboxes)
    submissions = references_of_humaneval()
    for workers in _WORKERS if submissions else ():
        yield from _measure_gradings(plan, workers, submissions)


def _measure_steps(plan: BenchPlan, sandboxes: int) -> Iterator[Row]:
    actions = [_CODE] * _SESSIONS
    per_sandbox = _SESSIONS // sandboxes
    with closing(plan.make_vector_env(num_envs=_SESSIONS, sessions_per_sandbox=per_sandbox, screen=None)) as envs:

        def step() -> int:
            envs.step(actions)
            return _SESSIONS

        envs.reset(seed=0)
        step()
        name = f"{_SESSIONS} environments in {sandboxes} sandbox{'es' if sandboxes > 1 else ''}"
        yield from _measure(name, "steps/s", "us/step", step, plan.times(_SECONDS, least=1))


def _measure_gradings(plan: BenchPlan, workers: int, submissions: list[tuple[Task, str]]) -> Iterator[Row]:
    # Modules of sessions would still be imported in the background while it measures.
    with Grader(provider=plan.provider, workers=workers, preload=()) as grader:

        def grade() -> int:
            return sum(1 for _ in grader.grade_many(submissions, regrade=True))

        grade()
        name = f"HumanEval's solutions, {workers} worker{'s' if workers > 1 else ''}"
        yield from _measure(name, "/s", "ms/grading", grade, plan.times(_SECONDS, least=1))


def _measure(what: str, unit: str, unit_of_time: str, call: Callable[[], int], seconds: float) -> Iterator[Row]:
    """Measure a call for some seconds; it returns the number of its steps or gradings."""
    before = cpu_seconds_of_sandboxes()
    began, own = time.perf_counter(), time.process_time()
    count = 0
    while (elapsed := time.perf_counter() - began) < seconds:
        count += call()
    own = time.process_time() - own
    after = cpu_seconds_of_sandboxes()
    busiest = max((after[pid] - before[pid] for pid in before.keys() & after.keys()), default=None)
    scale = (1e6 if unit_of_time.startswith("us") else 1e3) / count
    yield Row(what=what, unit=unit, median=count / elapsed)
    yield Row(what=f"  {what}: CPU time of the client", unit=unit_of_time, median=own * scale)
    name = f"  {what}: CPU time of the busiest other process"
    yield Row(what=name, unit=unit_of_time, median=None if busiest is None else busiest * scale)
