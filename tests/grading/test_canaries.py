"""Canaries: how tests are split and mutated, and which mutations stay."""

from __future__ import annotations

import ast
import asyncio
import random
import textwrap
import types

import pytest

from coding_gym_server.protocol.grading import (
    Asserts,
    CaseOutcome,
    GradingLimits,
    GradingMode,
    Submission,
    UnitTests,
    VerdictOutcome,
)
from coding_gym_server.server.grading.faithful.canary_pool import Canary, CanaryPool, GuardedTest
from coding_gym_server.server.grading.faithful.literals import aliases, entry_names, find_literals
from coding_gym_server.server.grading.faithful.mutations import STRONG, Kind, mutations
from coding_gym_server.server.grading.faithful.pool_cache import PoolCache
from coding_gym_server.server.grading.faithful.runs import ProcessRun, RunOne
from coding_gym_server.server.grading.faithful.splitting import SingleTest, names_in_source, parse, split, split_asserts
from coding_gym_server.server.grading.faithful.validation import Validation
from coding_gym_server.server.grading.faithful.verdict import grade
from coding_gym_server.submission import faithful_frameworks
from coding_gym_server.submission.faithful_messages import CollectedTest, Framework, RunOutcome

_NAMES = frozenset({"f"})


def _split(source: str) -> list[SingleTest]:
    tree, framework = parse(UnitTests(source=textwrap.dedent(source)))
    names = names_in_source(tree)
    return [split(tree, framework, names, number, alone=True) for number in range(len(names))]


def _split_asserts(setup: str, *cases: str) -> list[SingleTest]:
    tests = Asserts(setup=setup, cases=cases)
    return [split_asserts(tests, number, alone=True) for number in range(len(cases))]


def _mutated(test: SingleTest, kind: Kind) -> list[str]:
    found = mutations([test], _NAMES, random.Random(1))[0]
    return [mutation.source(test.tree) for mutation in found if mutation.kind is kind]


_CLASS = """
    '''About adding.'''
    import unittest

    def double(x):
        '''Doubles.'''
        return 2 * x

    class Tests(unittest.TestCase):
        '''All.'''

        def setUp(self):
            self.x = 3

        def check(self, given, expected):
            self.assertEqual(f(given), expected, "f is wrong")
            assert f(1) == 11, "one"

        def test_first(self):
            '''First.'''
            self.check(2, 12)

        def test_second(self):
            # Second.
            self.assertEqual(f(self.x), 13, msg="three")

    if __name__ == "__main__":
        unittest.main()
"""


def test_each_module_has_one_test() -> None:
    first, second = _split(_CLASS)
    assert (first.name, second.name) == ("Tests.test_first", "Tests.test_second")
    assert "test_second" not in first.source
    assert "test_first" not in second.source
    for test in (first, second):
        assert "def setUp" in test.source
        assert "def double" in test.source
        assert "__main__" not in test.source


@pytest.mark.parametrize(
    "case", ["assert f([1, 2, 5]) == True", "assert f('abc', 3) is None", "assert not f([4, 7])", "assert f(7) == 1"]
)
def test_inputs_stay_where_results_are_common(case: str) -> None:
    (test,) = _split_asserts("", case)
    assert _mutated(test, Kind.VALUE)
    assert not _mutated(test, Kind.INPUT)


def test_documentation_and_messages_are_removed() -> None:
    first, second = _split(_CLASS)
    for text in ("About", "Doubles", "All.", "First", "Second", "f is wrong", "'one'", "three"):
        assert text not in first.source + second.source


def test_own_assertions_keep_their_arguments() -> None:
    (test,) = _split("""
        import unittest
        class Tests(unittest.TestCase):
            def assertNear(self, a, b, c, d): pass
            def test(self): self.assertNear(1, 2, 3, 4)
    """)
    assert "self.assertNear(1, 2, 3, 4)" in test.source


def test_tests_that_others_use_stay() -> None:
    first, second = _split("""
        import unittest
        class Base(unittest.TestCase):
            def test_shared(self): self.assertEqual(f(1), 2)
        class Tests(Base):
            def test_more(self): self.test_shared()
    """)
    assert "self.assertEqual(f(1), 2)" in first.source
    assert "self.assertEqual(f(1), 2)" in second.source


@pytest.mark.parametrize(
    ("source", "framework"),
    [
        ("import unittest\nclass T(unittest.TestCase): pass", Framework.UNITTEST),
        ("def test(): assert f(1) == 2", Framework.FUNCTIONS),
        ("def test(tmp_path): assert f(1) == 2", Framework.PYTEST),
        ("import pytest\ndef test(): assert f(1) == 2", Framework.PYTEST),
        ("class TestF:\n    def test(self): assert f(1) == 2", Framework.PYTEST),
    ],
)
def test_framework_depends_on_the_module(source: str, framework: Framework) -> None:
    assert parse(UnitTests(source=source))[1] is framework


def test_cases_include_the_setup() -> None:
    first, second = _split_asserts("x = 1", "assert f(x) == 2, 'two'", "assert f(2) == 3")
    assert (first.name, first.source) == ("0", "x = 1\nassert f(x) == 2")
    assert (second.name, second.source) == ("1", "x = 1\nassert f(2) == 3")


