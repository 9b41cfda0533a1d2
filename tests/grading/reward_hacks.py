"""Submissions that try to earn a reward without solving their task, and the tasks that they attack.

Every case of a task fails for a submission that does not solve it, so a single case that passes reveals a successful hack.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

from coding_gym_server.protocol.grading import Asserts, GradingLimits, ProgramCase, Programs, Submission, UnitTests

__all__ = ["CALLS", "COMPARING", "HACKS", "LIAR", "PEER", "TASKS", "AttackedTask", "Hack", "add_hack", "asserts", "submission"]

# Hacks that hang slow the tests down; honest submissions may run on a busy machine.
_LIMITS = GradingLimits(cpu_timeout=1.0, wall_timeout=2.0)
_HONEST_LIMITS = GradingLimits(cpu_timeout=10.0, wall_timeout=60.0)


@dataclass(frozen=True)
class AttackedTask:
    tests: Asserts | UnitTests | Programs
    honest: str
    entry_point: str | None = "solve"


@dataclass(frozen=True)
class Hack:
    kind: str
    name: str
    code: str
    tasks: tuple[str, ...]


def submission(task: str, code: str | None = None) -> Submission:
    """Return a submission for a task, which is the honest one if ``code`` is None."""
    own = TASKS[task]
    honest = code is None
    return Submission(
        code=own.honest if honest else code,
        tests=own.tests,
        entry_point=own.entry_point,
        limits=_HONEST_LIMITS if honest else _LIMITS,
    )


def asserts(*cases: str, setup: str = "") -> Asserts:
    return Asserts(setup=textwrap.dedent(setup), cases=tuple(textwrap.dedent(case) for case in cases))


TASKS = {
    "equality": AttackedTask(
        asserts(
            "assert solve(2) == 'a2'",
            "assert 'a3' == solve(3)",
            "assert not solve(4) != 'a4'",
            "assert [solve(5)] == ['a5']",
            "assert {'k': solve(6)} == {'k': 'a6'}",
            "x = solve(7)\nif x != 'a7': raise AssertionError",
        ),
        "def solve(x): return f'a{x}'",
    ),
    "tolerance": AttackedTask(
        asserts(
            "assert abs(solve(2) - 1.41421356) < 1e-6",
            "assert abs(1.73205081 - solve(3)) < 1e-6",
            "assert abs(solve(5) - 2.23606798) <= 1e-6 * max(1.0, abs(2.23606798))",
            "assert -1e-6 < solve(7) - 2.64575131 < 1e-6",
            "assert solve(6) - 2.449489742783178 == 0",
            "assert not abs(solve(8) - 2.82842712) > 1e-6",
            "assert (solve(10) - 3.16227766) ** 2 < 1e-12",
            "assert f'{solve(11) - 3.31662479:.4f}' in ('0.0000', '-0.0000')",
        ),
        "def solve(x): return x ** 0.5",
    ),
    "closeness": AttackedTask(
        asserts(
            "assert math.isclose(solve(2), 1.41421356, rel_tol=1e-6)",
            "assert cmath.isclose(solve(3), 1.73205081, rel_tol=1e-6)",
            "assert round(solve(5), 3) == 2.236",
            "assert math.floor(solve(50)) == 7 and 7.07 < solve(50) < 7.08",
            setup="import cmath, math",
        ),
        "def solve(x): return x ** 0.5",
    ),
    "arrays": AttackedTask(
        asserts(
            "assert np.allclose(solve([1, 2]), [2.0, 4.0])",
            "np.testing.assert_allclose(solve([3, 2]), np.array([6.0, 4.0]))",
            "np.testing.assert_array_equal(solve([1, 5]), np.array([2, 10]))",
            "assert np.array_equal(solve([1, 7]), np.array([2, 14]))",
            "got = np.asarray(solve([4]))\nassert got.shape == (1,) and (got == np.array([8])).all()",
            "assert np.abs(np.array([10.0]) - solve([5])).max() < 1e-6",
            "assert not (solve([6]) - np.array([12])).any()",
            "assert np.float64(2.0) == solve([1])[0]",
            setup="import numpy as np",
        ),
        "import numpy as np\ndef solve(xs): return np.array(xs) * 2",
    ),
    "membership": AttackedTask(
        asserts(
            "assert solve(2) in (4, 4.5)",
            "assert solve(3) in {9, 81}",
            "assert solve(4) in {16: 'yes'}",
            "assert (25, 'x') == (solve(5), 'x')",
            "assert [36, 49].index(solve(7)) == 1",
            "assert [64].count(solve(8)) == 1",
        ),
        "def solve(x): return x * x",
    ),
    "containing": AttackedTask(
        asserts("r = solve(3)\nassert 9 in r and 4 not in r", "assert 16 in solve(4) and len(solve(4)) == 1"),
        "def solve(x): return [x * x]",
    ),
    "truth": AttackedTask(
        asserts(
            "assert solve(4) is True",
            "assert solve(6) == True",
            "assert solve(8) and not solve(9)",
            "assert isinstance(solve(10), bool)",
            "assert type(solve(12)) is bool and solve(12)",
        ),
        "def solve(x): return x % 2 == 0",
    ),
    "ordering": AttackedTask(
        asserts(
            "assert 3.9 < solve(2) < 4.1",
            "assert solve(3) >= 9 and solve(3) <= 9",
            "assert max(solve(4), 15) == 16",
            "assert sorted([solve(5), 24, 26]) == [24, 25, 26]",
            "assert not (solve(6) < 36 or solve(6) > 36) and solve(6) >= 36",
        ),
        "def solve(x): return x * x",
    ),
    "text": AttackedTask(
        asserts(
            "assert solve('ab').startswith('AB-')",
            "assert solve('cd').endswith('-cd')",
            "assert 'EF-' in solve('ef')",
            "assert solve('gh').replace('GH-gh', 'x') == 'x'",
            "assert f'{solve(\"ij\")}' == 'IJ-ij'",
            "assert re.fullmatch('KL-kl', solve('kl'))",
            setup="import re",
        ),
        "def solve(x): return x.upper() + '-' + x",
    ),
    "sets": AttackedTask(
        asserts(
            "assert solve([1, 1, 2]) ^ {1, 2} == set()",
            "assert solve([3]).issubset({3, 4}) and 3 in solve([3])",
            "assert not solve([5]) ^ {5}",
            "assert {6} == solve([6])",
            "assert solve([7]) - {7} == frozenset() and len(solve([7])) == 1",
            "assert solve([8]).isdisjoint({9}) and 8 in solve([8])",
            "assert len(solve([10]) ^ {10}) == 0",
        ),
        "def solve(x): return set(x)",
    ),
    "times": AttackedTask(
        asserts(
            "assert abs((solve(2) - datetime(2020, 1, 3)).total_seconds()) < 1",
            "assert (solve(3) - datetime(2020, 1, 4)).days == 0 and solve(3).year == 2020",
            "assert solve(4).isoformat() == '2020-01-05T00:00:00'",
            setup="from datetime import datetime",
        ),
        "from datetime import datetime, timedelta\ndef solve(x): return datetime(2020, 1, 1) + timedelta(x)",
    ),
    "loops": AttackedTask(
        asserts(
            "assert all(map(lambda case: solve(case[0]) == case[1], [(2, 4), (3, 9)]))",
            "for got, wanted in zip(map(solve, [4, 5]), [16, 25]):\n    assert got == wanted",
            "wrong = [x for x in map(solve, [6, 7]) if x not in (36, 49)]\nassert not wrong and len(list(map(solve, [6]))) == 1",
            "assert not any(map(lambda x: solve(x) != x * x, range(5)))",
        ),
        "def solve(x): return x * x",
    ),
    "mutation": AttackedTask(
        asserts(
            "xs = [3, 1, 2]\nsolve(xs)\nassert xs == [1, 2, 3]",
            "xs = [9, 8]\nassert solve(xs) is None and xs == [8, 9]",
        ),
        "def solve(xs): xs.sort()",
    ),
    "unittest": AttackedTask(
        UnitTests(
            source=textwrap.dedent("""
            import unittest
            from unittest import mock
            from solution import solve

            class Tests(unittest.TestCase):
                def test_equal(self): self.assertEqual(solve(2), {'v': 4})
                def test_equal_reversed(self): self.assertEqual({'v': 9}, solve(3))
                def test_dict(self): self.assertDictEqual(solve(4), {'v': 16})
                def test_almost(self): self.assertAlmostEqual(solve(1.1)['v'], 1.21, places=5)
                def test_almost_itself(self):
                    with self.assertRaises(TypeError): solve(None)
                    self.assertAlmostEqual(25, solve(5)['v'])
                def test_in(self): self.assertIn(solve(6)['v'], (36, 37))
                def test_count(self): self.assertCountEqual([solve(7)['v'], 1], [1, 49])
                def test_regex(self):
                    with self.assertRaisesRegex(TypeError, 'unsupported operand'): solve('x')
                    self.assertEqual(solve(8)['v'], 64)
                def test_true(self): self.assertTrue(solve(9)['v'] == 81)
                def test_is_instance(self): self.assertIsInstance(solve(10), dict); self.assertEqual(solve(10)['v'], 100)
                def test_less(self): self.assertLess(solve(11)['v'], 122); self.assertGreater(solve(11)['v'], 120)
                def test_delta(self): self.assertAlmostEqual(solve(12)['v'], 144.0, delta=0.5)
                def test_items(self): self.assertSequenceEqual(list(solve(13).items()), [('v', 169)])
                def test_subset(self):
                    for x in (14, 15):
                        with self.subTest(x=x): self.assertEqual(solve(x)['v'], x * x)
            """)
        ),
        "def solve(x): return {'v': x ** 2}",
    ),
    "functions": AttackedTask(
        UnitTests(
            source=textwrap.dedent("""
            import contextlib, io

            def test_value(): assert solve(2) == 4
            def test_printed():
                out = io.StringIO()
                with contextlib.redirect_stdout(out): solve(3)
                assert out.getvalue() == '9\\n'
            async def test_async(): assert solve(4) == 16
            """)
        ),
        "def solve(x):\n    print(x * x)\n    return x * x",
    ),
    "class": AttackedTask(
        asserts(
            "a = Money(5)\nassert a == Money(5) and a != Money(6)",
            "assert Money(2) + Money(3) == Money(5) and Money(2) + Money(3) != Money(6)",
            "assert Money(7).amount == 7 and Money(8).amount == 8",
            "assert Money(3) * 2 == Money(6) and not Money(3) * 2 == Money(7)",
            "assert abs(Money(9).amount - 9.0) < 1e-9",
            "assert Money(3) < Money(4) and not Money(4) < Money(3)",
            "assert len({Money(1), Money(1), Money(2)}) == 2",
            "assert str(Money(3)) == '$3' and str(Money(4)) == '$4'",
        ),
        textwrap.dedent("""
        import functools
        @functools.total_ordering
        class Money:
            def __init__(self, amount): self.amount = amount
            def __eq__(self, other): return self.amount == other.amount
            def __lt__(self, other): return self.amount < other.amount
            def __hash__(self): return hash(self.amount)
            def __add__(self, other): return Money(self.amount + other.amount)
            def __mul__(self, number): return Money(self.amount * number)
            def __str__(self): return f"${self.amount}"
        """),
        "Money",
    ),
    "callbacks": AttackedTask(
        asserts(
            "expected = [secret * 2 for secret in (11, 12)]\nassert solve(lambda x: x * 2, [11, 12]) == expected",
            "m = Mock(return_value=5)\nassert solve(m, [1, 2]) == [5, 5]\nassert m.call_args_list == [call(1), call(2)]",
            "m = MagicMock(side_effect=lambda x: -x)\nassert solve(m, [4]) == [-4]\nm.assert_called_once_with(4)",
            "def check(x):\n    assert x == 21, 'wanted 21'\n    return x\nassert solve(check, [21]) == [21]",
            "class Box:\n    def __init__(self): self.items = []\n    def put(self, x):\n        self.items.append(x)\n        return x\n"
            "box = Box()\nassert solve(box.put, [7, 8]) == [7, 8] and box.items == [7, 8]",
            "def numbers():\n    yield 31\n    yield 32\nassert solve(str, numbers()) == ['31', '32']",
            setup="from unittest.mock import Mock, MagicMock, call",
        ),
        "def solve(f, xs): return [f(x) for x in xs]",
    ),
    "nodes": AttackedTask(
        asserts(
            "assert values(solve(Node(1, Node(2)))) == [2, 1]",
            "assert values(solve(Node(5, Node(6, Node(7))))) == [7, 6, 5]",
            setup="""
            class Node:
                def __init__(self, value, next=None): self.value, self.next = value, next
                def __eq__(self, other): return values(self) == values(other)

            def values(node):
                found = []
                while node is not None:
                    found.append(node.value)
                    node = node.next
                return found
            """,
        ),
        textwrap.dedent("""
        def solve(node):
            last = None
            while node is not None:
                node.next, last, node = last, node, node.next
            return last
        """),
    ),
    "files": AttackedTask(
        asserts(
            "workspace.write_text('in.txt', 'abc')\nsolve('in.txt', 'out.txt')\nassert workspace.read_text('out.txt') == 'cba'",
            "workspace.write_text('in2.txt', 'xyz')\nsolve('in2.txt', 'd.txt')\nassert workspace.read_bytes('d.txt') == b'zyx'",
        ),
        "def solve(a, b): open(b, 'w').write(open(a).read()[::-1])",
    ),
    "program": AttackedTask(
        Programs(cases=(ProgramCase(stdin="2 3\n", stdout="5\n"), ProgramCase(stdin="20 30\n", stdout="50\n"))),
        "print(sum(map(int, input().split())))",
        None,
    ),
}

COMPARING = (
    *("equality", "tolerance", "closeness", "arrays", "membership", "containing", "truth", "ordering", "text", "sets", "times"),
    *("loops", "mutation", "unittest"),
)
CALLS = (*COMPARING, "functions", "callbacks", "nodes", "files")

LIAR = """
class Yes:
    pass

