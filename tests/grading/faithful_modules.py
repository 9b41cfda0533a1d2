"""Modules of tests that can run only beside a submission, each with a right and a wrong submission."""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import dedent

__all__ = ["MODULES", "FaithfulModule"]


@dataclass(frozen=True)
class FaithfulModule:
    """Tests with submissions.

    Attributes:
        name: Its name.
        right: A submission that passes all tests.
        wrong: A submission that fails at least one test.
        tests: The module of tests.
    """

    name: str
    right: str
    wrong: str
    tests: str


def _module(name: str, right: str, wrong: str, tests: str) -> FaithfulModule:
    return FaithfulModule(name, dedent(right), dedent(wrong), dedent(tests))


MODULES = [
    _module(
        "fixtures",
        "def total(values): return sum(values)",
        "def total(values): return sum(values[1:])",
        """
        import unittest
        state = []
        def setUpModule(): state.append(1)
        def tearDownModule(): state.clear()
        class Tests(unittest.TestCase):
            @classmethod
            def setUpClass(cls): cls.values = [1, 2, 3]
            def setUp(self): self.more = [4, *state]
            def tearDown(self): self.assertTrue(state)
            def test_class_fixture(self): self.assertEqual(total(self.values), 6)
            def test_own_fixture(self): self.assertEqual(total(self.more), 5)
        """,
    ),
    _module(
        "patches",
        """
        import random, time
        def now(): return int(time.time())
        def pick(values): return random.choice(values), now()
        """,
        """
        import random, time
        def now(): return 7
        def pick(values): return values[0], 7
        """,
        """
        import random, sys, unittest
        from unittest.mock import patch
        class Tests(unittest.TestCase):
            @patch("time.time", return_value=12.5)
            def test_library(self, mock):
                self.assertEqual(now(), 12)
                mock.assert_called_once_with()
            @patch("solution.now", return_value=3)
            def test_own_function(self, mock):
                random.seed(4)
                expected = random.choice(range(100))
                random.seed(4)
                self.assertEqual(pick(range(100)), (expected, 3))
        """,
    ),
    _module(
        "import",
        "class Stack(list):\n    def push(self, x): self.append(x)",
        "class Stack(list):\n    def push(self, x): self.insert(0, x)",
        """
        import inspect, os, pickle, unittest
        import solution
        from solution import Stack
        class Tests(unittest.TestCase):
            def test_subclass(self):
                class Loud(Stack):
                    def push(self, x): super().push(x * 2)
                loud = Loud()
                loud.push(1); loud.push(2)
                self.assertEqual(loud, [2, 4])
            def test_module(self):
                self.assertIs(solution.Stack, Stack)
                self.assertIn("def push", inspect.getsource(Stack))
                self.assertEqual(os.path.dirname(os.path.abspath(__file__)), os.getcwd())
                self.assertEqual(pickle.loads(pickle.dumps(Stack([1]))), Stack([1]))
        """,
    ),
    _module(
        "async",
        "import asyncio\nasync def double(x):\n    await asyncio.sleep(0)\n    return 2 * x",
        "async def double(x): return x + 2",
        """
        import asyncio, unittest
        class Tests(unittest.IsolatedAsyncioTestCase):
            async def asyncSetUp(self): self.x = 21
            async def test_one(self): self.assertEqual(await double(self.x), 42)
            async def test_many(self): self.assertEqual(await asyncio.gather(double(1), double(2)), [2, 4])
        """,
    ),
    _module(
        "subtests",
        "def square(x): return x * x",
        "def square(x): return x + x",
        """
        import unittest
        class Tests(unittest.TestCase):
            def test_table(self):
                for x, expected in [(2, 4), (3, 9), (4, 16)]:
                    with self.subTest(x=x):
                        self.assertEqual(square(x), expected)
            @unittest.skip("not ready")
            def test_skipped(self): self.assertEqual(square(2), 5)
        """,
    ),
    _module(
        "frames",
        """
        import pandas as pd
        def totals(frame): return frame.groupby("name", as_index=False)["value"].sum()
        """,
        """
        import pandas as pd
        def totals(frame): return frame.groupby("name", as_index=False)["value"].mean()
        """,
        """
        import unittest
        import pandas as pd
        class Tests(unittest.TestCase):
            def setUp(self):
                self.frame = pd.DataFrame({"name": ["a", "b", "a"], "value": [1, 2, 3]})
            def test_frame(self):
                expected = pd.DataFrame({"name": ["a", "b"], "value": [4, 2]})
                pd.testing.assert_frame_equal(totals(self.frame), expected)
            def test_type(self):
                result = totals(self.frame)
                self.assertIsInstance(result, pd.DataFrame)
                self.assertTrue((result["value"] > 1).all())
                self.assertEqual(result["value"].max(), 4)
        """,
    ),
    _module(
        "functions",
        "def clamp(x, low, high): return max(low, min(x, high))",
        "def clamp(x, low, high): return min(x, high)",
        """
        def test_inside(): assert clamp(3, 1, 5) == 3
        def test_below(): assert clamp(-3, 1, 5) == 1
        def test_above(): assert clamp(30, 1, 5) == 5
        """,
    ),
    _module(
        "pytest",
        """
        def parse(text):
            if not text: raise ValueError("empty text")
            return [int(word) for word in text.split()]
        def save(path, text): path.write_text(text)
        """,
        """
        def parse(text): return [int(word) for word in text]
        def save(path, text): path.write_text(text)
        """,
        """
        import os
        import pytest

        @pytest.fixture
        def numbers(): return parse("1 2 3")

        @pytest.fixture(scope="module", autouse=True)
        def marker(): return "x"

        def test_fixture(numbers): assert numbers == [1, 2, 3]

        @pytest.mark.parametrize(("text", "expected"), [("4", [4]), ("5 6", [5, 6]), ("  7 ", [7])])
        def test_table(text, expected): assert parse(text) == expected

        def test_error():
            with pytest.raises(ValueError, match="empty"): parse("")

        def test_tools(tmp_path, monkeypatch, capsys):
            monkeypatch.setenv("SOME", "1")
            save(tmp_path / "a", os.environ["SOME"])
            print((tmp_path / "a").read_text())
            assert capsys.readouterr().out == "1\\n"

        @pytest.mark.skip
        def test_skipped(): assert False

        class TestMethods:
            def setup_method(self): self.text = "8"
            def test_method(self): assert parse(self.text) == [8]
        """,
    ),
]
