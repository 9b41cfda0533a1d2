"""The suites of this package: each problem is tested with its reference, stub and mutants."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import msgspec
import pytest

from coding_gym.tasks import CaseOutcome, Grader, Verdict, VerdictOutcome, load_suite
from coding_gym.tasks.loaders.bundled import Problem, bundled_suites, load_problems

SUITES = ("algorithms", "basics", "classes", "files", "functions", "programs", "windows")

# Mutants may loop endlessly; references need far less time.
MOST_CPU_SECONDS = 0.5

FOUND = {CaseOutcome.FAILED, CaseOutcome.ERROR, CaseOutcome.TIMEOUT, CaseOutcome.MEMORY, CaseOutcome.KILLED}


@pytest.fixture(scope="module")
def grader() -> Iterator[Grader]:
    with Grader(provider="local", preload=(), workers=6) as grader:
        yield grader


@pytest.fixture(scope="module", params=SUITES)
def problems(request: pytest.FixtureRequest) -> list[Problem]:
    """Problems of a suite."""
    problems = load_problems(request.param)
    if request.param != "windows":
        return [in_haste(problem) for problem in problems]
    request.getfixturevalue("xvfb")
    return problems


def grade(grader: Grader, problems: list[Problem], codes: Callable[[Problem], Sequence[str]]) -> dict[str, list[Verdict]]:
    submissions = [(problem.task, code) for problem in problems for code in codes(problem)]
    found: dict[str, list[Verdict]] = {problem.task.id: [] for problem in problems}
    for (task, _), verdict in zip(submissions, grader.grade_many(submissions), strict=True):
        found[task.id].append(verdict)
    return found


def in_haste(problem: Problem) -> Problem:
    limits = problem.task.limits
    hasty = msgspec.structs.replace(limits, cpu_timeout=min(limits.cpu_timeout, MOST_CPU_SECONDS))
    return replace(problem, task=replace(problem.task, limits=hasty))


def test_documented_suites_exist():
    assert bundled_suites() == SUITES
    assert sum(len(load_suite(name)) for name in SUITES) >= 64


def test_references_pass(problems, grader):
    verdicts = grade(grader, problems, lambda problem: [problem.task.reference])
    assert not {task: verdict for task, (verdict,) in verdicts.items() if not verdict.solved}


def test_stubs_fail(problems, grader):
    verdicts = grade(grader, problems, lambda problem: [problem.stub])
    assert not [task for task, (verdict,) in verdicts.items() if verdict.outcome is VerdictOutcome.PASSED]
    # A stub may pass some tests by chance, but at most half of them.
    assert not [task for task, (verdict,) in verdicts.items() if verdict.passed > verdict.total / 2]


def test_mutants_are_detected(problems, grader):
    mutants = grade(grader, problems, lambda problem: problem.mutants)
    verdicts = [(task, verdict) for task, verdicts in mutants.items() for verdict in verdicts]
    survived = (VerdictOutcome.PASSED, VerdictOutcome.INFRASTRUCTURE)
    assert not [(task, verdict) for task, verdict in verdicts if verdict.outcome in survived]
    # Any test would detect a mutant that fails to load, even a useless one.
    assert not [(task, verdict.message) for task, verdict in verdicts if verdict.outcome is VerdictOutcome.ERROR]
    # Each test detects one.
    idle = {}
    for task, verdicts in mutants.items():
        by_test = zip(*(verdict.cases for verdict in verdicts), strict=True)
        if names := [results[0].name for results in by_test if not any(result.outcome in FOUND for result in results)]:
            idle[task] = names
    assert not idle