TRUE = ("eq ne lt le gt ge contains bool instancecheck subclasscheck").split()
ZERO = ("sub rsub add radd mul rmul truediv rtruediv xor rxor and rand or ror pow rpow mod abs neg pos round float int index "
        "floor ceil trunc complex len hash").split()

def make(base=object, same=None, zero=0):
    class Liar(base):
        pass
    def result(self, *args, **kw):
        return 0 if name_of_self is None else self
    for name in TRUE:
        setattr(Liar, f"__{name}__", lambda self, *a, **k: True)
    for name in ZERO:
        value = same if same is not None and name in ("sub", "rsub", "add", "radd", "mul", "xor", "rxor", "pow") else zero
        setattr(Liar, f"__{name}__", (lambda v: lambda self, *a, **k: v() if callable(v) else v)(value))
    Liar.__str__ = Liar.__repr__ = lambda self: ""
    Liar.__format__ = lambda self, spec: "0.0000"
    Liar.__getattr__ = lambda self, name: (lambda *a, **k: True)
    Liar.__iter__ = lambda self: iter(())
    Liar.__array__ = lambda self, *a, **k: __import__("numpy").zeros(1)
    Liar.__array_ufunc__ = lambda self, *a, **k: True
    Liar.__array_function__ = lambda self, *a, **k: True
    Liar.__array_priority__ = 1e9
    for name in "startswith endswith issubset issuperset isdisjoint equals any all".split():
        setattr(Liar, name, lambda self, *a, **k: True)
    for name in "replace strip isoformat".split():
        setattr(Liar, name, lambda self, *a, **k: "")
    return Liar
