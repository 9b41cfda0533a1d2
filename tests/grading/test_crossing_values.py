"""Values of submissions that tests receive as what they are."""

from __future__ import annotations

import pytest

from coding_gym_server.protocol.grading import CaseOutcome, VerdictOutcome
from tests.grading.judging import Judge

VALUES = {
    "zone": (
        "import zoneinfo\ndef f(): return zoneinfo.ZoneInfo('UTC')",
        "import zoneinfo\nassert f() is zoneinfo.ZoneInfo('UTC')",
    ),
    "zone argument": ("def f(zone): return zone.key", "import zoneinfo\nassert f(zoneinfo.ZoneInfo('UTC')) == 'UTC'"),
    "time in a zone": (
        "import datetime, zoneinfo\ndef f(): return datetime.datetime(2020, 1, 1, tzinfo=zoneinfo.ZoneInfo('UTC'))",
        "import datetime, zoneinfo\nassert f() == datetime.datetime(2020, 1, 1, tzinfo=zoneinfo.ZoneInfo('UTC'))\nassert f().tzinfo is zoneinfo.ZoneInfo('UTC')",
    ),
    "UTC": ("import datetime\ndef f(): return datetime.timezone.utc", "import datetime\nassert f() is datetime.timezone.utc"),
    "time in UTC": (
        "import datetime\ndef f(): return datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc)",
        "import datetime\nassert f().tzinfo is datetime.timezone.utc",
    ),
    "UTC argument": (
        "import datetime\ndef f(zone): return zone is datetime.timezone.utc",
        "import datetime\nassert f(datetime.timezone.utc)",
    ),
    "offset": (
        "import datetime\ndef f(): return datetime.timezone(datetime.timedelta(hours=1))",
        "import datetime\nassert f() == datetime.timezone(datetime.timedelta(hours=1))",
    ),
    "cause": (
        "def f():\n    try: 1 / 0\n    except ZeroDivisionError as e: raise ValueError('a') from e",
        "try: f()\nexcept ValueError as e: assert isinstance(e.__cause__, ZeroDivisionError)\nelse: assert False",
    ),
    "own cause": (
        "class Own(Exception): pass\ndef f():\n    try: raise Own(3)\n    except Own as e: raise Own(4) from e",
        "try: f()\nexcept Exception as e: assert e.__cause__.args == (3,) and isinstance(e.__cause__, Own)\nelse: assert False",
    ),
    "context": (
        "def f():\n    try: 1 / 0\n    except ZeroDivisionError as e: raise ValueError('a')",
        "try: f()\nexcept ValueError as e: assert isinstance(e.__context__, ZeroDivisionError) and e.__cause__ is None\nelse: assert False",
    ),
    "no context": (
        "def f():\n    try: 1 / 0\n    except ZeroDivisionError as e: raise ValueError('a') from None",
        "try: f()\nexcept ValueError as e: assert e.__suppress_context__ and e.__cause__ is None\nelse: assert False",
    ),
    "notes": (
        "def f():\n    e = ValueError('a')\n    e.add_note('b')\n    raise e",
        "try: f()\nexcept ValueError as e: assert e.__notes__ == ['b']\nelse: assert False",
    ),
    "returned exception": (
        "def f():\n    e = ValueError('a')\n    e.__cause__ = KeyError(1)\n    e.add_note('b')\n    return e",
        "assert isinstance(f().__cause__, KeyError) and f().__notes__ == ['b']",
    ),
    "dict subclass": ("class Bag(dict): pass\ndef f(): return Bag(a=1)", "assert isinstance(f(), dict) and f() == {'a': 1}"),
    "list subclass": (
        "class Rows(list): pass\ndef f(): return Rows([1])",
        "assert isinstance(f(), list) and f() == [1] and f()[0] == 1 and len(f()) == 1",
    ),
    "set subclass": (
        "class Rows(set): pass\ndef f(): return Rows([1])",
        "assert isinstance(f(), set) and f() == {1} and 1 in f()",
    ),
    "list subclass sorted": (
        "class Rows(list): pass\ndef f(): return Rows([2, 1])",
        "assert sorted(f()) == [1, 2]",
    ),
    "unittest equality": (
        "class Rows(list): pass\nclass Bag(dict): pass\ndef f(): return Rows([2, 1]), Bag(a=1)",
        "import unittest\ncase = unittest.TestCase()\ncase.assertIsInstance(f()[0], list)\ncase.assertListEqual(f()[0], [2, 1])\ncase.assertDictEqual(f()[1], {'a': 1})",
    ),
    "default dict subclass": (
        "import collections\nclass Bag(collections.defaultdict): pass\ndef f():\n    b = Bag(int)\n    b['a'] += 1\n    return b",
        "import collections\nassert isinstance(f(), collections.defaultdict) and isinstance(f(), dict) and f() == {'a': 1}",
    ),
    "fields": (
        "import dataclasses\n@dataclasses.dataclass\nclass Point:\n    x: int\n    y: int = 0\ndef f(): return Point(1)",
        "import dataclasses\nassert [field.name for field in dataclasses.fields(Point)] == ['x', 'y']\nassert dataclasses.is_dataclass(f())",
    ),
    "asdict": (
        "import dataclasses\n@dataclasses.dataclass\nclass Point:\n    x: int\n    y: int = 0\ndef f(): return Point(1)",
        "import dataclasses\nassert dataclasses.asdict(f()) == {'x': 1, 'y': 0}\nassert dataclasses.astuple(f()) == (1, 0)",
    ),
    "nested asdict": (
        "import dataclasses\n@dataclasses.dataclass\nclass Point:\n    x: int\n@dataclasses.dataclass\nclass Line:\n    ends: list\ndef f(): return Line([Point(1), Point(2)])",
        "import dataclasses\nassert dataclasses.asdict(f()) == {'ends': [{'x': 1}, {'x': 2}]}",
    ),
    "replace": (
        "import dataclasses\n@dataclasses.dataclass(frozen=True)\nclass Point:\n    x: int\n    y: int = 0\ndef f(): return Point(1)",
        "import dataclasses\nassert dataclasses.replace(f(), y=2) == Point(1, 2)",
    ),
    "partial": (
        "def f(g): return g(2)",
        "import functools\ndef add(a, b): return a + b\nassert f(functools.partial(add, 1)) == 3",
    ),
    "method": ("def f(g): return g(2)", "class Helper:\n    def add(self, a): return a + 1\nassert f(Helper().add) == 3"),
    "class method": (
        "def f(g): return g(2)",
        "class Helper:\n    @classmethod\n    def add(cls, a): return a + 1\n    @staticmethod\n    def sub(a): return a - 1\nassert f(Helper.add) == 3 and f(Helper.sub) == 1",
    ),
    "mangled": ("def __f(): return 3\n__x = 4", "assert __f() == 3 and __x == 4"),
    "name of a module": (
        "def copy(x): return list(x)\ndef calendar(): return 3",
        "assert copy((1,)) == [1] and calendar() == 3",
    ),
    "class named like a module": ("class queue:\n    def __init__(self): self.n = 3", "assert queue().n == 3"),
    "imported name of a module": ("def copy(x): return list(x)", "from solution import copy\nassert copy((1,)) == [1]"),
    "module": ("import math as calculus\ndef f(): return 1", "assert math.pi > 3 and f() == 1"),
}

