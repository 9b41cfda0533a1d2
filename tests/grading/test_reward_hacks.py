"""Submissions that try to earn rewards without solving tasks, graded by kind, in sandboxes shared with honest submissions."""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from coding_gym.sandbox import Sandbox
from coding_gym_server.protocol.grading import CaseOutcome, Graded, VerdictOutcome
from tests.grading.reward_hacks import HACKS, TASKS, submission

_CONNECTIONS = 4
_ANSWER_WITHIN = 60.0
_KINDS = sorted({hack.kind for hack in HACKS})
_SLOW = {"poisoned values", "poisoned output", "exceptions", "exhaustion", "forged frames", "planted files"}
"""Kinds with many hacks, or with hacks that take all the time that they are given."""


def test_corpus_covers_all_kinds_and_tasks() -> None:
    names = Counter((hack.kind, hack.name) for hack in HACKS)
    assert not [name for name, count in names.items() if count > 1]
    assert len(names) >= 60
    assert len(_KINDS) >= 25
    assert set(itertools.chain.from_iterable(hack.tasks for hack in HACKS)) == set(TASKS)


@pytest.mark.every_provider
@pytest.mark.parametrize("kind", [pytest.param(kind, marks=pytest.mark.slow) if kind in _SLOW else kind for kind in _KINDS])
def test_hacks_earn_nothing(
    request: pytest.FixtureRequest, provider: str, sandbox_of: Callable[..., Sandbox], kind: str
) -> None:
    # In containers, which run the same server, and in quick runs, each hack attacks only the first of its tasks.
    most = None if provider == "local" and request.config.getoption("full") else 1
    attacks = [(hack, task) for hack in HACKS if hack.kind == kind for task in hack.tasks[:most]]
    submissions = [submission(task, hack.code) for hack, task in attacks]
    tasks = sorted({task for _, task in attacks})
    sandbox = sandbox_of(provider=provider)
    verdicts = _grade(sandbox, submissions)
    for (hack, task), graded in zip(attacks, verdicts, strict=True):
        passed = [case.name for case in graded.cases if case.outcome is CaseOutcome.PASSED]
        assert (passed, graded.outcome is VerdictOutcome.PASSED) == ([], False), (hack.name, task)
        # Nor did the hack harm the grading processes.
        assert graded.outcome is not VerdictOutcome.INFRASTRUCTURE, (hack.name, task, graded.message)
        assert "process of the sandbox" not in graded.message, (hack.name, task)
    # Afterwards, honest submissions pass, on all grading workers concurrently.
    for graded in _grade(sandbox, [submission(task) for task in itertools.islice(itertools.cycle(tasks), _CONNECTIONS)]):
        assert graded.outcome is VerdictOutcome.PASSED, graded.cases


def _grade(sandbox: Sandbox, submissions: list[object]) -> list[Graded]:
    """Grade submissions concurrently over several connections, and sequentially on each of them."""
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(_CONNECTIONS) as threads:
        sessions = [stack.enter_context(contextlib.closing(sandbox.connect())) for _ in range(_CONNECTIONS)]
        shares = [range(number, len(submissions), _CONNECTIONS) for number in range(_CONNECTIONS)]

        def grade(session: object, share: range) -> list[Graded]:
            return [session.grade(submissions[index], timeout=_ANSWER_WITHIN) for index in share]

        verdicts = dict(zip(itertools.chain(*shares), itertools.chain(*threads.map(grade, sessions, shares)), strict=True))
    return [verdicts[index] for index in range(len(submissions))]
