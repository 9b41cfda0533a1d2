"""Failed assertions count although the submission catches them, unless the tests expect them."""

from __future__ import annotations

import textwrap

from coding_gym_server.protocol.grading import CaseOutcome
from tests.grading.judging import Judge

_CODE = """
import asyncio, contextlib, functools
class Swallow:
    x = 1
    def __enter__(self): return self
    def __exit__(self, *error): return True
    async def __aenter__(self): return self
    async def __aexit__(self, *error): return True
    def boom(self): raise ValueError("boom")
    def __getitem__(self, key): raise KeyError(key)
class Keep:
    def __enter__(self): return 5
    def __exit__(self, *error): return False
class Convert(Keep):
    def __exit__(self, kind, error, trace): raise KeyError("converted")
@contextlib.contextmanager
def managed():
    try: yield 1
    except BaseException: pass
@contextlib.asynccontextmanager
async def amanaged():
    try: yield 1
    except BaseException: pass
def quietly(f, *a):
    try: return f(*a)
    except BaseException: return None
def again(f, *a):
    try: f(*a)
    except AssertionError: raise
def another(f, *a):
    try: f(*a)
    except AssertionError: raise AssertionError("another")
def other(f, *a):
    try: f(*a)
    except AssertionError: raise ValueError("other")
def first(xs):
    try: return next(xs)
    except BaseException: return None
def item(x, key):
    try: return x[key]
    except BaseException: return None
def attribute(x, name):
    try: return getattr(x, name)
    except BaseException: return None
def decorate(f):
    @functools.wraps(f)
    def inner(*a):
        try: return f(*a)
        except BaseException: return None
    return inner
def validate(x): assert x > 0, "not positive"; return x
MyError = Exception
class Failure(AssertionError): pass
Alias = AssertionError
def close(): raise KeyError("closed")
"""

_FAILING = {
    "with": "with Swallow() as t: assert t.x == 3",
    "with, in a function": "def check():\n    with Swallow() as t:\n        assert t.x == 3\ncheck()",
    "with, a library's assertion": "import numpy as np\nwith Swallow(): np.testing.assert_equal(1, 2)",
    "with, a mock's assertion": "from unittest.mock import Mock\nwith Swallow(): Mock().assert_called()",
    "with, assertion method": "import unittest\nwith Swallow() as t: unittest.TestCase().assertEqual(t.x, 3)",
    "with, fail": "import unittest\nwith Swallow(): unittest.TestCase().fail('no')",
    "with, raise": "with Swallow() as t:\n    if t.x != 3: raise AssertionError",
    "with, raise again": "with Swallow():\n    try: assert False\n    except AssertionError: raise",
    "with, pytest.fail": "import pytest\nwith Swallow(): pytest.fail('no')",
    "with, skipped by an error": "with Swallow() as t:\n    t.boom()\n    assert t.x == 3",
    "with, skipped by its own error": "with Swallow() as t: assert t['x'] == 3",
    "contextmanager": "with managed() as x: assert x == 3",
    "exit stack": "import contextlib\nwith contextlib.ExitStack() as s:\n    x = s.enter_context(managed())\n    assert x == 3",
    "two managers": "with Keep() as k, Swallow() as t: assert k == 3",
    "async with": "import asyncio\nasync def f():\n    async with Swallow() as t: assert t.x == 3\nasyncio.run(f())",
    "asynccontextmanager": "import asyncio\nasync def f():\n    async with amanaged() as x: assert x == 3\nasyncio.run(f())",
    "async with, skipped": "import asyncio\nasync def f():\n    async with Swallow() as t:\n        t.boom()\n        assert t.x == 3\nasyncio.run(f())",
    "converted": "import unittest\nwith unittest.TestCase().assertRaises(KeyError):\n    with Convert() as x: assert x == 3",
    "callback": "def check(x): assert x == 3\nquietly(check, 1)",
    "callback, assertion method": "import unittest\nquietly(unittest.TestCase().assertEqual if False else (lambda: unittest.TestCase().assertEqual(1, 2)))",
    "callback, a library's assertion": "import numpy as np\nquietly(lambda: np.testing.assert_equal(1, 2))",
    "decorated": "@decorate\ndef check(x): assert x == 3\ncheck(1)",
    "next": "def numbers():\n    assert False\n    yield 1\nfirst(numbers())",
    "iterator": "def check(x): assert x == 3\nfirst(map(check, [1]))",
    "item": "class A:\n    def __getitem__(self, key): assert key == 3\nitem(A(), 1)",
    "property": "class A:\n    @property\n    def x(self): assert False\nattribute(A(), 'x')",
    "mock": "from unittest.mock import Mock\ndef check(x): assert x == 3\nquietly(Mock(side_effect=check), 1)",
    "first of two": "def check(x): assert x == 3\nquietly(check, 1)\ntry: again(check, 2)\nexcept AssertionError: pass",
    "first, then another": "def check(x): assert x == 3\nquietly(check, 1)\ntry: validate(-1)\nexcept AssertionError: pass",
    "another": "def check(x): assert x == 3\ntry: another(check, 1)\nexcept AssertionError: pass",
    "other": "def check(x): assert x == 3\ntry: other(check, 1)\nexcept ValueError: pass",
    "replaced while it propagates": "import unittest\nwith unittest.TestCase().assertRaises(KeyError):\n    try: assert False\n    finally: close()",
    "alias of Exception": "try: assert False, 'should have failed'\nexcept MyError: pass",
    "alias of AssertionError": "try: assert False, 'should have failed'\nexcept Alias: pass",
    "alias, assertRaises": "import unittest\nwith unittest.TestCase().assertRaises(MyError): assert False",
    "alias, any error": "import unittest\nwith unittest.TestCase().assertRaises(MyError): 1 / 0",
    "own failure": "try: assert False\nexcept Failure: pass",
}

