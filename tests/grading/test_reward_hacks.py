"""Submissions that want to be paid for nothing, all of them at once, on sandboxes that they share with honest ones."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from reward_hacks import HACKS, TASKS, Hack, submission

from coding_gym.config import SandboxConfig
from coding_gym.providers import Sandbox, start_sandbox
from coding_gym_server.grading.messages import CaseOutcome, Graded, VerdictOutcome

_CONNECTIONS = 4
_ANSWER_WITHIN = 60.0


@pytest.fixture(scope="module")
def grading_sandbox(provider: str) -> Iterator[Sandbox]:
    config = SandboxConfig(provider=provider, preload=(), sessions=8, idle_timeout=3600)
    with contextlib.closing(start_sandbox(config)) as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def verdicts(grading_sandbox: Sandbox) -> dict[tuple[str, str, str], Graded]:
    """What each hack earns in each task that it attacks."""
    local = threading.local()
    with contextlib.ExitStack() as stack:

        def grade(hack: Hack, task: str) -> tuple[tuple[str, str, str], Graded]:
            if not hasattr(local, "session"):
                local.session = stack.enter_context(contextlib.closing(grading_sandbox.connect()))
            return (hack.kind, hack.name, task), local.session.grade(submission(task, hack.code), timeout=_ANSWER_WITHIN)

        with ThreadPoolExecutor(_CONNECTIONS) as threads:
            pairs = [(hack, task) for hack in HACKS for task in hack.tasks]
            return dict(threads.map(grade, *zip(*pairs, strict=True)))


def test_there_are_many() -> None:
    names = Counter((hack.kind, hack.name) for hack in HACKS)
    assert not [name for name, count in names.items() if count > 1]
    assert len(names) >= 60
    assert len({kind for kind, _ in names}) >= 25
    assert set(itertools.chain.from_iterable(hack.tasks for hack in HACKS)) == set(TASKS)


def test_none_earns_anything(verdicts: dict[tuple[str, str, str], Graded]) -> None:
    earned = {
        attack: [case.name for case in graded.cases if case.outcome is CaseOutcome.PASSED]
        for attack, graded in verdicts.items()
    }
    assert not {attack: cases for attack, cases in earned.items() if cases}
    assert not [attack for attack, graded in verdicts.items() if graded.outcome is VerdictOutcome.PASSED]


def test_none_is_taken_for_a_fault_of_ours(verdicts: dict[tuple[str, str, str], Graded]) -> None:
    faults = {attack: graded.message for attack, graded in verdicts.items() if graded.outcome is VerdictOutcome.INFRASTRUCTURE}
    assert not faults


def test_none_ends_what_judges(verdicts: dict[tuple[str, str, str], Graded]) -> None:
    assert not [attack for attack, graded in verdicts.items() if "process of the sandbox" in graded.message]


@pytest.mark.parametrize("task", TASKS)
def test_honest_ones_pass_afterwards(task: str, verdicts: object, grading_sandbox: Sandbox) -> None:
    with contextlib.closing(grading_sandbox.connect()) as session:
        # As many as there can be booths.
        for _ in range(_CONNECTIONS):
            graded = session.grade(submission(task), timeout=_ANSWER_WITHIN)
            assert graded.outcome is VerdictOutcome.PASSED, [
                case for case in graded.cases if case.outcome is not CaseOutcome.PASSED
            ]
