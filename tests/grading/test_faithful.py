"""Grading in the process of the tests: the verdicts of test frameworks, limits, and what does not reach the agent."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from coding_gym.client.session import Session
from coding_gym.sandbox import Sandbox
from coding_gym_server.protocol.grading import (
    Asserts,
    CaseOutcome,
    Graded,
    GradingLimits,
    GradingMode,
    Submission,
    UnitTests,
    VerdictOutcome,
)
from tests.grading.faithful_modules import MODULES, FaithfulModule
from tests.grading.judging import Judge

_LIMITS = GradingLimits(cpu_timeout=10.0, wall_timeout=60.0)


@pytest.fixture(scope="module")
def faithful(judge: Judge) -> Callable[..., Graded]:
    def grade(code: str, tests: Asserts | UnitTests | str, reference: str, **options: Any) -> Graded:
        source = UnitTests(source=tests) if isinstance(tests, str) else tests
        options.setdefault("limits", _LIMITS)
        submission = Submission(code=code, tests=source, mode=GradingMode.FAITHFUL, reference=reference, **options)
        return judge.session.grade(submission, timeout=120.0)

    return grade


Faithful = Callable[..., Graded]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.name)
def test_verdict_is_that_of_the_framework(faithful: Faithful, module: FaithfulModule) -> None:
    right = faithful(module.right, module.tests, module.right)
    assert right.outcome is VerdictOutcome.PASSED, right
    assert right.mode is GradingMode.FAITHFUL
    wrong = faithful(module.wrong, module.tests, module.right)
    assert wrong.outcome is VerdictOutcome.FAILED, wrong


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.name)
def test_framework_alone_agrees(tmp_path: Path, module: FaithfulModule) -> None:
    """The framework must pass and fail the submissions of the other test."""
    runs = []
    for name, code in (("right", module.right), ("wrong", module.wrong)):
        directory = tmp_path / name
        directory.mkdir()
        (directory / "solution.py").write_text(f"{code}\n{module.tests}")
        is_unittest = "TestCase" in module.tests
        command = (
            ["-m", "unittest", "solution"] if is_unittest else ["-m", "pytest", "-q", "-p", "no:cacheprovider", "solution.py"]
        )
        # Options of this run are not for another.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        environment["PYTHONDONTWRITEBYTECODE"] = "1"
        runs.append(
            subprocess.Popen(
                [sys.executable, *command],
                cwd=directory,
                env=environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        )
    exit_codes = [run.wait(timeout=60) for run in runs]
    assert exit_codes[0] == 0
    assert exit_codes[1] != 0


_ADD = "def add(a, b): return a + b"
_ADD_TESTS = Asserts(cases=("assert add(1, 2) == 3", "assert add('a', 'b') == 'ab'", "assert add([1], []) == [1]"))


def test_cases_share_the_namespace_of_the_submission(faithful: Faithful) -> None:
    tests = Asserts(setup="from solution import add as plus\nHELPER = 1", cases=("assert plus(HELPER, 2) == add(2, 1) == 3",))
    graded = faithful(_ADD, tests, _ADD, entry_point="add")
    assert graded.outcome is VerdictOutcome.PASSED
    assert [case.name for case in graded.cases] == ["0"]


@pytest.mark.parametrize(
    ("code", "outcome", "cases"),
    [
        ("def add(a, b): return a + b if a != 1 else 4", "failed", ["failed", "passed", "passed"]),
        ("def add(a, b): return a - b", "failed", ["failed", "error", "error"]),
        ("def add(a, b):", "error", ["not_run"] * 3),
        ("def sub(a, b): pass", "error", ["not_run"] * 3),
        ("import os\ndef add(a, b): os._exit(0)", "killed", ["killed"] * 3),
        ("def add(a, b): raise SystemExit(0)", "failed", ["error"] * 3),
        ("import unittest\ndef add(a, b): raise unittest.SkipTest", "failed", ["failed"] * 3),
    ],
)
def test_outcomes_of_wrong_submissions(faithful: Faithful, code: str, outcome: str, cases: list[str]) -> None:
    graded = faithful(code, _ADD_TESTS, _ADD, entry_point="add")
    assert graded.outcome.value == outcome, graded
    assert [case.outcome.value for case in graded.cases] == cases


def test_reason_of_an_error_is_said(faithful: Faithful) -> None:
    assert "SyntaxError" in faithful("def add(a, b:", _ADD_TESTS, _ADD, entry_point="add").message
    assert "does not define 'add'" in faithful("", _ADD_TESTS, _ADD, entry_point="add").message


def test_result_contains_nothing_of_the_tests(faithful: Faithful) -> None:
    code = """
