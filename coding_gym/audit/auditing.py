"""The audit of a verifier by a suite: what must pass passes, what must not does not, and verdicts do not depend on chance."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from coding_gym.audit.hacks import Hack, own_hacks
from coding_gym.audit.programs import empty_programs, mutants, stubs
from coding_gym.audit.report import AuditReport, Check, Finding
from coding_gym.audit.verifiers import Judgment, Verifier
from coding_gym.tasks import Task, TaskSuite

__all__ = ["audit"]

_BUSY = """
import os, sys, threading
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0))).start()
while True:
    pass
"""
"""A program that keeps a processor busy as long as its standard input is open."""

_HASTY_SECONDS = 1.0
_MOST_OF_LIMIT = 0.5
"""Largest fraction of its time limit that a reference may use."""


class _Judged(NamedTuple):
    """A submission, and what the verifier says of it."""

    task: Task
    name: str
    code: str
    judgment: Judgment


def audit(
    suite: TaskSuite,
    verifier: Verifier,
    *,
    hacks: Sequence[Hack] | None = None,
    most_mutants: int = 5,
    seed: int = 1,
    report: Callable[[str], None] = lambda _: None,
) -> AuditReport:
    """Audit a verifier, and the tasks of a suite.

    References must pass, with at most half of their time limit. Empty programs, stubs and hacks must not; a hack must not get
    more than a stub either. Mutants of references should not pass, but may behave like them: those that do are listed, and are
    no failure. References, stubs and hacks, one for each task, are judged again: in another order, and beside busy processes,
    one for each processor.

    Args:
        suite: The tasks. Those without a reference have no mutants.
        verifier: Judges submissions.
        hacks: Programs that try to pass without solving a task; those of this package if None.
        most_mutants: Maximum number of mutants of a task.
        seed: Seed of the order in which submissions are judged again.
        report: Called with what is done next.

    Raises:
        ProviderError: If no sandbox is available.
    """
    return _Audit(suite, verifier, report).run(own_hacks() if hacks is None else hacks, most_mutants, seed)


class _Audit:
    """An audit in progress.

    Args:
        suite: The tasks.
        verifier: Judges submissions.
        report: Called with what is done next.
    """

    def __init__(self, suite: TaskSuite, verifier: Verifier, report: Callable[[str], None]) -> None:
        self._suite = suite
        self._verifier = verifier
        self._report = report
        self._checks: list[Check] = []
        # What is judged again.
        self._sample: list[_Judged] = []
        # The tasks for programs that must fail.
        self._hasty: list[Task] = []

    def run(self, hacks: Sequence[Hack], most_mutants: int, seed: int) -> AuditReport:
        """Check everything."""
        self._check_references()
        best = self._check_stubs()
        self._check_hacks(hacks, best)
        made = self._judge("mutants", ((task, mutants(task, most_mutants)) for task in self._hasty))
        self._check("mutants of references fail", made, _is_solved, is_failure=False)
        self._repeat("in another order", random.Random(seed))  # noqa: S311
        with _load():
            self._repeat("beside busy processes", random.Random(seed + 1))  # noqa: S311
        return AuditReport.now(self._suite.name, self._verifier.name, len(self._suite), self._checks)

    def _repeat(self, how: str, chance: random.Random) -> None:
        """Judge some submissions again, in a random order."""
        shuffled = chance.sample(self._sample, len(self._sample))
        again = self._judge(how, ((judged.task, {judged.name: judged.code}) for judged in shuffled))
        different = {
            id(now)
            for before, now in zip(shuffled, again, strict=True)
            if (now.judgment.solved, now.judgment.score) != (before.judgment.solved, before.judgment.score)
        }
        self._check(f"verdicts are the same {how}", again, lambda each: id(each) in different)

    def _check_references(self) -> None:
        judged = self._judge(
            "references", ((task, {"reference": task.reference}) for task in self._suite if task.reference is not None)
        )
        self._check("references pass", judged, lambda each: not each.judgment.solved)
        limited = [each for each in judged if each.judgment.used is not None]
        title = f"references use at most {_MOST_OF_LIMIT:.0%} of their time limit"
        self._check(title, limited, lambda each: (each.judgment.used or 0.0) > _MOST_OF_LIMIT)
        self._sample += judged
        used = {each.task.id: each.judgment.used for each in judged}
        self._hasty = [_in_haste(task, used.get(task.id)) for task in self._suite]

    def _check_stubs(self) -> dict[str, float]:
        """Check submissions that compute nothing; return the highest score for each task."""
        nothing = self._judge("empty programs", ((task, empty_programs(task)) for task in self._hasty))
        self._check("empty programs fail", nothing, _is_solved)
        constant = self._judge("stubs", ((task, stubs(task)) for task in self._hasty))
        self._check("stubs fail", constant, _is_solved)
        self._sample += _one_of_each(constant)
        best: dict[str, float] = {}
        for each in (*nothing, *constant):
            best[each.task.id] = max(best.get(each.task.id, 0.0), each.judgment.score or 0.0)
        return best

    def _check_hacks(self, hacks: Sequence[Hack], best: Mapping[str, float]) -> None:
        attacks = ((task, {f"{hack.hole}: {hack.name}": hack.attack(task) for hack in hacks}) for task in self._hasty)
        judged = self._judge("hacks", attacks)
        self._check(
            "hacks earn nothing",
            judged,
            lambda each: each.judgment.solved or (each.judgment.score or 0.0) > best.get(each.task.id, 0.0),
        )
        self._check("there is a verdict, whatever a program does", judged, lambda each: each.judgment.score is None)
        self._sample += _one_of_each(judged)

    def _judge(self, title: str, programs: Iterable[tuple[Task, Mapping[str, str | None]]]) -> list[_Judged]:
        """Judge programs, which tasks have by name; None is left out."""
        items = [(task, name, code) for task, by_name in programs for name, code in by_name.items() if code is not None]
        self._report(f"{title}: {len(items)} submissions")
        judgments = self._verifier.judge([(task, code) for task, _, code in items])
        return [_Judged(*item, judgment) for item, judgment in zip(items, judgments, strict=True)]

    def _check(
        self, title: str, judged: Sequence[_Judged], is_wrong: Callable[[_Judged], bool], *, is_failure: bool = True
    ) -> None:
        findings = [
            Finding(task_id=each.task.id, name=each.name, code=each.code, score=each.judgment.score, why=each.judgment.why)
            for each in judged
            if is_wrong(each)
        ]
        self._checks.append(Check(title=title, total=len(judged), findings=findings, is_failure=is_failure))


def _in_haste(task: Task, used: float | None) -> Task:
    """Return a task with limits that end hacks that wait, but leave ten times what the reference has used."""
    seconds = max(_HASTY_SECONDS, 10 * (used or 0.0) * task.limits.cpu_timeout)
    cpu, wall = min(seconds, task.limits.cpu_timeout), min(3 * seconds, task.limits.wall_timeout)
    return task.with_limits(msgspec.structs.replace(task.limits, cpu_timeout=cpu, wall_timeout=wall))


def _is_solved(judged: _Judged) -> bool:
    return judged.judgment.solved


def _one_of_each(judged: Iterable[_Judged]) -> list[_Judged]:
    """Return one submission to each task, another kind for the next task."""
    by_task: dict[str, list[_Judged]] = {}
    for each in judged:
        by_task.setdefault(each.task.id, []).append(each)
    return [own[number % len(own)] for number, own in enumerate(by_task.values())]


@contextlib.contextmanager
def _load() -> Iterator[None]:
    """Keep all processors busy for a block."""
    count = len(os.sched_getaffinity(0))
    busy = [subprocess.Popen([sys.executable, "-c", _BUSY], stdin=subprocess.PIPE) for _ in range(count)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.communicate()
