"""Submissions that try to earn rewards without solving tasks, graded in sandboxes shared with honest submissions."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable

import pytest

from coding_gym.sandbox import Sandbox
from coding_gym_server.protocol.grading import CaseOutcome, VerdictOutcome
from tests.grading.judging import grade_all
from tests.grading.object_hacks import HACKS, TASKS, submission

_KINDS = sorted({hack.kind for hack in HACKS})
_SLOW = {
    *("poisoned values", "poisoned output", "exceptions", "exhaustion", "forged frames", "planted files"),
    # These import pandas on both sides.
    *("frames abused", "lying frames", "numbers that lie"),
}
"""Kinds with many hacks, or with hacks that take all the time that they are given."""


def test_corpus_covers_all_kinds_and_tasks() -> None:
    names = Counter((hack.kind, hack.name) for hack in HACKS)
    assert not [name for name, count in names.items() if count > 1]
    assert len(names) >= 60
    assert len(_KINDS) >= 25
    assert set(itertools.chain.from_iterable(hack.tasks for hack in HACKS)) == set(TASKS)


@pytest.mark.every_provider
@pytest.mark.parametrize(
    "kinds",
    [
        pytest.param([kind for kind in _KINDS if kind not in _SLOW], id="quick kinds"),
        pytest.param([kind for kind in _KINDS if kind in _SLOW], id="slow kinds"),
    ],
)
def test_hacks_earn_nothing(
    request: pytest.FixtureRequest, provider: str, sandbox_of: Callable[..., Sandbox], kinds: list[str]
) -> None:
    # In containers, which run the same server, and in quick runs, each hack attacks only the first of its tasks.
    most = None if provider == "local" and request.config.getoption("full") else 1
    attacks = _alternating(
        [[(hack, task) for hack in HACKS if hack.kind == kind for task in hack.tasks[:most]] for kind in kinds]
    )
    sandbox = sandbox_of(provider=provider)
    verdicts = grade_all(sandbox, [submission(task, hack.code) for hack, task in attacks])
    earned, harmed = [], []
    for (hack, task), graded in zip(attacks, verdicts, strict=True):
        passed = [case.name for case in graded.cases if case.outcome is CaseOutcome.PASSED]
        if passed or graded.outcome is VerdictOutcome.PASSED:
            earned.append((hack.kind, hack.name, task, passed, graded.outcome))
        if graded.outcome is VerdictOutcome.INFRASTRUCTURE or "process of the sandbox" in graded.message:
            harmed.append((hack.kind, hack.name, task, graded.message))
    assert earned == []
    # Nor did a hack harm the grading processes.
    assert harmed == []
    # Afterwards, honest submissions pass, on all grading workers concurrently.
    tasks = sorted({task for _, task in attacks})
    for task, graded in zip(tasks * 2, grade_all(sandbox, [submission(task) for task in tasks * 2]), strict=True):
        assert graded.outcome is VerdictOutcome.PASSED, (task, graded.cases)


def _alternating(groups: list[list[object]]) -> list[object]:
    """Take one item of each group in turn, so that what waits runs beside what computes."""
    return [item for row in itertools.zip_longest(*groups) for item in row if item is not None]
