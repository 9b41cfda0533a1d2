"""Exceptions of submissions that end more than a test: failures of one test, whose cleanup runs and whose patches end."""

from __future__ import annotations

import pytest

from coding_gym_server.protocol.grading import CaseOutcome
from tests.grading.judging import Judge

KINDS = ("KeyboardInterrupt", "SystemExit", "GeneratorExit", "Own")

ANSWER = """
class Own(KeyboardInterrupt):
    pass

def answer(fails):
    if fails:
        raise {kind}
    return 1
"""

METHODS = """
import contextlib, unittest
from unittest.mock import patch

log = []

class Test(unittest.TestCase):
    def setUp(self):
        log.append("set up")
        self.addCleanup(log.append, "cleaned up")
        {set_up}

    def tearDown(self):
        log.append("torn down")
        {tear_down}

    @patch("math.pi", 3)
    def test_1(self):
        started = patch("math.e", 2)
        started.start()
        self.addCleanup(started.stop)
        {body}

    def test_2(self):
        import math
        self.assertEqual((math.pi > 3, math.e > 2), (True, True))
        self.assertEqual(log[: log.index("cleaned up") + 1], {log})
        self.assertEqual(answer(False), 1)
"""

PARTS = {
    "test": {"body": "answer(True)"},
    "subtest": {"body": "with self.subTest(): answer(True)"},
    "context": {"body": "with contextlib.suppress(ValueError): answer(True)"},
    "generator": {"body": "list(answer(True) for _ in range(3))"},
    "handler": {"body": "try: answer(True)\n        except Exception: pass"},
    "setup": {"set_up": "answer(self.id().endswith('1'))", "log": ["set up", "cleaned up"]},
    "teardown": {"tear_down": "answer(self.id().endswith('1'))"},
    "cleanup": {"body": "self.addCleanup(answer, True)"},
    "callback": {"body": "self.assertEqual(sorted([2, 1], key=lambda _: answer(True)), [1, 2])"},
}
"""Where ``answer`` fails in the first of two tests."""

EMPTY = {"set_up": "pass", "tear_down": "pass", "body": "pass", "log": ["set up", "torn down", "cleaned up"]}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("part", PARTS)
def test_test_method_fails_and_is_cleaned_up(judge: Judge, part: str, kind: str) -> None:
    graded = judge.unit_tests(ANSWER.format(kind=kind), METHODS.format(**EMPTY | PARTS[part]))
    assert [case.outcome for case in graded.cases] == [CaseOutcome.ERROR, CaseOutcome.PASSED], graded.cases
    assert kind in graded.cases[0].message


@pytest.mark.parametrize("kind", KINDS)
def test_coroutine_fails_and_is_cleaned_up(judge: Judge, kind: str) -> None:
    tests = """
import unittest
log = []
class Test(unittest.IsolatedAsyncioTestCase):
    async def asyncTearDown(self): log.append("torn down")
    async def test_1(self): answer(True)
    async def test_2(self): self.assertEqual((log, answer(False)), (["torn down"], 1))
"""
    graded = judge.unit_tests(ANSWER.format(kind=kind), tests)
    assert [case.outcome for case in graded.cases] == [CaseOutcome.ERROR, CaseOutcome.PASSED], graded.cases


@pytest.mark.parametrize("kind", KINDS)
def test_function_fails_and_its_patches_end(judge: Judge, kind: str) -> None:
    tests = """
import asyncio, math
from unittest.mock import patch
@patch("math.pi", 3)
def test_1(): answer(True)
async def test_2(): answer(True)
def test_3(): assert (math.pi > 3, answer(False)) == (True, 1)
"""
    graded = judge.unit_tests(ANSWER.format(kind=kind), tests)
    assert [case.outcome for case in graded.cases] == [CaseOutcome.ERROR, CaseOutcome.ERROR, CaseOutcome.PASSED], graded.cases


@pytest.mark.parametrize("kind", KINDS)
def test_assert_fails_and_its_patches_end(judge: Judge, kind: str) -> None:
    graded = judge.asserts(
        ANSWER.format(kind=kind),
        "with patch('math.pi', 3):\n    answer(True)",
        "assert answer(True) == 1",
        "assert (math.pi > 3, answer(False)) == (True, 1)",
        setup="import math\nfrom unittest.mock import patch",
    )
    assert [case.outcome for case in graded.cases] == [CaseOutcome.ERROR, CaseOutcome.ERROR, CaseOutcome.PASSED], graded.cases


@pytest.mark.parametrize("kind", KINDS[:3])
def test_tests_may_expect_it(judge: Judge, kind: str) -> None:
    tests = f"""
import pytest, unittest
class Test(unittest.TestCase):
    def test_1(self):
        with self.assertRaises({kind}): answer(True)
        self.assertRaises(BaseException, answer, True)
def test_2():
    with pytest.raises({kind}): answer(True)
"""
    graded = judge.unit_tests(ANSWER.format(kind=kind), tests)
    assert [case.outcome for case in graded.cases] == [CaseOutcome.PASSED] * 2, graded.cases


def test_interrupt_is_no_expected_failure(judge: Judge) -> None:
    tests = """
import unittest
class Test(unittest.TestCase):
    @unittest.expectedFailure
    def test_1(self): answer(True)
"""
    graded = judge.unit_tests(ANSWER.format(kind="KeyboardInterrupt"), tests)
    assert [case.outcome for case in graded.cases] == [CaseOutcome.ERROR], graded.cases