_PASSING = {
    "with": "with Swallow() as t: assert t.x == 1",
    "suppressing is the feature": "with Swallow():\n    raise ValueError\nwith managed(): 1 / 0",
    "suppressing after assertions": "with Swallow() as t:\n    assert t.x == 1\n    t.boom()",
    "expected": "try: assert False\nexcept AssertionError: pass",
    "expected by any handler": "try: assert False\nexcept Exception as e: assert isinstance(e, AssertionError)\ntry: assert False\nexcept: pass",
    "expected by assertRaises": "import unittest\nt = unittest.TestCase()\nwith t.assertRaises(AssertionError): assert False\n"
    "def check(x): assert x == 3\nt.assertRaises(AssertionError, check, 1)\nwith t.assertRaises(AssertionError): t.assertEqual(1, 2)\n"
    "with t.assertRaises(AssertionError): t.fail()",
    "expected by suppress": "import contextlib\nwith contextlib.suppress(AssertionError): assert False",
    "expected by pytest": "import pytest\nwith pytest.raises(AssertionError): assert False\nwith pytest.raises(AssertionError, match='no'): assert 0, 'no'\n"
    "def check(x): assert x == 3\npytest.raises(AssertionError, check, 1)",
    "expected, kept by a manager": "import unittest\nwith unittest.TestCase().assertRaises(AssertionError):\n    with Keep(): assert False",
    "the submission's": "try: validate(-1)\nexcept AssertionError as e: assert str(e) == 'not positive'\nelse: raise AssertionError",
    "the submission's, in its manager": "with Swallow(): validate(-1)",
    "groups": "try: raise ExceptionGroup('x', [AssertionError()])\nexcept* AssertionError: pass",
    "retried": "for n in (1, 2, 3):\n    try: assert n == 3\n    except AssertionError: continue",
    "helper that returns": "def check(x):\n    try: assert x == 3\n    except AssertionError: return False\n    return True\nassert quietly(check, 1) is False",
}

_SOURCE = """
import unittest
class Tests(unittest.TestCase):
    def test_swallowed(self):
        with Swallow() as t: self.assertEqual(t.x, 3)
    def test_sub_test(self):
        with self.subTest(x=1), Swallow() as t: self.assertTrue(t.x == 3)
    def test_callback(self): quietly(self.assertEqual if False else lambda: self.assertIn(1, [2]))
    def test_message(self): self.assertEqual(validate(2), 3, "it is two")
    @unittest.expectedFailure
    def test_expected(self): self.assertEqual(1, 2)
    @unittest.expectedFailure
    def test_expected_assert(self): assert 1 == 2
    def test_passing(self): self.assertRaises(AssertionError, self.assertEqual, 1, 2)
def test_function():
    with managed(): assert 1 == 2, "never"
"""


def test_caught_failures_count(judge: Judge) -> None:
    graded = judge.asserts(textwrap.dedent(_CODE), *_FAILING.values())
    names = list(_FAILING)
    assert [names[int(case.name)] for case in graded.cases if case.outcome is CaseOutcome.PASSED] == []


def test_expected_failures_are_forgiven(judge: Judge) -> None:
    graded = judge.asserts(textwrap.dedent(_CODE), *_PASSING.values())
    names = list(_PASSING)
    assert {names[int(case.name)]: case.message for case in graded.cases if case.outcome is not CaseOutcome.PASSED} == {}


def test_assertion_methods_are_recorded(judge: Judge) -> None:
    graded = judge.unit_tests(textwrap.dedent(_CODE), _SOURCE)
    passed = {case.name for case in graded.cases if case.outcome is CaseOutcome.PASSED}
    assert passed == {"Tests.test_expected", "Tests.test_expected_assert", "Tests.test_passing"}
    messages = {case.name: case.message for case in graded.cases}
    assert messages["Tests.test_message"].splitlines() == [
        'def test_message(self): self.assertEqual(validate(2), 3, "it is two")',
        "AssertionError: 2 != 3 : it is two",
    ]
    assert messages["test_function"].splitlines() == ['with managed(): assert 1 == 2, "never"', "AssertionError: never"]
