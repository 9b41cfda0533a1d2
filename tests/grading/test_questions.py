"""Questions: what assertions become, which values they ask about, and who answers them rightly."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import pickle
import random
import sys
import types
from collections import Counter, defaultdict
from collections.abc import Iterator
from textwrap import dedent
from typing import Any

import pytest

from coding_gym_server.ipc.plain_messages import PlainReport
from coding_gym_server.ipc.question_messages import QuestionReport
from coding_gym_server.protocol.grading import Asserts, CaseOutcome, GradingMode, Submission, UnitTests
from coding_gym_server.server.grading.faithful.drawing import Dice
from coding_gym_server.server.grading.faithful.mutants import mutants
from coding_gym_server.server.grading.faithful.question_cache import QuestionCache
from coding_gym_server.server.grading.faithful.questions import Questions
from coding_gym_server.server.grading.faithful.rendering import AskingTests
from coding_gym_server.submission.comparing import Pickling, alike, between
from tests.grading.asking import Examiner

PASSED, FAILED, ERROR = CaseOutcome.PASSED, CaseOutcome.FAILED, CaseOutcome.ERROR


@pytest.fixture(scope="module")
def examiner() -> Iterator[Examiner]:
    with contextlib.closing(Examiner()) as examiner:
        yield examiner


def _source(questions: Questions) -> str:
    tests = questions.tests
    assert tests is not None
    return tests.source if isinstance(tests, UnitTests) else "\n".join([tests.setup, *tests.cases])


_DOUBLE = "def f(x): return [x, x + 1, 2 * x]"
_KINDS = [
    # An assertion, a reference, an alternative that is right, and a program that is wrong.
    ("assert f(3) == [3, 4, 6]", _DOUBLE, "f = lambda x: list((x, x + 1, x + x))", "def f(x): return [x, x + 1, x]"),
    ("assert [3, 4, 6] == f(3)", _DOUBLE, "f = lambda x: [x, x + 1, x + x]", "def f(x): return [x, x + 1, x]"),
    ("expected = [3, 4, 6]\nassert f(3) == expected", _DOUBLE, "f = lambda x: [3, 4, 6]", "f = lambda x: expected"),
    ("assert f(3)[2] == 6, 'not doubled'", _DOUBLE, "f = lambda x: (0, 0, 6)", "f = lambda x: (3, 4, 5)"),
    ("assert f(7) is True", "def f(x): return x > 3 and x % 2 == 1", "f = lambda x: x == 7", "f = lambda x: False"),
    ("assert f(7)", "def f(x): return x > 3 and x % 2 == 1", "f = lambda x: 'yes'", "f = lambda x: ''"),
    ("assert not f(2)", "def f(x): return x > 3 or x % 2 == 1", "f = lambda x: None", "f = lambda x: 1"),
    ("assert f(2) is None", "def f(x): return x if x > 3 else None", "f = lambda x: None", "f = lambda x: 0"),
    ("assert f(2) > 8", "def f(x): return x * x * x + 1", "f = lambda x: 100", "f = lambda x: 8"),
    ("assert 3 in f(2)", "def f(x): return [x, x + 1]", "f = lambda x: {3}", "f = lambda x: [2, 4]"),
    ("assert f(2) != 4", "def f(x): return x + 1", "f = lambda x: 5", "f = lambda x: 4"),
    ("assert abs(f(2) - 0.6667) < 1e-3", "def f(x): return x / 3", "f = lambda x: 0.6661", "f = lambda x: 0.66"),
    (
        "import math\nassert math.isclose(f(2), 0.66667, rel_tol=1e-4)",
        "def f(x): return x / 3",
        "f = lambda x: .6667",
        "f = lambda x: 0.66",
    ),
    ("assert isinstance(f(2), list)", "def f(x): return sorted([x])", "f = lambda x: []", "f = lambda x: (2,)"),
    ("assert f(2) == 4 and f(3) == 9", "def f(x): return x * x", "f = lambda x: x ** 2", "f = lambda x: 4"),
    (
        "import numpy as np\nnp.testing.assert_allclose(f(2), [2.0, 0.5])",
        "import numpy as np\ndef f(x): return np.array([x, 1 / x])",
        "f = lambda x: [2, 1 / 2]",
        "f = lambda x: [2.0, 0.6]",
    ),
    (
        "import numpy as np\nassert (f(2) == np.array([2, 5])).all()",
        "import numpy as np\ndef f(x): return np.array([x, x * x + 1])",
        "import numpy as np\nf = lambda x: np.array([2, 5])",
        "import numpy as np\nf = lambda x: np.array([2, 4])",
    ),
    (
        "import numpy as np\nassert np.array_equal(f(2), np.array([2, 5]))",
        "import numpy as np\ndef f(x): return np.array([x, x * x + 1])",
        "f = lambda x: [2, 5]",
        "f = lambda x: [2, 4]",
    ),
]


@pytest.mark.parametrize(("statement", "reference", "right", "wrong"), _KINDS, ids=[kind[0] for kind in _KINDS])
def test_assertion_becomes_a_question(examiner: Examiner, statement: str, reference: str, right: str, wrong: str) -> None:
    *setup, case = statement.split("\n")
    questions = examiner.questions(Asserts(setup="\n".join(setup), cases=(case,)), reference)
    assert len(questions) == case.count(" and ") + 1, _source(questions)
    assert "assert " not in _source(questions)
    assert examiner.passes(questions, reference)
    assert examiner.passes(questions, right)
    assert not examiner.passes(questions, wrong)
    # Whatever is claimed blindly.
    for claim in (True, False):
        claimed = [(turn, [claim] * len(right)) for turn, right in questions.answers.items()]
        outcomes = questions.judge(
            QuestionReport(PlainReport(outcomes=dict.fromkeys(questions.names, PASSED)), answers=claimed)
        )
        assert set(outcomes.values()) == {FAILED}


_METHODS = [
    ("self.assertEqual(f(3), 9)", "x * x", "x + 6", "x + 7", ""),
    ("self.assertEqual(9, f(3), 'nine')", "x * x", "x + 6", "x + 7", ""),
    ("self.assertListEqual(f(3), [9])", "[x * x]", "[x + 6]", "[x + 7]", ""),
    ("self.assertCountEqual(f(3), [9, 3])", "[x * x, x]", "[3, 9]", "[3, 3]", ""),
    ("self.assertAlmostEqual(f(3), 0.3333, places=3)", "1 / x", "0.3331", "0.34", ""),
    ("self.assertTrue(f(3))", "x > 2", "[x]", "[]", ""),
    ("self.assertFalse(f(3))", "x < 3", "''", "x", ""),
    ("self.assertTrue(f(3) == 9)", "x * x", "9", "8", ""),
    ("self.assertIsNone(f(3))", "None if x < 4 else x", "None", "0", ""),
    ("self.assertIn(3, f(3))", "[x, x * x]", "(3,)", "()", ""),
    ("self.assertNotIn(4, f(3))", "[x, x * x]", "()", "(4,)", ""),
    ("self.assertGreater(f(3), 8)", "x * x", "10", "8", ""),
    ("self.assertLessEqual(f(3), 9)", "x * x", "9", "10", ""),
    ("self.assertIsInstance(f(3), int)", "x + x", "0", "1.5", ""),
    ("with self.assertRaises(ZeroDivisionError): f(0)", "1 / x", "1 // x", "x", ""),
    ("self.assertRaises(ZeroDivisionError, f, 0)", "1 / x", "1 // x", "int('x')", ""),
    ("with pytest.raises(ZeroDivisionError, match='zero'): f(0)", "1 / x", "1 // x", "x", "import pytest"),
    (
        "pd.testing.assert_series_equal(f(3), pd.Series([3, 4]))",
        "pd.Series([x, x + 1])",
        "pd.Series([3, 4])",
        "pd.Series([4, 3])",
        "import pandas as pd",
    ),
]


@pytest.mark.parametrize(("statement", "reference", "right", "wrong", "imports"), _METHODS, ids=[kind[0] for kind in _METHODS])
def test_method_becomes_a_question(
    examiner: Examiner, statement: str, reference: str, right: str, wrong: str, imports: str
) -> None:
    if imports == "import pytest":
        source = f"{imports}\ndef test():\n    {statement}"
    else:
        source = f"import unittest\n{imports}\nclass Tests(unittest.TestCase):\n    def test(self):\n        {statement}"
    codes = [f"{imports}\ndef f(x): return {text}" for text in (reference, right, wrong)]
    questions = examiner.questions(source, codes[0])
    assert len(questions) == 1, _source(questions)
    assert [examiner.passes(questions, code) for code in codes] == [True, True, False]


def test_approximation_of_pytest_is_compared_with_other_values(examiner: Examiner) -> None:
    source = "import pytest\ndef test(): assert f(2) == pytest.approx(0.6667, abs=1e-3)"
    questions = examiner.questions(source, "def f(x): return x / 3")
    assert "0.66" not in _source(questions)
    assert [examiner.passes(questions, f"def f(x): return {value}") for value in (0.6671, 0.66)] == [True, False]


def test_assertions_that_the_reference_fails_are_no_questions(examiner: Examiner) -> None:
    source = dedent("""
        import unittest
        class Tests(unittest.TestCase):
            def test_right(self): self.assertEqual(f(3), 9)
            @unittest.expectedFailure
            def test_wrong(self): self.assertEqual(f(3), 8)
            @unittest.expectedFailure
            def test_type(self): self.assertIsInstance(f(3), str)
    """)
    questions = examiner.questions(source, "def f(x): return x * x")
    assert {turn.site for turn in questions.answers} == {0}


def test_assertions_anywhere_are_questions(examiner: Examiner) -> None:
    source = dedent("""
        import unittest
        assert f(1) == 11
        class Tests(unittest.TestCase):
            assert f(2) == 12
            def setUp(self):
                assert f(3) == 13
                self.addCleanup(self.check)
            def check(self): self.assertEqual(f(4), 14)
            def test(self):
                for number in range(5, 7):
                    if number > 5:
                        assert f(number) == number + 10
                    else:
                        while True:
                            assert f(number) == 15
                            break
                def inner(): assert f(7) == 17
                inner()
                pair = f(8), 18
                self.assertEqual(*pair)
    """)
    questions = examiner.questions(source, "def f(x): return x + 10")
    assert len(questions) == 7
    assert examiner.passes(questions, "def f(x): return 10 + x")
    for number in range(1, 9):
        assert not examiner.passes(questions, f"def f(x): return x + 10 - (x == {number})")


def test_right_alternatives_are_right(examiner: Examiner) -> None:
    """The reference reads as many values as it is told; the alternative reads all: with the given inputs, both are right."""
    cases = ("assert total(3, [1, 2, 3]) == 6", "assert total(2, [4, 5]) == 9", "assert total(1, [7]) == 7")
    reference = "def total(n, xs):\n    result = 0\n    for i in range(n): result += xs[i]\n    return result"
    questions = examiner.questions(Asserts(cases=cases), reference)
    assert len(questions) == 3
    assert examiner.passes(questions, "def total(n, xs): return sum(xs)")
    assert not examiner.passes(questions, "def total(n, xs): return sum(xs[1:])")


@pytest.mark.parametrize(
    "result",
    [
        "OrderedDict([('b', 2), ('a', 1)])",
        "Counter(a=1, b=2)",
        "defaultdict(int, a=1, b=2)",
        "type('D', (dict,), {})(a=1, b=2)",
    ],
)
def test_expected_value_is_that_of_the_tests(examiner: Examiner, result: str) -> None:
    reference = "from collections import *\ndef f(x): return OrderedDict(a=x, b=2 * x)"
    questions = examiner.questions(Asserts(cases=("assert f(1) == {'a': 1, 'b': 2}",)), reference)
    assert len(questions) == 1
    assert examiner.passes(questions, f"from collections import *\ndef f(x): return {result}")


def test_options_are_what_mutants_return(examiner: Examiner) -> None:
    questions = examiner.questions(Asserts(cases=("assert f([3, 1, 2]) == [1, 2, 3]",)), "def f(x): return sorted(x)")
    (options,) = questions.options
    values = [pickle.loads(data) for data in options.values]
    assert len(values) == len({repr(value) for value in values}) <= 8
    assert all(isinstance(value, list) and all(isinstance(item, int) for item in value) for value in values)
    assert [value == [1, 2, 3] for value in values] == questions.answers[options.turn]


def test_bools_have_two_options(examiner: Examiner) -> None:
    questions = examiner.questions(Asserts(cases=("assert f(3) == True",)), "def f(x): return x > 2")
    assert sorted(pickle.loads(data) for data in questions.options[0].values) == [False, True]


def test_values_within_a_tolerance_are_no_options(examiner: Examiner) -> None:
    tests = Asserts(cases=("assert abs(f(2) - 10) <= 4",))
    questions = examiner.questions(tests, "def f(x): return 5 * x")
    values = [pickle.loads(data) for data in questions.options[0].values]
    # A right solution may return 14, which is close to 18, too.
    assert all(value == 10 or abs(value - 10) > 8 for value in values)
    for value in (6, 10, 14):
        assert examiner.passes(questions, f"def f(x): return {value}")


def test_assertion_that_mutants_pass_is_no_question(examiner: Examiner) -> None:
    questions = examiner.questions(
        Asserts(cases=("assert callable(f)", "assert 1 + 1 == 2", "assert True")), "def f(x): return x"
    )
    assert len(questions) == 0
    assert questions.is_weak
    assert examiner.passes(questions, "def f(x): return 0")


@pytest.mark.parametrize(
    "reference",
    ["import random\ndef f(x): return random.random() + x", "import time\ndef f(x): return time.perf_counter_ns() + x"],
)
def test_only_stable_values_are_asked(examiner: Examiner, reference: str) -> None:
    tests = Asserts(cases=("assert f(1) == f.__globals__['f'](1) or True", "y = f(1)\nassert f(2) != y", "assert f(1) > 0"))
    questions = examiner.questions(tests, reference)
    assert examiner.passes(questions, reference)
    assert not questions.options


def test_few_questions_are_weak(examiner: Examiner) -> None:
    cases = tuple(f"assert f({number}) == {number * number}" for number in range(3, 9))
    assert not examiner.questions(Asserts(cases=cases), "def f(x): return x * x").is_weak
    assert examiner.questions(Asserts(cases=cases[1:]), "def f(x): return x * x").is_weak


def test_repeated_questions_count_once_for_weakness(examiner: Examiner) -> None:
    always = Asserts(cases=tuple(f"assert f({number}) == True" for number in range(2, 20, 2)))
    even = "def f(x): return x % 2 == 0"
    questions = examiner.questions(always, even)
    assert len(questions) > 6
    assert questions.is_weak
    both = Asserts(cases=tuple(f"assert f({number}) == {number % 2 == 0}" for number in range(2, 11)))
    assert not examiner.questions(both, even).is_weak
    loop = Asserts(cases=("for number in range(3, 60): assert f(number) < number",))
    assert examiner.questions(loop, "def f(x): return x // 2").is_weak


def test_expected_values_are_hidden(examiner: Examiner) -> None:
    source = dedent("""
        import unittest
        TABLE = [(3, 9009), (4, 9016)]
        class Tests(unittest.TestCase):
            wanted = 9025
            def setUp(self):
                self.expected = 9036
            def check(self, given, expected):
                self.assertEqual(f(given), expected)
            def test_table(self):
                for given, expected in TABLE:
                    with self.subTest(expected=expected):
                        self.assertEqual(f(given), expected)
            def test_attributes(self):
                self.assertEqual(f(5), self.wanted)
                self.assertEqual(f(6), self.expected)
            def test_helper(self):
                self.check(7, 9049)
                self.check(8, expected=9064)
            def test_variables(self):
                nine, expected = 9, 9081
                other = expected
                self.assertEqual(f(nine), other)
            def test_9010_is_9100(self):
                '''f(10) is 9100'''
                self.assertEqual(f(10), 9100, "9100 was expected")
    """)
    reference = "def f(x): return 9000 + x * x"
    questions = examiner.questions(source, reference)
    assert len(questions) == 8
    assert "90" not in _source(questions)
    assert "91" not in _source(questions)
    assert set(examiner.outcomes(questions, "def f(x): return 9000 + x ** 2").values()) == {PASSED}
    assert examiner.outcomes(questions, "def f(x): return 9009") == {
        "Tests.test_table": FAILED,
        "Tests.test_attributes": FAILED,
        "Tests.test_helper": FAILED,
        "Tests.test_variables": FAILED,
        "Tests.test_9010_is_9100": FAILED,
    }


def test_parameters_of_pytest_are_hidden(examiner: Examiner) -> None:
    source = dedent("""
        import pytest
        @pytest.mark.parametrize("given, expected", [(3, 9009), pytest.param(4, 9016, id="9016")], ids=["9009", None])
        def test_4_is_9016(given, expected): assert f(given) == expected
    """)
    questions = examiner.questions(source, "def f(x): return 9000 + x * x")
    assert "90" not in _source(questions)
    assert len(questions) == 2
    assert examiner.outcomes(questions, "def f(x): return 9009") == {"test_4_is_9016": FAILED}


def test_values_that_tests_use_stay(examiner: Examiner) -> None:
    source = dedent("""
        def test_used():
            expected = [9]
            assert f(3) == expected[0]
            expected.append(f(4))
            assert expected == [9, 16]
        def test_swapped():
            low, high = 3, 9
            assert f(low) == high
    """)
    questions = examiner.questions(source, "def f(x): return x * x")
    assert examiner.passes(questions, "def f(x): return x ** 2")
    # A submission could read what the variables of its callers hold.
    assert len(questions) == 2


@pytest.mark.parametrize(
    "reading", ["self._testMethodName", "self.id()", "type(self).__name__", "sys._getframe().f_code.co_name", "'test_own_name'"]
)
def test_names_that_tests_read_stay(examiner: Examiner, reading: str) -> None:
    source = dedent(f"""
        import sys, unittest
        class Tests(unittest.TestCase):
            def test_own_name(self): self.assertEqual(f(3), 9 if {reading} else 8)
    """)
    assert "test_own_name" in _source(examiner.questions(source, "def f(x): return x * x"))


def test_classes_that_are_not_found_stay_so(examiner: Examiner) -> None:
    source = dedent("""
        import pytest
        class Shared:
            def test_shared(self): assert f(self.x) == self.x * 10
        class TestOne(Shared):
            x = 1
        class TestTwo(Shared):
            x = 2
    """)
    questions = examiner.questions(source, "def f(x): return x * 10")
    assert len(questions) == 2
    assert examiner.outcomes(questions, "def f(x): return 5 * x * 2") == {
        "TestOne.test_shared": PASSED,
        "TestTwo.test_shared": PASSED,
    }


def test_order_of_tests_stays(examiner: Examiner) -> None:
    source = dedent("""
        import unittest
        seen = []
        class Zebra(unittest.TestCase):
            def test_b(self): seen.append(2); self.assertEqual(f(len(seen)), 16)
            def test_a(self): seen.append(1); self.assertEqual(f(len(seen)), 9)
        class Ape(unittest.TestCase):
            def test_z(self): seen.append(0); self.assertEqual(f(len(seen)), 4)
            def test_c(self): seen.append(0); self.assertEqual(f(2), 4)
    """)
    questions = examiner.questions(source, "def f(x): return x * x")
    assert examiner.outcomes(questions, "def f(x): return x * x if x != 3 else 0") == {
        "Ape.test_c": PASSED,
        "Ape.test_z": PASSED,
        "Zebra.test_a": FAILED,
        "Zebra.test_b": PASSED,
    }


def test_state_is_as_if_assertions_had_held(examiner: Examiner) -> None:
    source = dedent("""
        items = []
        def test_first():
            items.append(f(1))
            assert f(1) == 11
            items.append(f(2))
            assert f(3) == 13
        def test_second():
            assert len(items) == 2
            assert f(len(items)) == 12
    """)
    questions = examiner.questions(source, "def f(x): return x + 10")
    wrong = "def f(x): return 0 if x == 1 else x + 10"
    assert examiner.outcomes(questions, wrong) == {"test_first": FAILED, "test_second": PASSED}
    raising = "def f(x):\n    if x == 1: raise ValueError\n    return x + 10"
    assert examiner.outcomes(questions, raising)["test_first"] is ERROR


def test_inherited_tests_are_asked_for_each_class(examiner: Examiner) -> None:
    source = dedent("""
        import unittest
        class Base:
            def test_shared(self): self.assertEqual(f(self.x), self.x * 10)
        class One(Base, unittest.TestCase):
            x = 1
        class Two(Base, unittest.TestCase):
            x = 2
    """)
    questions = examiner.questions(source, "def f(x): return x * 10")
    assert len(questions) == 2
    assert examiner.passes(questions, "def f(x): return x * 5 * 2")
    assert FAILED in examiner.outcomes(questions, "def f(x): return 10").values()


def test_objects_of_the_submission_are_compared_where_they_are(examiner: Examiner) -> None:
    reference = dedent("""
        class Money:
            def __init__(self, cents): self.cents = cents
            def __eq__(self, other): return self.cents == other.cents
            def __add__(self, other): return Money(self.cents + other.cents)
    """)
    alternative = dedent("""
        from dataclasses import dataclass
        @dataclass
        class Money:
            amount: int
            def __add__(self, other): return Money(other.amount + self.amount)
    """)
    questions = examiner.questions(Asserts(cases=("assert Money(1) + Money(2) == Money(3)",)), reference)
    assert len(questions) == 1
    assert not questions.options
    assert examiner.passes(questions, alternative)
    assert not examiner.passes(questions, alternative.replace("self.amount)", "7)"))
    always = "class Money:\n    def __init__(self, x): pass\n    __add__ = lambda *_: Money(1)\n    __eq__ = __ne__ = lambda *_: True"
    assert not examiner.passes(questions, always)


def test_module_that_is_not_python_has_no_questions(examiner: Examiner) -> None:
    questions = examiner.questions("def test(:", "def f(): pass")
    assert questions.tests is None
    assert questions.is_weak


_TESTS = Asserts(cases=tuple(f"assert f({number}) == {number * number + 1}" for number in range(3, 9)))


def test_draw_depends_on_the_key_only(examiner: Examiner) -> None:
    draws = [examiner.questions(_TESTS, "def f(x): return x * x + 1", key=key) for key in (b"1", b"1", b"2")]
    assert draws[0] == draws[1]
    assert draws[0].options != draws[2].options


@pytest.mark.parametrize("values", [[10, *range(20)], [0, *range(1, 20)], [50, 1, 2, 3, 99, 98, 97], [5, 4, 6]])
def test_rank_of_the_truth_is_uniform(values: list[int]) -> None:
    numbers = list(dict.fromkeys(values))
    distances = [[float(abs(one - other)) for other in numbers] for one in numbers]
    dice = Dice(b"key")
    ranks: dict[int, Counter[int]] = defaultdict(Counter)
    places: dict[int, Counter[int]] = defaultdict(Counter)
    rng = random.Random(1)
    for number in range(1200):
        encoded = [f"{number}:{index}".encode() for index in range(len(numbers))]
        drawn = [encoded.index(value) for value in dice.options(encoded, distances)]
        assert drawn.count(0) == 1
        totals = {one: sum(distances[one][other] for other in drawn) for one in drawn}
        # The two in the middle of numbers have the same distance from all others.
        ties = list(totals.values()).count(totals[0])
        ranks[len(drawn)][sum(total < totals[0] for total in totals.values()) + rng.randrange(ties)] += 1
        places[len(drawn)][drawn.index(0)] += 1
    for size in places:
        assert 2 <= size <= 8
        for counts in (places[size], ranks[size]) if size > 2 else (places[size],):
            expected = counts.total() / size
            assert all(abs(counts[rank] - expected) < 5 * expected**0.5 for rank in range(size)), counts


def test_nothing_is_drawn_without_other_values() -> None:
    assert Dice(b"key").options([b"x"], [[0.0]]) == []


@pytest.mark.parametrize("key", [b"1", b"2", b"3", b"4", b"5"])
def test_order_of_the_same_options_does_not_tell_which_is_right(key: bytes) -> None:
    values = [b"a", b"b", b"c"]
    distances = [[float(abs(one - other)) for other in range(3)] for one in range(3)]
    draws = {tuple(Dice(key).options(values[right:] + values[:right], distances)) for right in range(3)}
    assert len({draw for draw in draws if len(draw) == 3}) <= 1
    pair = [[0.0, 1.0], [1.0, 0.0]]
    assert Dice(key).options([b"True", b"False"], pair) == Dice(key).options([b"False", b"True"], pair)


def test_mutants_differ_in_few_places() -> None:
    reference = (
        "def f(xs):\n    '''Doc.'''\n    total = 0\n    for x in xs:\n        if x > 3: total += x\n    return total * 2"
    )
    found = mutants(reference, 40, random.Random(1))
    assert len(set(found)) == len(found) == 40
    assert found == mutants(reference, 40, random.Random(1))
    for mutant in found:
        ast.parse(mutant)
        assert "Doc." in mutant
        assert mutant != ast.unparse(ast.parse(reference))


def test_values_of_own_classes_are_not_sent() -> None:
    module = types.ModuleType("own")
    module.__file__ = "own.py"
    exec("class C: pass\ndef g(): pass", vars(module))
    sys.modules["own"] = module
    try:
        pickling = Pickling()
        assert [pickling.dumps(value) for value in (module.C(), [module.C], {1: module.g}, (x for x in [1]), lambda: 1)] == [
            None
        ] * 5
    finally:
        del sys.modules["own"]
    assert pickling.dumps("a" * 70_000) is None
    assert pickling.dumps([1, {"a": 2.5}]) is not None


@pytest.mark.parametrize(
    ("truth", "values", "expected"),
    [
        (3, [4, 4.0, 4.5, True, "4", None, 3], [4]),
        (2.5, [1 / 3, 4, True, float("nan")], [0.3, 4.0]),
        ("ab", ["cd", 1, "ab", "cd"], ["cd"]),
        ([1, 2], [[3], (3, 4), ["a"], [1.5], []], [[3], []]),
        ((1, "a"), [(2, "b"), (2, 3), [1, "a"]], [(2, "b")]),
        ({"a": 1}, [{"b": 2}, {1: 2}, {"c": "d"}], [{"b": 2}]),
        ({1}, [{2}, [2], frozenset({2})], [{2}]),
        (True, [False, 0, None], [False]),
        (None, [1, None], []),
    ],
)
def test_values_that_look_alike(truth: Any, values: list[Any], expected: list[Any]) -> None:
    found = alike(values, truth)
    assert found == expected
    assert list(map(repr, found)) == list(map(repr, expected))


def test_middle_of_values() -> None:
    assert between([1.0, "a"], [2.0, "a"]) == [1.5, "a"]
    assert between((1, 2), (1, 2, 3)) is None
    assert between("a", "b") is None
    assert between(True, False) is None


def test_concurrent_requests_share_the_questions() -> None:
    submission = Submission(code="", tests=Asserts(cases=("f()",)), mode=GradingMode.FAITHFUL, reference="def f(): pass")
    keys = []

    async def make(key: bytes) -> Questions:
        keys.append(key)
        await asyncio.sleep(0.01)
        if len(keys) == 1:
            raise OSError
        return Questions()

    async def request() -> list[object]:
        cache = QuestionCache()
        return await asyncio.gather(*(cache.get(submission, make) for _ in range(4)), return_exceptions=True)

    found = asyncio.run(request())
    # The first one failed, the second one has made them for all others.
    assert isinstance(found[0], OSError)
    assert len({id(questions) for questions in found[1:]}) == 1
    assert len(keys) == 2


def test_key_depends_on_the_secret_and_the_task() -> None:
    def key(secret: str | None, case: str = "f()") -> bytes:
        submission = Submission(code="", tests=Asserts(cases=(case,)), secret=secret)
        keys = []

        async def make(key: bytes) -> Questions:
            keys.append(key)
            return Questions()

        asyncio.run(QuestionCache().get(submission, make))
        return keys[0]

    assert key("a") == key("a")
    assert len({key("a"), key("b"), key("a", "g()"), key(None), key(None)}) == 5


def test_evaluation_stays_where_nothing_is_asked() -> None:
    tests = AskingTests(Asserts(cases=("assert f(1) == g(2)", "with raises(ValueError): f(0)", "self.assertIn(f(1), g(2))")))
    rendered = tests.source(lambda _, assertion: assertion.form.choosing(()))
    assert isinstance(rendered, Asserts)
    assert [case.count("f(") + case.count("g(") for case in rendered.cases] == [2, 1, 2]


ROWS = "[{'in': 2, 'out': 4}, {'in': 3, 'out': 9}, {'in': 5, 'out': 25}]"
HELD = {
    "rows": f"CASES = {ROWS}\ndef test_all():\n    for case in CASES: assert f(case['in']) == case['out']\n",
    "a table": "TABLE = {2: 4, 3: 9, 5: 25}\ndef test_all():\n    for x in TABLE: assert f(x) == TABLE[x]\n",
    "objects": (
        "from dataclasses import dataclass\n@dataclass\nclass Case:\n    x: int\n    y: int\n"
        "CASES = [Case(2, 4), Case(3, 9), Case(5, 25)]\n"
        "def test_all():\n    for case in CASES: assert f(case.x) == case.y\n"
    ),
    "a value that is printed": (
        "def test_all():\n    for x, y in [(2, 4), (3, 9), (5, 25)]:\n        if f(x) != y: print(y)\n        assert f(x) == y\n"
    ),
}


@pytest.mark.parametrize("name", HELD)
def test_values_that_variables_hold_are_no_questions(examiner: Examiner, name: str) -> None:
    assert len(examiner.questions(HELD[name], "def f(x): return x * x")) == 0


def test_one_value_is_drawn_once(examiner: Examiner) -> None:
    source = "def test_first():\n    for _ in range(4): assert f(7) == 49\ndef test_second(): assert f(7) == 49\n"
    questions = examiner.questions(source, "def f(x): return x * x")
    assert len(questions) == 5
    assert len({tuple(options.values) for options in questions.options}) == 1


def test_truth_may_be_that_something_is_false(examiner: Examiner) -> None:
    source = "".join(f"def test_{n}(): assert {'' if n in (2, 3, 5, 7) else 'not '}f({n})\n" for n in range(2, 10))
    questions = examiner.questions(source, "def f(n): return all(n % i for i in range(2, n))")
    asked = [line for line in _source(questions).splitlines() if "__ask__(" in line]
    assert len(questions) == len(asked) == 8
    # Which of the two predicates holds, by whether it is the one with fewer negations.
    plain = [line.split("lambda")[1].count("not ") == 2 for line in asked]
    holds = {is_first == answer[0] for is_first, answer in zip(plain, questions.answers.values(), strict=True)}
    assert holds == {True, False}


def test_options_do_not_tell_which_one_is_a_literal(examiner: Examiner) -> None:
    source = "def test_it(): assert f('one two ONE') == ['one', 'two', 'one']\n"
    questions = examiner.questions(source, "def f(s): return [word.lower() for word in s.split()]")
    for options in questions.options:
        for value in map(pickle.loads, options.values):
            assert len({id(word) for word in value}) == len(value)


def test_iterators_are_read_once_for_each_option(examiner: Examiner) -> None:
    source = "import unittest\nclass T(unittest.TestCase):\n    def test_it(self): self.assertCountEqual(f(3), [2, 1, 0])\n"
    questions = examiner.questions(source, "def f(n): return list(range(n))")
    assert examiner.passes(questions, "def f(n): return (i for i in range(n))")