CLASSES = ("Vector", "RGB", "BST", "_Vec", "V", "V2")

CLASS = """
class {name}:
    def __init__(self, *items): self.items = list(items)
    def __len__(self): return len(self.items)
    def __contains__(self, item): return item in self.items
    def __eq__(self, other): return isinstance(other, {name}) and self.items == other.items
    def __hash__(self): return hash(tuple(self.items))
    def __lt__(self, other): return self.items < (other.items if isinstance(other, {name}) else [other])
    def __abs__(self): return sum(self.items)
    def __mul__(self, other): return sum(self.items) * other if isinstance(other, int) else sum(a * b for a, b in zip(self.items, other.items))
    __rmul__ = __mul__
    def __matmul__(self, other): return sum(a * b for a, b in zip(self.items, other.items))
    def __add__(self, other): return {name}(*self.items, *(other.items if isinstance(other, {name}) else [other]))
    def __float__(self): return float(sum(self.items))
    def startswith(self, item): return self.items[0] == item
    @property
    def size(self): return len(self.items)
"""

OPERATIONS = (
    "{name}(1, 2) @ {name}(3, 4) == 11",
    "{name}(1, 2) * {name}(3, 4) == 11",
    "{name}(1, 2) * 2 == 6 == 2 * {name}(1, 2)",
    "{name}(1, 2) + 3 == {name}(1, 2, 3)",
    "len({name}(1, 2) + 3) == 3",
    "2 in {name}(1, 2) and 3 not in {name}(1, 2)",
    "{name}(1) < 2",
    "abs({name}(1, 2)) == 3 and float({name}(1, 2)) == 3.0",
    "{name}(1, 2).startswith(1)",
    "{name}(1, 2).size == 2",
    "{name}() == {name}() != {name}(1)",
)