def test_literals_of_helpers_are_mutated() -> None:
    first, _ = _split(_CLASS)
    helper = [source for source in _mutated(first, Kind.VALUE) if "f(1) == 11" not in source]
    assert helper
    assert all("self.check(2, 12)" in source for source in helper)


def test_literals_are_expected_values_or_inputs() -> None:
    (test,) = _split("""
        import pytest

        @pytest.mark.parametrize("given,expected", [(1, 101), (2, 102)])
        def test(given, expected):
            other = 3
            for x, y in [(4, 104)]:
                assert f(x) == y
            wanted = {"a": 105}
            assert f(given) == expected
            assert f(other, key=5)["key"] == wanted
            assert round(f(6), 1) == pytest.approx(106, rel=0.5)
    """)
    found = find_literals(test, _NAMES)
    constants = [node.value for node in found.expected if isinstance(node, ast.Constant)]
    assert set(constants) == {1, 101, 102, 104, "a", 105, 106}
    assert {node.value for node in found.inputs} == {1, 2, 3, 4, 5, 6}


@pytest.mark.parametrize(
    ("kind", "before", "after"),
    [
        (Kind.VALUE, "assert f(1) is True", "assert f(1) is False"),
        (Kind.VALUE, "assert f(1) == []", "assert f(1) == [{}]"),
        (Kind.VALUE, "assert f(1)", "assert not f(1)"),
        (Kind.VALUE, "assert not f(1)", "assert f(1)"),
        (Kind.NEGATE, "assert f(1) > 2", "assert not f(1) > 2"),
    ],
)
def test_mutation_changes_the_assertion(kind: Kind, before: str, after: str) -> None:
    (test,) = _split_asserts("", before)
    assert set(_mutated(test, kind)) <= {after.format(number) for number in range(3)}
    assert _mutated(test, kind)
    assert ast.unparse(test.tree) == test.source == before


def test_strong_mutations_come_first() -> None:
    (test,) = _split("""
        import unittest
        class Tests(unittest.TestCase):
            def test(self):
                self.assertIsInstance(f(1), int)
                self.assertEqual(f(2), 3)
                self.assertEqual(f(4), 5)
                with self.assertRaises(ValueError): f(-1)
    """)
    kinds = [mutation.kind for mutation in mutations([test], _NAMES, random.Random(1))[0]]
    strong = [kind in STRONG for kind in kinds]
    assert strong == sorted(strong, reverse=True)
    assert set(kinds) == set(Kind)


def test_aliases_are_names_of_the_submission() -> None:
    tree = ast.parse("from solution import f as g\ncandidate = f\nother = 3")
    assert aliases(tree, _NAMES) == {"f", "g", "candidate"}


def test_names_of_the_submission_include_methods() -> None:
    reference = ast.parse("class Stack:\n    def __init__(self): pass\n    def push(self, x): pass")
    assert entry_names(reference, "Stack") == {"Stack", "push"}


async def _run(code: str, test: GuardedTest, source: str, limits: GradingLimits) -> ProcessRun:
    """Run a test in this process, which is enough for code that is not hostile."""
    module = types.ModuleType("solution")
    outcome = RunOutcome.PASSED
    try:
        exec(code, vars(module))
        exec(source, vars(module))
        if test.id is not None:
            outcome = faithful_frameworks.run(module, test.framework, test.id, test.earlier)
    except AssertionError:
        outcome = RunOutcome.FAILED
    except Exception:
        outcome = RunOutcome.ERROR
    return ProcessRun(CaseOutcome(outcome.value), is_loaded=True)


def _pool(reference: str, tests: Asserts | UnitTests, run: RunOne = _run) -> CanaryPool:
    async def collect(source: str, framework: Framework) -> list[CollectedTest]:
        return names_in_source(ast.parse(source))

    submission = Submission(code="", tests=tests, entry_point="f", mode=GradingMode.FAITHFUL, reference=reference)
    return asyncio.run(Validation(submission, run=run, collect=collect).pool())


def test_canaries_are_what_the_reference_fails() -> None:
    # Most changes of these tests change nothing: the reference passes them.
    cases = ("assert f(1) < 1_000_000", "assert 0 <= f(2) <= 10", "assert f(3) == 3")
    reference = "def f(x): return x"
    pool = _pool(reference, Asserts(cases=cases))
    canaries = [(test, canary) for test in pool.tests for canary in test.canaries]
    assert canaries
    for test, canary in canaries:
        assert asyncio.run(_run(reference, test, canary.source, GradingLimits())).outcome is CaseOutcome.FAILED
        assert canary.source not in cases


