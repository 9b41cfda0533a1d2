"""Objects that cross from the tests to a submission: data, names, and definitions of the tests' own source."""

from __future__ import annotations

import textwrap

import pytest

from coding_gym_server.protocol.grading import CaseOutcome, VerdictOutcome
from coding_gym_server.test_runner import crossing
from tests.grading.judging import Judge

_SAME = "def solve(x): return x\ndef call(f, *a, **k): return f(*a, **k)\ndef get(x, name): return getattr(x, name)\n"

_REFUSED = {
    "a connection": "import sqlite3\nsolve(sqlite3.connect(':memory:'))",
    "a method of a frame": "import pandas as pd\nsolve(pd.DataFrame({'a': [1]}).eval)",
    "a grouping": "import pandas as pd\nsolve(pd.DataFrame({'a': [1]}).groupby('a'))",
    "a subclass of a frame": "import pandas as pd\nclass F(pd.DataFrame): pass\nget(F({'a': [1]}), 'eval')",
    "a partial function": "import functools\nsolve(functools.partial(print))",
    "a cached function": "import functools\nsolve(functools.cache(lambda x: x))",
    "a logger": "import logging\nsolve(logging.getLogger('x'))",
    "a handler": "import logging\nsolve(logging.StreamHandler())",
    "a handler of the tests": "import logging\nclass H(logging.Handler): pass\nget(H(), 'acquire')",
    "a handler's formatter": "import logging\nclass H(logging.Handler): pass\nget(H(), 'formatter')",
    "a file": "solve(open('x', 'w'))",
    "a stream": "import io\nsolve(io.StringIO('a'))",
    "a parser": "import argparse\nsolve(argparse.ArgumentParser())",
    "a parser of the tests": "import argparse\nclass P(argparse.ArgumentParser): pass\nget(P(), 'parse_args')",
    "a lock": "import threading\nsolve(threading.Lock())",
    "an executor": "from concurrent.futures import ThreadPoolExecutor\nsolve(ThreadPoolExecutor().submit)",
    "a test case": "import unittest\nclass T(unittest.TestCase): pass\nget(T(), 'assertEqual')",
    "a property": "solve(property(len))",
    "a super object": "class A: pass\nsolve(super(A, A()))",
    "a coroutine": "async def f(): pass\nsolve(f())",
    "a frame of the interpreter": "import sys\nsolve(sys._getframe())",
    "a code object": "solve((lambda: 1).__code__)",
    "a library's generator": "import os\nsolve(os.walk('.'))",
    "a context manager of the tests": "import contextlib\n@contextlib.contextmanager\ndef c(): yield 6\nsolve(c())",
    "a mock of a frame": "import pandas as pd\nfrom unittest.mock import Mock\ncall(Mock(wraps=pd.DataFrame).eval, '1')",
    "a mock that evaluates": "from unittest.mock import Mock\ncall(Mock(side_effect=eval), '1')",
    "a mock of a method": "import sqlite3\nfrom unittest.mock import Mock\nm = Mock()\nm.f.side_effect = sqlite3.connect\ncall(m.f, 'x')",
    "a mock's item": "from unittest.mock import MagicMock\nm = MagicMock()\nm.__getitem__.side_effect = eval\nimport operator\n"
    "call(operator.getitem, m, '1')",
    "a mock's file": "from unittest.mock import Mock\nm = Mock()\nm.file = open('x', 'w')\nget(m, 'file')",
    "a mock's methods": "from unittest.mock import Mock\nget(Mock(), 'assert_called')",
    "a mock's call list": "from unittest.mock import Mock\nget(Mock(), 'call_args_list')",
    "a mock's result": "from unittest.mock import Mock\nimport sqlite3\ncall(Mock(return_value=sqlite3.connect(':memory:')))",
    "an attribute": "import sqlite3\nclass A:\n    def __init__(self): self.c = sqlite3.connect(':memory:')\nget(A(), 'c')",
    "an object in a list": "import io\nsolve([1, {'k': io.StringIO()}])",
    "an object in a frame": "import io\nimport pandas as pd\nsolve(pd.DataFrame({'a': [io.StringIO()]}))",
    "an object of a namespace": "import io\nfrom types import SimpleNamespace\nget(SimpleNamespace(x=io.StringIO()), 'x')",
    "a result": "import io\ncall(lambda: io.StringIO())",
    "a private name": "class A:\n    def __init__(self): self._x = 1\nget(A(), '_x')",
    "a class": "class A: pass\nget(A(), '__class__').__init__\nget(A(), '__dict__')['x']",
    "a class's globals": "class A:\n    def f(self): pass\nget(A().f, '__globals__')",
    "a function's code": "get(lambda: 1, '__code__')",
    "a function's closure": "get(lambda: 1, '__closure__')",
    "a method's object": "class A:\n    def f(self): pass\nget(A().f, '__self__')",
    "a generator's frame": "def g(): yield 1\nget(g(), 'gi_frame')",
    "a class that makes classes": "class M(type): pass\ncall(M, 'X', (), {})",
    "a class of a library": "import logging\nclass H(logging.FileHandler): pass\ncall(H, 'x')",
    "an enumeration": "import enum\nclass E(enum.Enum):\n    A = 1\nget(E.A, '__objclass__').x",
}