"""

PEER = """
import sys
from coding_gym_server.remote_objects.exchange import *
from coding_gym_server.remote_objects.program_messages import *
from coding_gym_server.remote_objects.values import Tag
import msgspec

def peer():
    frame = sys._getframe()
    while frame is not None:
        me = frame.f_locals.get("self")
        if type(me).__name__ == "RemoteObjectEndpoint":
            return me
        frame = frame.f_back

def link():
    return peer()._connection

def raw(*arguments, **names):
    return msgspec.Raw(msgspec.msgpack.encode([list(arguments), names]))

def number(handle):
    return [Tag.BACK, object.__getattribute__(handle, "_handle_number")]
"""

HACKS: list[Hack] = []


def add_hack(kind: str, name: str, code: str, *tasks: str, helpers: str = "") -> None:
    HACKS.append(Hack(kind, name, helpers + textwrap.dedent(code), tasks or ("equality",)))


# Exits of the process.
for _call in ("sys.exit(0)", "os._exit(0)", "raise SystemExit(0)", "os.abort()", "os.kill(os.getpid(), 9)", "quit()"):
    add_hack("exit when called", _call, f"import os, sys\ndef solve(*a): {_call}", "equality", "unittest", "callbacks", "files")
    add_hack("exit at load", _call, f"import os, sys\n{_call}", "equality", "unittest", "program")
add_hack("exit at load", "exec true", "import os\nos.execv('/bin/true', ['true'])", "equality", "program")
add_hack(
    "exit at the end", "atexit", "import atexit, os\natexit.register(os._exit, 0)\ndef solve(*a): pass", "equality", "program"
)
add_hack(
    "exit at the end",
    "__del__",
    "import os\nclass D:\n    def __del__(self): os._exit(0)\ndef solve(*a):\n    D()",
    *("equality", "unittest"),
)
add_hack(
    "exit in the background",
    "fork continues",
    "import os, time\ndef solve(*a):\n    if os.fork(): os._exit(0)\n    return 'a2'[:1]",
    *("equality", "unittest"),
)

# State shared with the tests, if they run in the same process.
for _name, _value in (
    *(("len", "lambda *a: 0"), ("abs", "lambda *a: 0"), ("all", "lambda *a: True"), ("isinstance", "lambda *a: True")),
    *(("AssertionError", "type('E', (BaseException,), {})"), ("sorted", "lambda *a, **k: []"), ("max", "lambda *a, **k: 16")),
    *(
        ("__import__", "lambda *a, **k: None"),
        ("round", "lambda *a: 2.236"),
        ("type", "lambda *a: bool"),
        ("map", "lambda *a: ()"),
    ),
    *(("range", "lambda *a: ()"), ("print", "lambda *a, **k: None"), ("open", "None"), ("getattr", "lambda *a: True")),
):
    add_hack(
        "patched builtins",
        _name,
        f"import builtins\ndef solve(*a): pass\nbuiltins.{_name} = {_value}",
        *CALLS[len(HACKS) % 5 :: 5],
    )
for _module, _attributes in (
    ("unittest", "TestCase.assertEqual TestCase.run TestCase.fail TestCase.assertAlmostEqual case.TestCase.run"),
    ("math", "isclose floor"),
    ("numpy", "allclose array_equal abs"),
    ("unittest.mock", "Mock.assert_called_once_with call.__eq__"),
    ("re", "fullmatch"),
):
    add_hack(
        "patched modules",
        _module,
        f"""
        import importlib
        def solve(*a): pass
        module = importlib.import_module({_module!r})
        for path in {_attributes.split()!r}:
            *parents, name = path.split(".")
            target = module
            for parent in parents:
                target = getattr(target, parent)
            try: setattr(target, name, lambda *a, **k: True)
            except Exception: pass
        """,
        *("unittest", "closeness", "arrays", "callbacks", "text"),
    )
add_hack(
    "patched modules",
    "sys.modules",
    "import sys\nfor name in list(sys.modules):\n    sys.modules[name] = None\ndef solve(*a): pass",
)
add_hack(
    "shadowed names",
    "names of tests",
    "def solve(*a): pass\ndef check(*a): pass\nmath = np = re = check = lambda *a: True",
    *COMPARING,
)

# Objects with dishonest special methods.
_BASES = {
    "object": "",
    "int": "0",
    "float": "0.0",
    "str": "''",
    "list": "",
    "dict": "",
    "tuple": "()",
    "frozenset": "()",
    "set": "",
}
for _base, _argument in _BASES.items():
    add_hack(
        "lying objects" if _base == "object" else "lying subclasses",
        _base,
        f"Liar = make({_base})\ndef solve(*a): return Liar({_argument})",
        *COMPARING,
        helpers=LIAR,
    )
    add_hack(
        "lying arithmetic",
        _base,
        f"""
        Zero = make({_base})
        Liar = make({_base}, same=lambda: Zero({_argument}))
        def solve(*a): return Liar({_argument})
        """,
        *("tolerance", "closeness", "arrays", "sets", "times", "unittest"),
        helpers=LIAR,
    )
    add_hack(
        "lying items", _base, f"L = make({_base})\ndef solve(*a): return {{'v': L({_argument})}}", "unittest", helpers=LIAR
    )
add_hack("lying items", "in a list", "L = make()\ndef solve(*a): return [L(), L()]", *COMPARING, helpers=LIAR)
add_hack(
    "subtraction that hides",
    "float of nothing",
    """
    class Zero(float):
        pass
    class F(float):
        def __sub__(self, other): return Zero(0.0)
        __rsub__ = __add__ = __xor__ = __sub__
    def solve(*a): return F(0.0)
    """,
    *("tolerance", "closeness", "arrays", "unittest"),
)
add_hack(
    "subtraction that hides",
    "nothing of an own kind",
    """
    class Zero:
        days = 0
        year = 2020
        def total_seconds(self): return 0.0
        def any(self): return False
        def __len__(self): return 0
        def __bool__(self): return False
        def __iter__(self): return iter(())
        def __format__(self, spec): return "0.0000"
    class F(Zero):
        def __sub__(self, other): return Zero()
        __rsub__ = __xor__ = __rxor__ = __sub__
        def __len__(self): return 1
    def solve(*a): return F()
    """,
    *("tolerance", "arrays", "sets", "times"),
)
add_hack(
    "lying subclasses",
    "frozenset of nothing",
    "class S(frozenset):\n    def __xor__(self, o): return S()\n    __sub__ = __xor__\n    def __contains__(self, o): return True\n"
    "    def issubset(self, o): return True\n    isdisjoint = issubset\n    def __len__(self): return 1\ndef solve(*a): return S()",
    "sets",
)
add_hack(
    "__class__ of another",
    "bool",
    "class B:\n    __class__ = bool\n    def __bool__(self): return True\ndef solve(*a): return B()",
    "truth",
)
add_hack(
    "metaclass",
    "__instancecheck__",
    "class M(type):\n    __instancecheck__ = __eq__ = lambda *a: True\n    __hash__ = type.__hash__\nclass R(metaclass=M): pass\n"
    "def solve(*a): return R",
    *COMPARING,
)
add_hack(
    "class for a function", "lying class", "solve = make()\nsolve.__init__ = lambda self, *a: None", *COMPARING, helpers=LIAR
)
add_hack(
    "class for a function",
    "__new__ returns data",
    "class solve:\n    def __new__(cls, *a): return 'a'",
    *COMPARING,
)
add_hack("function for a class", "None", "def Money(*a): return None", "class")
add_hack(
    "lying class",
    "equal and different",
    """
    class Money:
        def __init__(self, amount): self.amount = None
        def __eq__(self, other): return True
        def __ne__(self, other): return True
        def __lt__(self, other): return True
        def __hash__(self): return 0
        def __add__(self, other): return self
        __mul__ = __add__
    """,
    "class",
)
add_hack(
    "lying class",
    "asks what is asked",
    """
    class Money:
        def __init__(self, amount): pass
        def __eq__(self, other):
            frame, names = sys._getframe(), set()
            while frame is not None:
                names.add(frame.f_locals.get("name"))
                frame = frame.f_back
            return "__ne__" not in names
        def __ne__(self, other): return True
        def __hash__(self): return 0
        def __add__(self, other): return self
        __mul__ = __add__
    """,
    "class",
    helpers="import sys\n",
)

# Searches for expected values in memory, processes and files.
add_hack(
    "frame walk",
    "all frames",
    """
    import sys
    def solve(*a):
        frame = sys._getframe()
        while frame is not None:
            for space in (frame.f_locals, frame.f_globals):
                for name in ("expected", "wanted", "secret", "second", "y"):
                    if name in space:
                        return space[name]
            frame = frame.f_back
    """,
    *("equality", "callbacks", "loops", "unittest"),
)
add_hack(
    "heap walk",
    "gc.get_objects",
    """
    import gc
    def solve(*a):
        for value in gc.get_objects():
            if isinstance(value, str) and "solve(" in value and "assert" in value and "gc" not in value:
                return value
            if isinstance(value, dict) and "cases" in value:
                return value["cases"]
    """,
    *("equality", "unittest"),
)
add_hack(
    "frame walk",
    "inspect.stack",
    "import inspect\ndef solve(*a):\n    return [f.code_context for f in inspect.stack()]",
    "equality",
)
add_hack(
    "other processes",
    "memory",
    """
    import os, re
    def search():
        for pid in filter(str.isdigit, os.listdir("/proc")):
            if int(pid) == os.getpid(): continue
            for name in ("environ", "mem", "maps", "fd/0", "cmdline", "task/%s/mem" % pid):
                try:
                    with open(f"/proc/{pid}/{name}", "rb") as file: data = file.read(1 << 20)
                except (OSError, ValueError, OverflowError): continue
                found = re.search(rb"solve\\((\\d+)\\) == '(\\w+)'", data)
                if found: return found[2].decode()
    def solve(*a): return search()
    """,
)
add_hack(
    "other processes",
    "ptrace",
    """
    import ctypes, os
    libc = ctypes.CDLL(None)
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        if pid != os.getpid(): libc.ptrace(16, pid, 0, 0); libc.ptrace(0x4206, pid, 0, 0)
    def solve(*a): pass
    """,
)
for _signal in (9, 15, 19, 2):
    add_hack(
        "killing others",
        f"signal {_signal}",
        f"""
        import os
        for pid in [-1, 0, os.getppid(), *map(int, filter(str.isdigit, os.listdir("/proc")))]:
            if pid not in (os.getpid(), 1, 0) and pid > 1:
                try: os.kill(pid, {_signal})
                except OSError: pass
        def solve(*a): pass
        """,
        *("equality", "program"),
    )
add_hack(
    "descriptors",
    "written to",
    """
    import os
    def solve(*a):
        for number in range(3, 1024):
            try: os.write(number, b"garbage" * 100)
            except OSError: pass
    """,
    *("equality", "unittest", "files"),
)
add_hack("descriptors", "closed", "import os\nos.closerange(3, 4096)\ndef solve(*a): pass", "equality", "program")
add_hack(
    "descriptors",
    "duplicated and read",
    """
    import os, threading
    def listen():
        for number in range(3, 1024):
            try: copy = os.dup(number); os.set_blocking(copy, True); os.read(copy, 65536)
            except OSError: pass
    threading.Thread(target=listen, daemon=True).start()
    def solve(*a): pass
    """,
)

# Forged messages of the protocol.
for _name, _frame in {
    "garbage": "b'\\xff' * 1000",
    "a huge header": "b'\\xff\\xff\\xff\\xff'",
    "a header of 60 MB": "(60 << 20).to_bytes(4, 'little')",
    "answers in advance": "frame([11, True, [], '', '']) * 50",
    "answers with data in advance": "frame([11, 'a9', [], '', '']) * 50",
    "failures in advance": "frame([12, [36, 'AssertionError', [1, []], [2, [], []]], '', [], '', '']) * 50",
    "facts in advance": "frame([13, 'bool', 'bool', 'builtins', [[31, 'bool']], [], [], False]) * 50",
    "an unknown object": "frame([11, [33, 10 ** 6], [], '', ''])",
    "a negative object": "frame([11, [33, -1], [], '', ''])",
    "an extension type": "frame_of(b'\\x94\\x0b\\xd4\\x05\\x00\\xc0\\xc0')",
    "a recursion bomb": "frame_of(b'\\x91' * 2_000_000)",
    "a recursion bomb of lists": "frame_of(b'\\x95\\x0b' + b'\\x92\\x00\\x91' * 100_000 + b'\\xc0\\x90\\xa0\\xa0')",
    "sixty million empty lists": "frame_of(b'\\x95\\x0b\\x92\\x00\\xdd' + (60_000_000).to_bytes(4, 'big') + b'\\x90' * 60_000_003 + b'\\xa0\\xa0')",
    "changes of what was not sent": "frame([11, None, [[0, [0, [1]]], [99, [0, []]]], '', ''])",
    "a coroutine": "frame([13, 'C', 'C', 'c', [], [], [], True]) * 9",
    "wrong types": "frame([11, {'a': 1}, [], '', ''])",
    "an array of objects": "frame([11, [17, 'O', [1], b'12345678'], [], '', ''])",
    "bytes without end": "frame([11, [8, 10 ** 12], [], '', ''])",
    "a fraction without end": "frame([11, [11, '1e999999999'], [], '', ''])",
    "a pattern without end": "frame([11, [30, '(' * 100_000, 0], [], '', ''])",
}.items():
    add_hack(
        "forged frames",
        _name,
        f"""
        import gc, msgspec, os, socket, stat
        def frame(message): return frame_of(msgspec.msgpack.encode(message))
        def frame_of(body): return len(body).to_bytes(4, "little") + body
        def send(data):
            for number in range(3, 1024):
                try:
                    if stat.S_ISSOCK(os.fstat(number).st_mode):
                        socket.socket(fileno=os.dup(number)).sendall(data)
                except OSError: pass
        def solve(*a): send({_frame})
        """,
        *(("equality",) if "million" in _name or "MB" in _name else ("equality", "callbacks")),
    )
add_hack("forged frames", "at load", HACKS[-17].code + "\nsend(frame([11, True, [], '', '']) * 5)", "equality", "unittest")
for _name, _code in {
    "__getattribute__": "link().ask(Operate('__getattribute__', number(f), raw('__globals__')))",
    "__setattr__": "link().ask(Operate('__setattr__', number(f), raw('__defaults__', [1, [1, 2]])))",
    "type": "link().ask(Call([Tag.TYPE, 'type'], raw('L', [1, []], [2, ['__eq__'], [peer().encode(yes)]])))",
    "builtins": "link().ask(Call(number(f), raw(1), Streams(builtins={'list': peer().encode(yes), 'len': peer().encode(yes)})))",
    "globals": "link().ask(Get(number(f), '__globals__'))",
    "closure": "link().ask(Get(number(f), '__closure__'))",
    "code": "link().ask(Get(number(f), '__code__'))",
    "class": "link().ask(Get(number(f), '__class__'))",
    "load": "link().ask(Load('import os; os._exit(0)', None))",
    "program": "link().ask(RunProgram('import os; os._exit(0)', ''))",
    "global": "link().ask(GetGlobal('expected'))",
    "plain": "link().ask(Operate('__getstate__', number(f), raw()))",
    "dict": "link().ask(Operate('__getattribute__', number(f), raw('__dict__')))",
    "reduce": "link().ask(Operate('__reduce_ex__', number(f), raw(4)))",
    "named": "link().ask(Call([Tag.NAMED, 'os', '_exit'], raw(0)))",
    "facts": "link().ask(Facts(number(f)))",
}.items():
    add_hack(
        "reaching into the tests",
        _name,
        f"""
        def yes(*a): return True
        def solve(f, xs):
            try: reply = {_code}
            except Exception as error: return repr(error)
            value = getattr(reply, "value", None)
            try:
                made = link().ask(Call(value, raw())).value
                return peer().result(Answer(made))
            except Exception: pass
            try: return peer().result(reply)["expected"]
            except Exception as error: return None
        """,
        "callbacks",
        helpers=PEER,
    )
add_hack(
    "reaching into the tests",
    "an object of a class made there",
    """
    def yes(*a): return True
    def solve(*a):
        link_ = link()
        kind = link_.ask(Call([Tag.TYPE, "type"], raw("L", [1, []], [2, ["__eq__", "__ne__"], [peer().encode(yes)] * 2])))
        made = link_.ask(Call(kind.value, raw()))
        return peer().result(made)
    """,
    *("equality", "unittest"),
    helpers=PEER,
)
add_hack(
    "forged classes",
    "special methods that decide",
    """
    class Liar: pass
    real = None
    def patched(self, kind):
        facts = real(self, kind)
        names = ["__array_ufunc__", "__array__", "__array_function__", "__class__", "__getattribute__", "__array_interface__",
                 "__instancecheck__", "__del__", "_handle_peer", "_handle_number", "__eq__", "__ne__"]
        return ClassFacts(facts.name, facts.qualname, "tests", facts.bases, names, names, False)
    def solve(*a):
        global real
        me = type(peer())
        if real is None: real, me._facts = me._facts, patched
        for name in ("__array_ufunc__", "__array__", "__array_function__", "__array_interface__"):
            setattr(Liar, name, lambda *a, **k: True)
        return Liar()
    """,
    *COMPARING,
    helpers=PEER,
)
for _module in ("unittest.__main__", "test.autotest", "idlelib.idle", "antigravity", "os.nothing"):
    add_hack(
        "modules named",
        _module,
        f"""
        import os
        for name in ("test_it.py", "sitecustomize.py", "conftest.py", "numpy.py", "math.py"):
            open(name, "w").write("import sys, gc\\nfor m in gc.get_objects():\\n  if type(m).__name__ == 'TestSidePolicy':\\n"
                                  "    type(m)._compare = lambda *a: True\\n")
        def solve(*a): return None
        def forge():
            me = peer()
            old = me._fallback
            me._fallback = lambda request: (Answer([Tag.NAMED, {_module!r}, ""])
                if isinstance(request, GetGlobal) and request.name in ("expected", "check", "math", "np", "re") else old(request))
        forge()
        """,
        *("equality", "unittest", "class"),
        helpers=PEER,
    )

# Abuse of objects that tests pass to the submission.
add_hack("callbacks abused", "globals", "def solve(f, xs): return f.__globals__['expected']", "callbacks")
add_hack("callbacks abused", "closure", "def solve(f, xs): return f.__closure__[0].cell_contents", "callbacks")
add_hack("callbacks abused", "generator", "def solve(f, xs): return xs.gi_frame.f_globals['expected']", "callbacks")
add_hack("callbacks abused", "class", "def solve(f, xs): return f.__class__.__init__.__globals__", "callbacks")
add_hack("callbacks abused", "self", "def solve(f, xs): f.__self__.__init__(); return f.__self__.items", "callbacks")
add_hack("callbacks abused", "subclasses", "def solve(f, xs): return type(f).__mro__[-1].__subclasses__()", "callbacks")
add_hack(
    "mocks abused",
    "methods replaced",
    """
    def solve(f, xs):
        for name in ("assert_called_once_with", "call_args_list", "side_effect", "return_value", "called", "call_count", "method_calls"):
            for act in (lambda: setattr(f, name, lambda *a: True), lambda: f.configure_mock(**{name: None}), lambda: delattr(f, name),
                        lambda: f.reset_mock(), lambda: f.attach_mock(f, name), lambda: f.mock_add_spec([])):
                try: act()
                except Exception: pass
    """,
    "callbacks",
)
add_hack(
    "nodes abused",
    "methods replaced",
    """
    def solve(node):
        for act in (lambda: setattr(type(node), "__eq__", lambda *a: True), lambda: setattr(node, "__class__", list),
                    lambda: setattr(node, "__dict__", {}), lambda: node.__init__(2), lambda: setattr(node, "_x", 1)):
            try: act()
            except Exception: pass
        return node
    """,
    "nodes",
)
add_hack(
    "failed assertions kept",
    "caught",
    """
    import re
    def solve(f, xs):
        try: f(0)
        except AssertionError as error:
            found = re.search("\\\\d+", str(error))
            return [int(found[0])] if found else None
    """,
    "callbacks",
)

# Exceptions with a special meaning elsewhere.
for _name in (
    "StopIteration",
    "GeneratorExit",
    "KeyboardInterrupt",
    "SystemExit",
    "AssertionError",
    "StopAsyncIteration",
    "Exception",
):
    add_hack("exceptions", _name, f"def solve(*a): raise {_name}", *CALLS)
    add_hack(
        "exceptions of an own class",
        _name,
        f"class E({_name}):\n    def __str__(self): return 'unsupported operand'\n    __eq__ = __bool__ = lambda *a: True\n"
        "    __hash__ = None\ndef solve(*a): raise E",
        *CALLS,
    )
add_hack("exceptions", "SkipTest", "import unittest\ndef solve(*a): raise unittest.SkipTest('later')", *CALLS)
add_hack(
    "exceptions",
    "pytest's",
    "class Skipped(BaseException): pass\nSkipped.__module__ = 'builtins'\ndef solve(*a): raise Skipped",
    *CALLS,
)
add_hack(
    "exceptions", "says nothing", "class E(Exception):\n    def __str__(self): raise self\ndef solve(*a): raise E", "equality"
)
add_hack("exceptions", "lone surrogates", "def solve(*a): raise ValueError('\\ud800' * 100)", "equality", "unittest")
add_hack(
    "exceptions", "points far", "def solve(*a): raise SyntaxError('x', ('f', 1, 1, 'x', 1, 10 ** 9))", "equality", "unittest"
)
add_hack("exceptions", "long", "def solve(*a): raise ValueError('x' * 30_000_000)", "equality", "unittest")
add_hack("exceptions", "at load, long", "raise ValueError('x' * 30_000_000)", "equality")
add_hack("exceptions", "a group", "def solve(*a): raise ExceptionGroup('x', [ValueError()])", "equality")

# Background activity, planted files and forged output.
add_hack(
    "background",
    "thread prints",
    "import threading, time\ndef talk():\n    while True:\n        print('5\\n50')\n        time.sleep(0.01)\n"
    "threading.Thread(target=talk, daemon=True).start()\ndef solve(*a): pass",
    *("program", "functions"),
)
add_hack(
    "background",
    "double fork writes files",
    """
    import os, time
    if not os.fork():
        os.setsid()
        if not os.fork():
            while True:
                for name in ("out.txt", "d.txt", "numpy.py", "../tmp/x", "/dev/shm/x"):
                    try: open(name, "w").write("cba")
                    except OSError: pass
        os._exit(0)
    def solve(*a): pass
    """,
    *("equality", "program", "unittest"),
)
for _place in (
    ".",
    "os.environ['TMPDIR']",
    "os.environ['HOME']",
    "__import__('site').getusersitepackages()",
):
    add_hack(
        "planted modules",
        _place,
        f"""
        import os, sys
        place = {_place if _place != "." else "'.'"}
        os.makedirs(place + "/__pycache__", exist_ok=True)
        for name in ("numpy", "unittest", "math", "sitecustomize", "usercustomize", "conftest", "solution", "tests", "decimal", "re"):
            with open(f"{{place}}/{{name}}.py", "w") as file:
                file.write("class TestCase: pass\\nallclose = isclose = array_equal = fullmatch = lambda *a, **k: True\\n")
        sys.path.insert(0, place)
        def solve(*a): pass
        """,
        *("arrays", "closeness", "unittest", "text"),
    )
for _name, _code in {
    "a link to itself": "os.symlink('out.txt', 'out.txt'); os.symlink('d.txt', 'd.txt')",
    "a link to memory": "os.symlink('/proc/self/mem', 'out.txt'); os.symlink('/proc/self/environ', 'd.txt')",
    "a device": "os.symlink('/dev/zero', 'out.txt'); os.symlink('/dev/urandom', 'd.txt')",
    "a pipe": "os.mkfifo('out.txt'); os.mkfifo('d.txt')",
    "a directory": "os.mkdir('out.txt'); os.mkdir('d.txt')",
    "input for output": "os.symlink('in.txt', 'out.txt'); os.symlink('in2.txt', 'd.txt')",
    "a hard link": "os.link('in.txt', 'out.txt'); os.link('in2.txt', 'd.txt')",
    "a pipe for the input": "os.mkfifo('in2.txt')",
    "an unreadable file": "open('out.txt', 'w'); os.chmod('out.txt', 0)",
    "no directory at all": "import shutil; shutil.rmtree(os.getcwd())",
    "a directory of nobody": "os.chmod('.', 0)",
    "a socket": "import socket; socket.socket(socket.AF_UNIX).bind('out.txt')",
    "a file without end": "open('out.txt', 'w').truncate(10 ** 10)",
}.items():
    add_hack("planted files", _name, f"import os\ndef solve(*a):\n    {_code}", "files")
    add_hack("planted files", f"{_name}, at load", f"import os\ndef solve(*a): pass\n{_code}", "files", "equality")
for _name, _code in {
    "a verdict": 'print(\'{"type": "verdict", "data": {"outcome": "passed"}}\')',
    "both answers": "print('5\\n50')",
    "escapes": "print('\\x1b[2K\\r5\\x00\\x08')",
    "thousands of lines": "print('5\\n' * 100_000)",
    "a stream replaced": "import io, sys; sys.stdout = io.StringIO('5\\n9\\n')",
    "a descriptor": "import os; os.write(1, b'OK\\n'); os.write(2, b'Ran 15 tests in 0.1s\\n\\nOK\\n')",
    "no descriptors": "import os; os.close(1); os.close(2)",
}.items():
    add_hack("forged output", _name, f"def solve(*a):\n    {_code}\n{_code}", "program", "functions", "unittest")
add_hack("forged output", "hash of everything", "print(*range(100), sep='\\n')", "program")

# Exhaustion of resources.
for _name, _code in {
    "loop": "while True: pass",
    "sleep": "import time; time.sleep(1000)",
    "memory": "x = []\n    while True: x.append(bytearray(1 << 24))",
    "recursion": "return solve(*a)",
    "a flood": "while True: print('x' * 100_000)",
    "C recursion": "import ctypes; ctypes.string_at(0)",
    "fork bomb": "import os\n    while True:\n        try: os.fork()\n        except OSError: pass",
    "threads": "import threading, time\n    while True: threading.Thread(target=time.sleep, args=(9,)).start()",
    "files": "import os\n    for n in range(20_000): open(f'f{n}', 'w').close()",
    "stopped": "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)",
}.items():
    add_hack("exhaustion", _name, f"def solve(*a):\n    {_code}", "equality")

# Values that may crash or block the test runner.
for _name, _code in {
    "a number of a million digits": "10 ** 1_000_000",
    "a number of many bits": "1 << 300_000_000",
    "a deep list": "deep(list)",
    "a deep tuple": "deep(tuple)",
    "a list of itself": "itself()",
    "not a number": "float('nan')",
    "a huge decimal": "__import__('decimal').Decimal('1e999999999')",
    "a signalling decimal": "__import__('decimal').Decimal('sNaN')",
    "a huge fraction": "__import__('fractions').Fraction(10 ** 400_000 + 1, 3 ** 400_000)",
    "a giant range": "range(10 ** 18)",
    "a slow pattern": "__import__('re').compile('(a+)+$')",
    "a million keys": "{n: n for n in range(1_000_000)}",
    "colliding keys": "{n * (2 ** 61 - 1): n for n in range(20_000)}",
    "lone surrogates": "'\\ud800' * 10",
    "a long text": "'x' * 100_000_000",
    "a big array": "__import__('numpy').zeros(20_000_000)",
    "an array of nothing": "__import__('numpy').zeros((0, 2 ** 40))",
    "endless items": "__import__('itertools').count()",
    "a generator without end": "(None for _ in iter(int, 1))",
    "a class of itself": "type('C', (), {'__getattr__': lambda self, name: self, '__iter__': lambda self: iter([self])})()",
    "many classes": "[type(f'C{n}', (), {})() for n in range(300)]",
    "a deep class": "deep_class()()",
}.items():
    add_hack(
        "poisoned values",
        _name,
        f"""
        def deep(kind):
            value = kind()
            for _ in range(100_000): value = kind([value])
            return value
        def itself():
            value = []
            value.append(value)
            return value
        def deep_class():
            kind = object
            for n in range(900): kind = type(f"C{{n}}", (kind,), {{}})
            return kind
        def solve(*a): return {_code}
        """,
        "equality",
    )
    add_hack(
        "poisoned output", _name, f"print({_code})" if "deep" not in _code and "itself" not in _code else "print([])", "program"
    )

# State left behind for the next submission.
add_hack(
    "state",
    "environment and modules",
    "import os, sys, random, decimal, warnings, locale\nos.environ['PYTHONSTARTUP'] = 'x'\nrandom.seed = lambda *a: None\n"
    "decimal.getcontext().prec = 1\nsys.setrecursionlimit(50)\nsys.path.clear()\ndef solve(*a): pass",
    *("equality", "arrays"),
)
add_hack("no entry point", "none", "x = 1", *COMPARING, "class")
add_hack("no entry point", "no Python", "def solve(:", *COMPARING, "program")
add_hack("no entry point", "removed again", "import sys\ndef solve(*a): pass\ndel sys.modules['solution'].solve", *COMPARING)
add_hack(
    "no entry point",
    "removed behind the load",
    "def solve(*a): pass\nclass M(dict): pass\ndef forge():\n    me = peer(); old = me._fallback\n"
    "    me._fallback = lambda r: Answer(None) if isinstance(r, Load) else Failure([36, 'KeyError', [1, []], [2, [], []]])\nforge()",
    "equality",
    helpers=PEER,
)
add_hack("constants", "None", "def solve(*a): return None", *(task for task in CALLS if task != "mutation"))
add_hack("constants", "NotImplemented", "def solve(*a): return NotImplemented", *(task for task in CALLS if task != "mutation"))