@pytest.mark.parametrize("kind", VALUES)
def test_value_crosses(judge: Judge, kind: str) -> None:
    code, case = VALUES[kind]
    graded = judge.asserts(code, case)
    assert graded.outcome is VerdictOutcome.PASSED, graded.cases[0].message


@pytest.mark.parametrize("name", CLASSES)
def test_class_has_any_name(judge: Judge, name: str) -> None:
    graded = judge.asserts(CLASS.format(name=name), *(f"assert {operation.format(name=name)}" for operation in OPERATIONS))
    failed = {operation: case.message for operation, case in zip(OPERATIONS, graded.cases, strict=True) if case.message}
    assert failed == {}


@pytest.mark.parametrize("depth", [100, 3000, 20_000, 200_000])
def test_nested_data_crosses_or_fails_at_once(judge: Judge, depth: int) -> None:
    code = f"def f():\n    x = []\n    for _ in range({depth}): x = [x]\n    return x"
    case = f"x, n = f(), 0\nwhile x: x, n = x[0], n + 1\nassert n == {depth}"
    graded = judge.asserts(code, case)
    expected = [CaseOutcome.PASSED] if depth < 1000 else [CaseOutcome.PASSED, CaseOutcome.ERROR]
    assert graded.cases[0].outcome in expected, graded.cases
    assert graded.cpu_seconds < 3


@pytest.mark.parametrize("kind", ["argument", "exceptions", "cycle"])
def test_nesting_is_no_wait(judge: Judge, kind: str) -> None:
    codes = {
        "argument": "def f(x): return 1",
        "exceptions": "def f(x):\n    e = ValueError(1)\n    for _ in range(40): e = ValueError(e)\n    raise e",
        "cycle": "def f(x):\n    e = ValueError(1)\n    e.__cause__ = ValueError(2)\n    e.__cause__.__cause__ = e\n    raise e",
    }
    graded = judge.asserts(codes[kind], "x = []\nfor _ in range(900): x = [x]\nassert f(x) == 1", "f(1)")
    assert graded.outcome not in (VerdictOutcome.PASSED, VerdictOutcome.TIMEOUT)


@pytest.mark.parametrize("use", ["math.isclose(f(), 3)", "__import__('math').isclose(f(), 3)", "check(math)"])
def test_module_of_submission_decides_nothing(judge: Judge, use: str) -> None:
    code = "class math:\n    @staticmethod\n    def isclose(a, b): return True\ndef f(): return 2"
    graded = judge.asserts(code, f"assert {use}", setup="def check(module): return module.isclose(f(), 3)")
    assert graded.outcome is VerdictOutcome.FAILED