_CROSSING = {
    "library names": "import math, operator, os, numpy as np, http, re\n"
    "for x in (math, math.sqrt, len, str.upper, operator.add, os.path.join, np, np.sqrt, np.mean, http.HTTPStatus.OK, re.I, object, type,\n"
    "        datetime.datetime.now, int.from_bytes, dict.fromkeys):\n"
    "    assert callable(call(repr, x)) is False\nassert call(math.sqrt, 9) == 3 and call(call, len, 'ab') == 2 and call(map, len, ['a'])\n"
    "assert call(datetime.datetime.now).year > 2000 and call(int.from_bytes, b'a', 'big') == 97\n"
    "assert os.path.dirname(__file__) == os.getcwd()",
    "functions": "seen = []\ndef f(*a, k=1): seen.append(a); return a[0] + k\nassert call(f, 1, k=2) == 3 and seen == [(1,)]\n"
    "assert call(lambda: [1, {2}]) == [1, {2}] and get(f, '__name__') == 'f'",
    "methods of data": "xs, d = [], {'a': 1}\ncall(xs.append, 4)\nassert xs == [4] and call(d.get, 'a') == 1 and call('-'.join, ['a', 'b']) == 'a-b'",
    "generators": "def g():\n    for n in range(3): yield [n]\nassert call(list, g()) == [[0], [1], [2]] and call(sum, iter([1, 2])) == 3\n"
    "assert call(dict, zip('ab', [1, 2])) == {'a': 1, 'b': 2} and call(list, map(str, [1])) == ['1']",
    "mocks": "from unittest.mock import Mock, MagicMock, mock_open\nm = Mock(return_value={'a': 1})\nm.db.rows.return_value = [1]\nm.n = 5\n"
    "assert call(m, 2) == {'a': 1} and get(m.db, 'rows')() == [1] and get(m, 'n') == 5 and m.call_args.args == (2,)\n"
    "m.f.side_effect = [1, ValueError('x')]\nassert call(m.f) == 1\ntry: call(m.f)\nexcept ValueError as e: assert e.args == ('x',)\n"
    "else: raise AssertionError\nassert call(Mock(side_effect=lambda x: -x), 3) == -3 and len(call(lambda: MagicMock(__len__=lambda s: 3))) == 3\n"
    "class S:\n    def go(self): return 9\nassert call(Mock(wraps=S()).go) == 9 and call(Mock(wraps=call), len, 'abc') == 3",
    "instances": "class A:\n    kind = 'a'\n    __slots__ = ('x', 'y')\n    def __init__(self): self.x = 1\n    @property\n    def double(self): return self.x * 2\n"
    "    @double.setter\n    def double(self, v): self.x = v / 2\n    @classmethod\n    def make(cls): return cls()\n    @staticmethod\n    def one(): return 1\n"
    "a = A()\nassert get(a, 'x') == 1 and get(a, 'double') == 2 and get(a, 'kind') == 'a' and call(a.make).x == 1 and call(a.one) == 1\n"
    "call(setattr, a, 'x', [3])\nassert a.x == [3]\ncall(setattr, a, 'double', 8)\nassert a.x == 4\ncall(setattr, a, 'y', a)\nassert a.y is a",
    "subclasses of data": "class L(list):\n    def total(self): return sum(self)\nxs = L([1, 2])\ncall(get(xs, 'append'), 3)\n"
    "assert xs == [1, 2, 3] and get(xs, 'total')() == 6 and call(len, xs) == 3 and call(list, xs) == [1, 2, 3]",
    "dataclasses": "from dataclasses import dataclass\n@dataclass(order=True)\nclass P:\n    x: int\n    y: int = 0\n"
    "assert call(sorted, [P(2), P(1)])[0].x == 1 and call(lambda p: p == P(1), P(1)) and call(repr, P(1)) == 'P(x=1, y=0)' and call(P, 5).x == 5",
    "enumerations": "import enum\nclass E(enum.Enum):\n    A = 1\n    B = 'b'\n    def twice(self): return self.value * 2\n"
    "assert get(E.A, 'value') == 1 and get(E.B, 'name') == 'B' and solve(E.A) is E.A and call(E.A.twice) == 2",
    "constants": "import io\nsentinel = object()\nassert solve(sentinel) is sentinel and solve([sentinel])[0] is sentinel",
}


def test_objects_of_libraries_are_refused(judge: Judge) -> None:
    graded = judge.asserts(_SAME, *_REFUSED.values())
    names = list(_REFUSED)
    passed = [names[int(case.name)] for case in graded.cases if case.outcome is CaseOutcome.PASSED]
    unexplained = {
        names[int(case.name)]: case.message
        for case in graded.cases
        if "faithful" not in case.message and "has no attribute" not in case.message
    }
    assert (passed, unexplained) == ([], {})


