"""The suites of this package, each problem held against its own reference, stub and mutants."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import msgspec
import pytest

from coding_gym.tasks import CaseOutcome, Grader, Verdict, VerdictOutcome, load_suite
from coding_gym.tasks.loaders.own import Problem, load_problems, own_suites

SUITES = ("algorithms", "basics", "classes", "files", "functions", "programs", "windows")

# Mutants may well loop for ever; what references need is far less.
MOST_CPU_SECONDS = 0.5

FOUND = {CaseOutcome.FAILED, CaseOutcome.ERROR, CaseOutcome.TIMEOUT, CaseOutcome.MEMORY, CaseOutcome.KILLED}


@dataclass(frozen=True)
class Graded:
    """What became of a problem's submissions."""

    problem: Problem
    reference: Verdict
    stub: Verdict
    mutants: list[Verdict]

    @property
    def id(self) -> str:
        return self.problem.task.id


@pytest.fixture(scope="module")
def grader() -> Iterator[Grader]:
    with Grader(provider="local", preload=(), workers=6) as grader:
        yield grader


@pytest.fixture(scope="module", params=SUITES)
def graded(request: pytest.FixtureRequest, grader: Grader) -> list[Graded]:
    problems = load_problems(request.param)
    if request.param == "windows":
        request.getfixturevalue("xvfb")
    else:
        problems = [in_haste(problem) for problem in problems]
    sources = [[problem.task.reference, problem.stub, *problem.mutants] for problem in problems]
    verdicts = grader.grade_many(
        (problem.task, code) for problem, codes in zip(problems, sources, strict=True) for code in codes
    )
    found = []
    for problem, codes in zip(problems, sources, strict=True):
        reference, stub, *mutants = (next(verdicts) for _ in codes)
        found.append(Graded(problem, reference, stub, mutants))
    return found


def in_haste(problem: Problem) -> Problem:
    limits = problem.task.limits
    hasty = msgspec.structs.replace(limits, cpu_timeout=min(limits.cpu_timeout, MOST_CPU_SECONDS))
    return replace(problem, task=replace(problem.task, limits=hasty))


def test_there_are_the_suites_that_are_documented():
    assert own_suites() == SUITES
    assert sum(len(load_suite(name)) for name in SUITES) >= 64


def test_references_pass(graded):
    failing = {case.id: case.reference for case in graded if not case.reference.solved}
    assert not failing


def test_stubs_fail(graded):
    # What it returns in a test or two may even be right, but no more than that.
    passing = {case.id: case.stub.cases for case in graded if case.stub.outcome is VerdictOutcome.PASSED}
    assert not passing
    assert not {case.id for case in graded if case.stub.passed > case.stub.total / 2}


def test_mutants_are_found(graded):
    alive = [
        (case.id, mutant)
        for case in graded
        for mutant, verdict in zip(case.problem.mutants, case.mutants, strict=True)
        if verdict.outcome in (VerdictOutcome.PASSED, VerdictOutcome.INFRASTRUCTURE)
    ]
    assert not alive


def test_mutants_can_be_loaded(graded):
    # One that cannot would be found by each test, whatever the test is.
    broken = [
        (case.id, verdict.message) for case in graded for verdict in case.mutants if verdict.outcome is VerdictOutcome.ERROR
    ]
    assert not broken


def test_each_test_finds_a_mutant(graded):
    idle = {}
    for case in graded:
        by_test = zip(*(verdict.cases for verdict in case.mutants), strict=True)
        if names := [results[0].name for results in by_test if not any(result.outcome in FOUND for result in results)]:
            idle[case.id] = names
    assert not idle