@pytest.mark.parametrize(
    "tests",
    [
        Asserts(cases=("x = f(1)", "assert x == 1", "assert x == f(1)")),
        UnitTests(source="seen = []\ndef test_a(): seen.append(f(1))\ndef test_b(): assert seen == [1]"),
        UnitTests(
            source="""
import unittest
class Tests(unittest.TestCase):
    def setUp(self): pass
    def test_a(self): type(self).seen = f(1)
    def test_b(self): self.assertEqual(self.seen, 1)
    def test_c(self): self.assertEqual(f(2), 2)
"""
        ),
    ],
)
def test_tests_that_share_state_run_after_earlier_ones(tests: Asserts | UnitTests) -> None:
    pool = _pool("def f(x): return x", tests)
    for test in pool.tests:
        assert asyncio.run(_run("def f(x): return x", test, test.source, GradingLimits())).outcome is CaseOutcome.PASSED
    assert pool.tests[1].canaries


def test_mutation_that_fails_once_is_no_canary() -> None:
    fails: dict[str, list[bool]] = {}

    async def run(code: str, test: GuardedTest, source: str, limits: GradingLimits) -> ProcessRun:
        # The reference passes every mutation at the second attempt.
        if source == test.source or len(fails.setdefault(source, [])) == 1:
            return ProcessRun(CaseOutcome.PASSED, is_loaded=True)
        fails[source].append(True)
        return ProcessRun(CaseOutcome.FAILED, is_loaded=True)

    pool = _pool("def f(x): return x", Asserts(cases=("assert f(1) == 1",)), run)
    assert fails
    assert not any(test.canaries for test in pool.tests)


def test_tests_that_the_reference_fails_have_no_canaries() -> None:
    pool = _pool("def f(x): return x", Asserts(cases=("assert f(1) == 1", "assert f(2) == 3")))
    assert [bool(test.canaries) for test in pool.tests] == [True, False]
    assert pool.is_weak


@pytest.mark.parametrize("count", [1, 2, 4, 12])
def test_draw_has_all_tests_and_canaries_of_each(count: int) -> None:
    cases = tuple(f"assert f({number}) == [{number}, {number + 1}]" for number in range(count))
    pool = _pool("def f(x): return [x, x + 1]", Asserts(cases=cases))
    drawn = pool.draw(random.Random(1))
    assert sorted(draw.number for draw in drawn if not draw.is_canary) == list(range(count))
    canaries = [draw for draw in drawn if draw.is_canary]
    assert len(canaries) >= max(5 if count == 1 else 8, 2 * count)
    strong = {canary.source for test in pool.tests for canary in test.canaries if canary.is_strong}
    for number in range(count):
        mine = [draw.source for draw in canaries if draw.number == number]
        assert len(mine) >= 2
        assert set(mine) & strong
    assert not pool.is_weak


def test_draws_differ() -> None:
    pool = _pool("def f(x): return x", Asserts(cases=("assert f(1) == 1", "assert f(2) == 2")))
    draws = {tuple(draw.source for draw in pool.draw(random.Random(seed))) for seed in range(20)}
    assert len(draws) > 15


def test_pool_without_strong_canaries_is_weak() -> None:
    test = GuardedTest(None, "0", Framework.STATEMENTS, "assert f()")
    test.canaries = [Canary(f"assert not f({number})", is_strong=False) for number in range(9)]
    assert CanaryPool([test]).is_weak
    test.canaries = [Canary(f"assert f({number})", is_strong=True) for number in range(4)]
    assert not CanaryPool([test]).is_weak


@pytest.mark.parametrize(("passes_at", "outcome"), [(5, VerdictOutcome.PASSED), (None, VerdictOutcome.FORGED)])
def test_canary_that_reference_passes_convicts_nothing(passes_at: int | None, outcome: VerdictOutcome) -> None:
    test = GuardedTest(None, "0", Framework.STATEMENTS, "assert f()")
    canary = Canary("assert not f()", is_strong=True)
    test.canaries = [canary]
    pool = CanaryPool([test])
    attempts: list[str] = []

    async def run(code: str, test: GuardedTest, source: str, limits: GradingLimits) -> ProcessRun:
        if code == "reference":
            attempts.append(source)
        passes = code == "submission" or len(attempts) == passes_at
        return ProcessRun(CaseOutcome.PASSED if passes else CaseOutcome.FAILED, is_loaded=True)

    submission = Submission(
        code="submission", tests=Asserts(cases=("assert f()",)), mode=GradingMode.FAITHFUL, reference="reference"
    )
    assert asyncio.run(grade(submission, pool, run)).outcome is outcome
    assert set(attempts) == {canary.source}
    assert test.canaries == ([] if passes_at else [canary])
    tried = len(attempts)
    assert asyncio.run(grade(submission, pool, run)).outcome is outcome
    assert len(attempts) == tried


def test_concurrent_requests_share_one_pool() -> None:
    submission = Submission(code="", tests=Asserts(cases=("f()",)), mode=GradingMode.FAITHFUL, reference="def f(): pass")
    built = []

    async def build() -> CanaryPool:
        built.append(1)
        await asyncio.sleep(0.01)
        if len(built) == 1:
            raise OSError
        return CanaryPool(())

    async def request() -> list[object]:
        cache = PoolCache()
        return await asyncio.gather(*(cache.get(submission, build) for _ in range(4)), return_exceptions=True)

    found = asyncio.run(request())
    # The first one failed, the second one has built it for all others.
    assert isinstance(found[0], OSError)
    assert len({id(pool) for pool in found[1:]}) == 1
    assert len(built) == 2