def test_what_tests_define_crosses(judge: Judge) -> None:
    graded = judge.asserts(_SAME, *_CROSSING.values())
    names = list(_CROSSING)
    assert {names[int(case.name)]: case.message for case in graded.cases if case.outcome is not CaseOutcome.PASSED} == {}


def test_frames_cross_in_both_directions(judge: Judge) -> None:
    pytest.importorskip("pandas")
    code = """
    import pandas as pd
    import numpy as np
    def solve(df):
        df["total"] = df["a"] + df["b"]
        return df.groupby("k", as_index=False)["total"].sum()
    def column(df): return df["a"]
    def query(df): return df.eval("a + b"), df.query("a > 1"), df.index, df.dtypes["a"].name
    def fill(s): s.iloc[0] = 9
    def stats(df): return {"mean": df["a"].mean(), "max": df["a"].max(), "values": df["a"].values, "first": df["when"].iloc[0]}
    """
    frame = (
        "pd.DataFrame({'k': ['x', 'y', 'x'], 'a': [1, 2, 3], 'b': [1.0, 2.0, 3.0], 'when': pd.date_range('2020', periods=3)})"
    )
    setup = (
        f"import pandas as pd, numpy as np\nfrom pandas.testing import assert_frame_equal, assert_series_equal\ndf = {frame}"
    )
    cases = (
        "r = solve(df)\nassert isinstance(r, pd.DataFrame) and (r['total'] > 0).all()\n"
        "assert_frame_equal(r, pd.DataFrame({'k': ['x', 'y'], 'total': [8.0, 4.0]}))\nassert list(df.columns)[-1] == 'total'",
        "s = column(df)\nassert isinstance(s, pd.Series) and s.equals(df['a']) and s.name == 'a' and s.tolist() == [1, 2, 3]",
        "e, q, i, d = query(df)\nassert_series_equal(e, df.a + df.b)\nassert len(q) == 2 and isinstance(i, pd.RangeIndex) and d == 'int64'",
        "s = pd.Series([1, 2])\nfill(s)\nassert s.tolist() == [9, 2]",
        "r = stats(df)\nassert r['mean'] == 2.0 and r['max'] == 3 and (r['values'] == [1, 2, 3]).all() and r['first'] == pd.Timestamp('2020')",
    )
    graded = judge.asserts(textwrap.dedent(code), *cases, setup=setup)
    assert {case.name: case.message for case in graded.cases if case.outcome is not CaseOutcome.PASSED} == {}


def test_inherited_names_are_refused() -> None:
    class Library:
        def run(self) -> str:
            return "library"

    class Mixed(Library):
        pass

    class Text(str):
        def shout(self) -> str:
            return self.upper()

    class First(Library):
        def run(self) -> str:
            return "tests"

    class Base:
        def run(self) -> str:
            return "tests"

    class Last(Library, Base):
        pass

    for kind in (Mixed, Text, First, Base, Last):
        kind.__module__ = crossing.TESTS_MODULE
    assert crossing.get_attribute(First(), "run")() == "tests"
    assert crossing.get_attribute(Text("a"), "shout")() == "A"
    for target, name in (
        (Mixed(), "run"),
        (Text("{0.x}"), "format"),
        (Text(), "join"),
        (Last(), "run"),
        (First(), "__class__"),
    ):
        with pytest.raises(AttributeError, match="faithful"):
            crossing.get_attribute(target, name)
    for target, name in (
        (Text("%s"), "__mod__"),
        (Text(), "__getattribute__"),
        (Mixed(), "__reduce_ex__"),
        (Mixed, "__call__"),
    ):
        with pytest.raises(AttributeError, match="faithful"):
            crossing.check_operation(target, name)
    for kind in (Mixed, Last):
        with pytest.raises(AttributeError, match="faithful"):
            crossing.check_call(kind)
        with pytest.raises(AttributeError, match="faithful"):
            crossing.check_assignment(kind(), "x")
    crossing.check_call(Text)


def test_file_name_is_defined(judge: Judge) -> None:
    graded = judge.asserts("import os\ndef solve(): return os.path.basename(__file__), os.path.dirname(__file__) == os.getcwd()",
                           "assert solve() == ('solution.py', True)")  # fmt: skip
    assert graded.outcome is VerdictOutcome.PASSED, graded.cases


def test_common_names_are_modules(judge: Judge) -> None:
    code = "import numpy as np\nimport math as m\nfrom unittest import mock as cfg\npd = 5\ndef solve(): return 1"
    graded = judge.asserts(
        code, "assert np.sum([1]) == 1", "assert m.sqrt(9) == 3", "assert math.pi > 3", "assert not cfg.ANY == 42"
    )
    assert graded.outcome is VerdictOutcome.PASSED, graded.cases