import gc, sys
tests = [item for item in gc.get_objects() if type(item).__name__ == "Asserts"]
def add(a, b):
    print(open("/proc/self/cmdline").read(), sys._getframe(1).f_code.co_consts, file=sys.stderr, flush=True)
    raise AssertionError(sys._getframe(1).f_code.co_consts)
"""
    tests = Asserts(cases=("assert add(17, 25) == 42",))
    for ending in ("", "raise ValueError(tests)", "del add"):
        graded = faithful(code + ending, tests, _ADD, entry_point="add")
        assert graded.outcome in {VerdictOutcome.FAILED, VerdictOutcome.ERROR}
        assert "17" not in repr(graded.cases) + graded.message + graded.stdout + graded.stderr


def test_endless_submission_times_out(faithful: Faithful) -> None:
    limits = GradingLimits(cpu_timeout=0.2, wall_timeout=20.0)
    graded = faithful("def add(a, b):\n    while True: pass", _ADD_TESTS, _ADD, limits=limits)
    assert graded.outcome is VerdictOutcome.TIMEOUT
    assert {case.outcome for case in graded.cases} == {CaseOutcome.TIMEOUT}


def test_submission_that_answers_rightly_must_pass_the_tests(faithful: Faithful) -> None:
    """It knows which of two runs it is in by the names of the tests."""
    tests = "import sys\ndef test_sum(): assert add(1, 2) == 3\ndef test_nothing(): pass"
    code = "import sys\ndef add(a, b): return 4 if sys._getframe(1).f_code.co_name == 'test_sum' else a + b"
    graded = faithful(code, tests, _ADD)
    assert graded.outcome is VerdictOutcome.FAILED
    assert {case.name: case.outcome.value for case in graded.cases} == {"test_sum": "failed", "test_nothing": "passed"}


def test_files_of_the_task_are_new_for_each_run(faithful: Faithful) -> None:
    code = "import os\ndef take():\n    text = open('given').read()\n    os.remove('given')\n    return text"
    graded = faithful(code, Asserts(cases=("assert take() == 'content'",)), code, files={"given": "content"})
    assert graded.outcome is VerdictOutcome.PASSED


def test_tests_without_questions_are_weak(faithful: Faithful) -> None:
    tests = Asserts(cases=("x = make()\nassert x is x",))
    graded = faithful("def make(): return object()", tests, "def make(): return object()")
    assert graded.outcome is VerdictOutcome.PASSED
    assert graded.is_weak


@pytest.mark.parametrize(
    "source",
    [
        "import unittest\nclass T(unittest.TestCase):\n    @unittest.expectedFailure\n    def test(self): self.assertEqual(add(1, 2), 4)",
        "import pytest\n@pytest.mark.xfail(strict=True)\ndef test(): assert add(1, 2) == 4",
    ],
    ids=["unittest", "pytest"],
)
def test_expected_failures_pass(faithful: Faithful, source: str) -> None:
    assert faithful(_ADD, source, _ADD).outcome is VerdictOutcome.PASSED
    assert faithful("def add(a, b): return 4", source, _ADD).outcome is VerdictOutcome.FAILED


def test_module_that_is_not_python_fails(faithful: Faithful) -> None:
    graded = faithful(_ADD, "def test(:", _ADD)
    assert graded.outcome is VerdictOutcome.FAILED
    assert graded.is_weak


def test_tests_that_the_reference_fails_have_no_questions(faithful: Faithful) -> None:
    reference = "def add(a, b): return 0 if a == 'a' else a + b"
    assert faithful(_ADD, _ADD_TESTS, reference).outcome is VerdictOutcome.PASSED
    graded = faithful(reference, _ADD_TESTS, reference)
    assert [case.outcome.value for case in graded.cases] == ["passed", "failed", "passed"]


def test_concurrent_gradings_do_not_disturb_each_other(local_sandbox: Sandbox) -> None:
    submissions = [(module, code) for module in MODULES[:4] for code in (module.right, module.wrong)] * 2
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(4) as threads:
        free: SimpleQueue[Session] = SimpleQueue()
        for _ in range(4):
            free.put(stack.enter_context(contextlib.closing(local_sandbox.connect())))

        def grade(item: tuple[FaithfulModule, str]) -> VerdictOutcome:
            module, code = item
            tests = UnitTests(source=module.tests)
            submission = Submission(code=code, tests=tests, mode=GradingMode.FAITHFUL, reference=module.right, limits=_LIMITS)
            session = free.get()
            try:
                return session.grade(submission, timeout=300.0).outcome
            finally:
                free.put(session)

        found = list(threads.map(grade, submissions))
    assert found == [VerdictOutcome.PASSED, VerdictOutcome.FAILED] * 8
