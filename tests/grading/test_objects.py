"""Honest submissions whose objects stay in their process: tests can use them as if both shared one process."""

from __future__ import annotations

import textwrap

import pytest

from coding_gym_server.protocol.grading import VerdictOutcome
from tests.grading.judging import Judge

_ASSERTS = {
    "properties and methods": (
        """
        class Circle:
            count = 0
            def __init__(self, r): self.r = r; type(self).count += 1
            @property
            def area(self): return 3 * self.r ** 2
            @area.setter
            def area(self, value): self.r = (value / 3) ** 0.5
            @classmethod
            def unit(cls): return cls(1)
            @staticmethod
            def name(): return "circle"
            def __repr__(self): return f"Circle({self.r})"
        """,
        "c = Circle(2)\nassert c.area == 12\nc.area = 27\nassert c.r == 3.0",
        "assert Circle.unit().r == 1 and Circle.name() == 'circle' and Circle(1).name() == 'circle'",
        "assert repr(Circle(4)) == 'Circle(4)' and f'{Circle(5)}' == 'Circle(5)' and '%r' % Circle(6) == 'Circle(6)'",
        "n = Circle.count\nCircle(1)\nassert Circle.count == n + 1",
        "c = Circle(1)\nc.extra = [1]\nassert c.extra == [1]\ndel c.extra\nassert not hasattr(c, 'extra')",
        "assert isinstance(Circle(1), Circle) and issubclass(Circle, object) and type(Circle(1)) is Circle",
        "assert Circle.__name__ == 'Circle' and Circle(1).__class__ is Circle",
        "assert vars(Circle(3)) == {'r': 3} or Circle(3).__dict__ == {'r': 3}",
        "assert getattr(Circle(2), 'missing', 7) == 7",
    ),
    "dataclasses": (
        """
        import dataclasses
        @dataclasses.dataclass(order=True, frozen=True)
        class P:
            x: int
            y: int = 0
        @dataclasses.dataclass
        class Point:
            x: int
            tags: list = dataclasses.field(default_factory=list)
        """,
        "assert P(1, 2) == P(1, 2) and P(1, 2) != P(2, 1) and P(1) < P(2) and sorted([P(2), P(1)]) == [P(1), P(2)]",
        "assert Point(1) == Point(1, []) and Point(1).tags == []",
        "p = Point(1)\np.tags.append(5)\nassert p.tags == [5] or p.tags == []",
        "assert len({P(1), P(1), P(3)}) == 2 and {P(1): 'a'}[P(1)] == 'a'",
        "try:\n    P(1).x = 5\nexcept AttributeError:\n    pass\nelse:\n    raise AssertionError",
        "assert P(1, 2) in [P(0), P(1, 2)] and [P(1), P(2)].index(P(2)) == 1 and max(P(1), P(4)) == P(4)",
        "assert repr(P(1, 2)) == 'P(x=1, y=2)' or 'x=1' in repr(P(1, 2))",
    ),
    "named tuples": (
        """
        from collections import namedtuple
        from typing import NamedTuple
        Pair = namedtuple("Pair", "count index")
        class Stats(NamedTuple):
            mean: float
            n: int = 1
            def double(self): return self.mean * 2
        def solve(xs): return Stats(sum(xs) / len(xs), len(xs))
        def pair(): return Pair(3, 4)
        """,
        "assert solve([1, 3]) == (2.0, 2) and solve([1, 3]).mean == 2.0 and solve([2]).double() == 4",
        "a, b = solve([1, 3])\nassert (a, b) == (2.0, 2) and solve([1])[1] == 1 and isinstance(solve([1]), tuple)",
        "assert pair().count == 3 and pair().index == 4 and Pair(1, 2).count == 1",
        "assert solve([2])._replace(n=5).n == 5 and solve([2])._asdict() == {'mean': 2.0, 'n': 1} and Stats._fields == ('mean', 'n')",
        "assert abs(solve([1, 2]).mean - 1.5) < 1e-9 and len(solve([1])) == 2 and 2.0 in solve([1, 3])",
    ),
    "enums": (
        """
        import enum
        class Color(enum.Enum):
            RED = 1
            BLUE = "b"
        class Level(enum.IntEnum):
            LOW = 1
            HIGH = 2
        class Perm(enum.Flag):
            R = 4
            W = 2
        class Word(enum.StrEnum):
            YES = "yes"
        def solve(x): return Color.RED if x else Color.BLUE
        def level(x): return Level(x)
        def word(): return Word.YES
        """,
        "assert solve(1) == Color.RED and solve(0) is Color.BLUE and solve(1) != Color.BLUE and solve(1).name == 'RED'",
        "assert solve(0).value == 'b' and [c.name for c in Color] == ['RED', 'BLUE'] and len(Color) == 2",
        "assert Color['RED'] is Color.RED and Color(1) is Color.RED and Color.RED in Color",
        "assert level(2) == 2 and level(1) < level(2) and level(2) > 1 and level(1) + 1 == 2 and level(2) == Level.HIGH",
        "assert (Perm.R | Perm.W) & Perm.R == Perm.R and Perm.R in (Perm.R | Perm.W) and Perm.W not in Perm.R",
        "assert word() == 'yes' and word().upper() == 'YES' and f'{word()}' == 'yes' and word().startswith('y')",
        "assert {Color.RED: 1}[solve(1)] == 1 and str(Color.RED) == 'Color.RED'",
        "assert isinstance(level(1), int) and isinstance(Color.RED, Color)",
    ),
    "generators": (
        """
        import itertools
        def count(n=0):
            while True:
                yield n
                n += 1
        def echo():
            got = yield "ready"
            while got is not None: got = yield got * 2
            return "done"
        def pairs(xs): return zip(xs, xs[1:])
        def squares(xs): return (x * x for x in xs)
        """,
        "from itertools import islice\nassert list(islice(count(), 3)) == [0, 1, 2] and next(count(5)) == 5",
        "g = echo()\nassert next(g) == 'ready' and g.send(4) == 8\ng.close()",
        "assert list(pairs([1, 2, 3])) == [(1, 2), (2, 3)] and list(squares([1, 2])) == [1, 4] and sum(squares([3])) == 9",
        "g = squares([1])\nassert iter(g) is g and next(g) == 1 and next(g, None) is None",
        "import types\ng = squares([5])\nassert 25 in squares([4, 5]) and hasattr(g, '__next__')",
        "for a, b in zip(count(1), 'ab'): assert b == 'ab'[a - 1]",
        "g = squares([1])\nnext(g)\ntry:\n    next(g)\nexcept StopIteration:\n    pass\nelse:\n    raise AssertionError",
        "assert dict(enumerate(squares([2, 3]))) == {0: 4, 1: 9} and sorted(squares([3, 1])) == [1, 9]",
    ),
    "contexts": (
        """
        import contextlib
        class Res:
            log = []
            def __enter__(self): self.log.append("in"); return self
            def __exit__(self, kind, error, tb): self.log.append(kind and kind.__name__); return kind is KeyError
        @contextlib.contextmanager
        def managed(log):
            log.append("a")
            try: yield 5
            finally: log.append("b")
        """,
        "with Res() as r: assert r.log == ['in']\nassert Res.log == ['in', None]",
        "with Res(): raise KeyError\nassert Res.log[-1] == 'KeyError'",
        "log = []\nwith managed(log) as x: assert x == 5 and log == ['a'] or log == []",
    ),
    "operators": (
        """
        import functools
        class Vector:
            def __init__(self, *xs): self.xs = list(xs)
            def __eq__(self, o): return isinstance(o, Vector) and self.xs == o.xs
            def __add__(self, o): return Vector(*(a + b for a, b in zip(self.xs, o.xs)))
            def __mul__(self, k): return Vector(*(a * k for a in self.xs))
            __rmul__ = __mul__
            def __matmul__(self, o): return sum(a * b for a, b in zip(self.xs, o.xs))
            def __neg__(self): return self * -1
            def __abs__(self): return sum(a * a for a in self.xs) ** 0.5
            def __getitem__(self, i): return self.xs[i]
            def __setitem__(self, i, x): self.xs[i] = x
            def __delitem__(self, i): del self.xs[i]
            def __len__(self): return len(self.xs)
            def __contains__(self, x): return x in self.xs
            def __iter__(self): return iter(self.xs)
            def __bool__(self): return any(self.xs)
            def __call__(self, i): return self.xs[i] * 10
            def __iadd__(self, o): self.xs = (self + o).xs; return self
            def __reversed__(self): return reversed(self.xs)
            def __hash__(self): return hash(tuple(self.xs))
            def __truediv__(self, k): return Vector(*(a / k for a in self.xs))
        class Frac:
            def __init__(self, a, b=1): self.a, self.b = a, b
            def __add__(self, o): o = o if isinstance(o, Frac) else Frac(o); return Frac(self.a * o.b + o.a * self.b, self.b * o.b)
            __radd__ = __add__
            def __eq__(self, o): o = o if isinstance(o, Frac) else Frac(o); return self.a * o.b == o.a * self.b
            def __lt__(self, o): o = o if isinstance(o, Frac) else Frac(o); return self.a * o.b < o.a * self.b
            def __float__(self): return self.a / self.b
            def __int__(self): return self.a // self.b
            def __round__(self, n=0): return round(self.a / self.b, n)
        class Money(float):
            pass
        class Matrix:
            def __init__(self, rows): self.rows = rows
            def __matmul__(self, xs): return [sum(a * x for a, x in zip(row, xs)) for row in self.rows]
        """,
        "v = Vector(1, 2)\nassert v * 3 == Vector(3, 6) and 3 * v == Vector(3, 6) and v + v == v * 2 and -v == Vector(-1, -2)",
        "assert Vector(3, 4) @ Vector(1, 1) == 7 and abs(Vector(3, 4)) == 5 and Vector(2, 4) / 2 == Vector(1.0, 2.0)",
        "v = Vector(1, 2, 3)\nassert v[0] == 1 and v[-1] == 3 and v[1:] == [2, 3] and len(v) == 3\nv[0] = 9\nassert v.xs == [9, 2, 3]",
        "v = Vector(1, 2)\ndel v[0]\nassert list(v) == [2] and 2 in v and 1 not in v and bool(v) and not Vector(0)",
        "assert Vector(1, 2)(1) == 20 and list(reversed(Vector(1, 2))) == [2, 1] and (Vector(1, 2) * 3).xs == [3, 6]",
        "v = w = Vector(1, 1)\nv += Vector(1, 2)\nassert v is w and v.xs == [2, 3]",
        "assert Frac(1, 2) + Frac(1, 2) == Frac(1) and Frac(1, 2) + 1 == Frac(3, 2) and 1 + Frac(1, 2) == Frac(3, 2)",
        "assert Frac(1, 2) < Frac(3, 4) and Frac(1, 2) < 1 and float(Frac(1, 2)) == 0.5 and round(Frac(1, 3), 2) == 0.33",
        "assert sum([Frac(1, 2), Frac(1, 2)]) == Frac(1) and max(Frac(1, 2), Frac(2, 3)) == Frac(2, 3)",
        "assert Matrix([[1, 2], [3, 4]]) @ [1, 1] == [3, 7]",
        "assert Money(1.5) + 1 == 2.5 and abs(Money(1.5) - 1.5) < 1e-9 and Money(2) == 2",
        "a, *b = Vector(1, 2, 3)\nassert (a, b) == (1, [2, 3]) and [*Vector(1)] == [1] and sum(Vector(1, 2)) == 3",
    ),
    "exceptions": (
        """
        class AppError(Exception):
            def __init__(self, code, message): super().__init__(message); self.code = code
        class NotFound(AppError, KeyError):
            def __str__(self): return f"not found: {self.code}"
        def solve(x):
            if x == 0: raise ValueError("bad value", 5)
            if x == 1: raise AppError(7, "app")
            if x == 2: raise NotFound(8, "nf")
            if x == 3:
                try: [][0]
                except IndexError as e: raise RuntimeError("chained") from e
            if x == 4: raise OSError(2, "gone", "f.txt")
            if x == 5: {}["k"]
        def catch(f):
            try: f()
            except ZeroDivisionError as e: return type(e).__name__, str(e)
        """,
        "try: solve(0)\nexcept ValueError as e: assert e.args == ('bad value', 5)\nelse: raise AssertionError",
        "try: solve(1)\nexcept AppError as e: assert e.code == 7 and str(e) == 'app' and e.args == ('app',)\nelse: raise AssertionError",
        "try: solve(2)\nexcept KeyError as e: assert isinstance(e, AppError) and str(e) == 'not found: 8'\nelse: raise AssertionError",
        "try: solve(3)\nexcept RuntimeError as e: assert isinstance(e.__cause__, IndexError) or e.__cause__ is None\nelse: raise AssertionError",
        "try: solve(4)\nexcept FileNotFoundError as e: assert e.errno == 2 and e.filename == 'f.txt'\nelse: raise AssertionError",
        "try: solve(5)\nexcept KeyError as e: assert e.args == ('k',)\nelse: raise AssertionError",
        "assert catch(lambda: 1 / 0) == ('ZeroDivisionError', 'division by zero')",
        "class Own(Exception): pass\ndef fail(): raise Own('x')\ntry: catch(fail)\nexcept Own as e: assert e.args == ('x',)\n"
        "else: raise AssertionError",
        "e = AppError(3, 'm')\nassert e.code == 3 and isinstance(e, Exception)",
        "assert issubclass(NotFound, AppError) and issubclass(NotFound, KeyError) and not issubclass(AppError, KeyError)",
    ),
    "functions": (
        """
        import functools
        def make_adder(n): return lambda x: x + n
        def twice(f):
            @functools.wraps(f)
            def inner(*a, **k): return f(f(*a, **k))
            return inner
        def compose(*fs): return functools.reduce(lambda f, g: lambda x: g(f(x)), fs)
        @functools.lru_cache(maxsize=None)
        def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)
        def counter():
            "Counts."
            n = 0
            def inc():
                nonlocal n
                n += 1
                return n
            return inc
        part = functools.partial(pow, 2)
        def kw(a, *args, b=2, **kwargs): return a, args, b, kwargs
        def mutate(f, d): d["x"] = f(d); return d
        """,
        "assert make_adder(3)(4) == 7 and twice(lambda x: x * 2)(3) == 12 and compose(str, len)(12345) == 5",
        "c = counter()\nassert (c(), c(), counter()()) == (1, 2, 1) and callable(c)",
        "assert fib(30) == 832040 and fib.cache_info().misses == 31\nfib.cache_clear()\nassert fib.cache_info().currsize == 0",
        "assert counter.__doc__ == 'Counts.' and counter.__name__ == 'counter' and part(5) == 32",
        "assert kw(1, 2, 3, b=4, c=5) == (1, (2, 3), 4, {'c': 5}) and kw(*[1], **{'b': 3}) == (1, (), 3, {})",
        "@twice\ndef inc(x): return x + 1\nassert inc(1) == 3 and inc.__name__ == 'inc'",
        "d = {'y': 1}\nassert mutate(lambda d: d['y'] + 1, d) is d and d == {'y': 1, 'x': 2}",
        "assert list(map(make_adder(1), [1, 2])) == [2, 3] and sorted([1, -2], key=abs) == [1, -2]",
        "f = make_adder(1)\nassert f is f and f == f and make_adder(1) != make_adder(1) and {f: 1}[f] == 1",
        "import functools\nassert functools.reduce(lambda a, f: f(a), [make_adder(1), make_adder(2)], 0) == 3",
    ),
    "aliases": (
        """
        def sort(xs): xs.sort(); return xs
        def nest(d): d["a"]["b"].append(1); d["s"].add(2)
        def fail(xs): xs.append(1); raise ValueError
        def grow(b, q, a): b.extend(b"x"); q.appendleft(0); a[0] = 9
        def same(x): return x
        class Keep:
            def __init__(self): self.items = []
            def add(self, x): self.items.append(x)
            def get(self, i): return self.items[i]
        class Node:
            def __init__(self, v): self.v = v; self.next = None
        def link(a, b): a.next = b; return a
        def clear(x): x.clear()
        """,
        "xs = [3, 1]\nassert sort(xs) is xs and xs == [1, 3]",
        "d = {'a': {'b': []}, 's': set()}\ninner = d['a']['b']\nnest(d)\nassert inner == [1] and d == {'a': {'b': [1]}, 's': {2}}",
        "xs = []\ntry: fail(xs)\nexcept ValueError: pass\nassert xs == [1]",
        "from collections import deque\nimport numpy as np\nb, q, a = bytearray(b'a'), deque([1]), np.array([1, 2])\ngrow(b, q, a)\n"
        "assert b == b'ax' and list(q) == [0, 1] and a.tolist() == [9, 2]",
        "k = Keep()\no = object()\nk.add(o)\nassert k.get(0) is o",
        "a, b = Node(1), Node(2)\nassert link(a, b) is a and a.next is b and a.next.v == 2 and a.next.next is None\n"
        "a.next = None\nassert a.next is None",
        "xs = []\nxs.append(xs)\ny = same(xs)\nassert y is xs",
        "x = {1: 2}\nclear(x)\nassert x == {}\ny = [1]\nclear(y)\nassert y == []\nz = {1}\nclear(z)\nassert z == set()",
        "class T:\n    def __init__(self): self.x = 1\n    def up(self): self.x += 1; return self\nt = T()\n"
        "assert same(t) is t and same(t.up)() is t and t.x == 2",
        "f = lambda: 1\nassert same(f) is f and same([f])[0] is f and same(T) is T and same(int) is int",
    ),
    "values": (
        """
        import datetime, decimal, fractions, collections, uuid, pathlib, copy
        def same(x): return x
        def kind(x): return type(x).__name__
        class L(list):
            def total(self): return sum(self)
        class D(dict):
            def __missing__(self, key): return key * 2
        class S(str):
            def shout(self): return self.upper() + "!"
        def sub(): return L([1, 2]), D(a=1), S("ab")
        """,
        "from decimal import Decimal as D2\nfrom fractions import Fraction\nfor x in (D2('1.10'), Fraction(1, 3), 2j, b'\\xff', None, "
        "10 ** 100, -10 ** 100, '\\ud800', -0.0, 1e308, (1, (2,)), frozenset({1}), range(3), slice(1, 2), ...):\n"
        "    assert same(x) == x and type(same(x)) is type(x) and repr(same(x)) == repr(x)",
        "x = same(float('nan'))\nassert x != x and same(float('inf')) > 1e308 and str(same(-0.0)) == '-0.0'",
        "import numpy as np\na = np.arange(6.0).reshape(2, 3)\nassert (same(a) == a).all() and same(a).dtype == a.dtype "
        "and same(np.float32(1.5)) == 1.5 and same(np.int64(3)) == 3 and kind(np.bool_(True)).startswith('bool')",
        "import datetime as dt\nfor x in (dt.date(2020, 1, 2), dt.datetime(2020, 1, 2, 3, 4, tzinfo=dt.timezone.utc), dt.timedelta(1), "
        "dt.time(1, 2)): assert same(x) == x",
        "from collections import Counter, OrderedDict, defaultdict, deque\nfor x in (Counter('aab'), OrderedDict(b=1, a=2), "
        "defaultdict(list, a=[1]), deque([1, 2], 3)): assert same(x) == x and type(same(x)) is type(x)",
        "l, d, s = sub()\nassert l == [1, 2] and l.total() == 3 and len(l) == 2 and l[0] == 1 and sorted(l) == [1, 2] and list(l) == [1, 2]",
        "l, d, s = sub()\nassert d == {'a': 1} and d['zz'] == 'zzzz' and dict(d) == {'a': 1} and list(d) == ['a'] and d.get('q') is None",
        "l, d, s = sub()\nassert s == 'ab' and s.shout() == 'AB!' and s + 'c' == 'abc' and isinstance(s, str) and s.startswith('a')",
        "import numpy as np\nl, d, s = sub()\nassert np.asarray(l).tolist() == [1, 2] and np.allclose(l, [1, 2]) and np.sum(l) == 3",
        "assert list({1: 2}.keys()) == list(same({1: 2}.keys())) and kind({}.items()) == 'dict_items'",
        "import copy\nassert copy.deepcopy(same([1, [2]])) == [1, [2]]",
    ),
    "copies": (
        """
        class Tree:
            def __init__(self, v, kids=()): self.v = v; self.kids = list(kids)
            def depth(self): return 1 + max((k.depth() for k in self.kids), default=0)
            def __iter__(self):
                yield self.v
                for k in self.kids: yield from k
            def __eq__(self, o): return self.v == o.v and self.kids == o.kids
        class Single:
            _it = None
            def __new__(cls):
                if cls._it is None: cls._it = super().__new__(cls)
                return cls._it
        """,
        "import copy\nt = Tree(1, [Tree(2)])\nu = copy.deepcopy(t)\nassert u == t and u is not t and u.kids[0] is not t.kids[0]",
        "assert Tree(1, [Tree(2, [Tree(3)])]).depth() == 3 and list(Tree(1, [Tree(2), Tree(3)])) == [1, 2, 3]",
        "assert Single() is Single() and id(Single()) == id(Single())",
        "t = Tree(1)\nt.kids.append(Tree(2))\nassert len(t.kids) in (0, 1)",
    ),
    "abstract and generic": (
        """
        import abc, typing
        class Shape(abc.ABC):
            @abc.abstractmethod
            def area(self): ...
            def describe(self): return f"{type(self).__name__} {self.area()}"
        class Square(Shape):
            def __init__(self, s): self.s = s
            def area(self): return self.s ** 2
        T = typing.TypeVar("T")
        class Stack(typing.Generic[T]):
            def __init__(self): self._xs = []
            def push(self, x): self._xs.append(x); return self
            def pop(self): return self._xs.pop()
            def __len__(self): return len(self._xs)
        class Meta(type):
            registry = []
            def __new__(m, name, bases, ns): k = super().__new__(m, name, bases, ns); m.registry.append(name); return k
        class Base(metaclass=Meta): pass
        class Desc:
            def __set_name__(self, owner, name): self.name = "_" + name
            def __get__(self, o, k=None): return self if o is None else getattr(o, self.name)
            def __set__(self, o, v):
                if v < 0: raise ValueError("negative")
                setattr(o, self.name, v)
        class Acc:
            total = Desc()
            __slots__ = ("_total",)
            def __init__(self, t): self.total = t
        """,
        "try: Shape()\nexcept TypeError as e: assert 'abstract' in str(e)\nelse: raise AssertionError",
        "s = Square(2)\nassert isinstance(s, Shape) and issubclass(Square, Shape) and s.describe() == 'Square 4'",
        "s = Stack()\nassert s.push(1).push(2) is s and s.pop() == 2 and len(s) == 1 and bool(s)\ns.pop()\nassert not s",
        "assert len(Stack[int]()) == 0",
        "assert Meta.registry == ['Base'] and isinstance(Base(), Base)",
        "a = Acc(1)\na.total = 5\nassert a.total == 5\ntry: a.total = -1\nexcept ValueError: pass\nelse: raise AssertionError",
        "try: Acc(1).other = 2\nexcept AttributeError: pass\nelse: raise AssertionError",
    ),
    "objects of the tests": (
        """
        def insert(root, v):
            if root is None: return None
            if v < root.val:
                if root.left: insert(root.left, v)
                else: root.left = type(root)(v)
            elif root.right: insert(root.right, v)
            else: root.right = type(root)(v)
            return root
        def names(people): return [p.name for p in sorted(people, key=lambda p: p.age)]
        def total(items): return sum(i.price * i.n for i in items)
        def apply(obj): return obj(2), len(obj), obj[1], 3 in obj, list(obj), str(obj), obj + 1
        def run(ctx):
            with ctx as value: return value
        def subclass(base):
            class Sub:
                def go(self): return base.__name__
            return Sub()
        """,
        "class N:\n    def __init__(self, val): self.val, self.left, self.right = val, None, None\nr = N(5)\n"
        "assert insert(r, 3) is r and r.left.val == 3 and isinstance(r.left, N) and insert(r, 8).right.val == 8",
        "from types import SimpleNamespace as S\nassert names([S(name='a', age=3), S(name='b', age=1)]) == ['b', 'a']",
        "from collections import namedtuple\nI = namedtuple('I', 'price n')\nassert total([I(2, 3), I(1, 1)]) == 7",
        "class O:\n    def __call__(self, x): return x * 2\n    def __len__(self): return 4\n    def __getitem__(self, i): return i\n"
        "    def __contains__(self, x): return x == 3\n    def __iter__(self): return iter([1])\n    def __str__(self): return 'o'\n"
        "    def __add__(self, x): return x\nassert apply(O()) == (4, 4, 1, True, [1], 'o', 1)",
        "assert subclass(N).go() == 'N'",
    ),
    "modules": (
        """
        LIMIT = 3
        cache = {}
        def remember(k, v): cache[k] = v; return len(cache)
        def limit(): return LIMIT
        if __name__ == "__main__": raise SystemExit(5)
        def helper(x): return x
        def uses(x): return helper(x) + 1
        """,
        "assert remember('a', 1) == 1",
        "assert remember('b', 2) == 2 and limit() == 3 and LIMIT == 3",
        "import solution\nassert solution.LIMIT == 3 and solution.uses(1) == 2",
        "from unittest import mock\nwith mock.patch('solution.helper', return_value=10) as m:\n    assert uses(1) == 11\n"
        "m.assert_called_once_with(1)\nassert uses(1) == 2",
        "from unittest.mock import patch\nwith patch('solution.LIMIT', 9): assert limit() == 9\nassert limit() == 3",
        "from solution import remember as r, uses\nassert r('c', 1) == 3",
    ),
}

_UNIT_TESTS = {
    "assertions": (
        """
        class Bad(ValueError): pass
        class Stack:
            def __init__(self): self.xs = []
            def push(self, x): self.xs.append(x)
            def pop(self):
                if not self.xs: raise Bad("empty stack")
                return self.xs.pop()
            def is_empty(self): return not self.xs
        def greet():
            name = input("name? ")
            print("hi", name)
        def read(path):
            with open(path) as file: return file.read()
        async def double(x): return x * 2
        async def ticks(n):
            for i in range(n): yield i
        class Session:
            async def __aenter__(self): return 5
            async def __aexit__(self, *a): return None
        def dates():
            import time
            return time.time()
        """,
        """
        import asyncio, contextlib, io, threading, unittest
        from unittest import mock
        from unittest.mock import patch, mock_open
        from solution import Bad, Stack, greet

        class TestStack(unittest.TestCase):
            @classmethod
            def setUpClass(cls): cls.shared = Stack()
            def setUp(self): self.stack = Stack(); self.addCleanup(self.stack.xs.clear)
            def test_pop(self):
                self.stack.push(1)
                self.assertEqual(self.stack.pop(), 1)
                self.assertTrue(self.stack.is_empty())
            def test_raises(self):
                with self.assertRaises(Bad) as caught: self.stack.pop()
                self.assertEqual(str(caught.exception), "empty stack")
                self.assertRaisesRegex(ValueError, "empty", self.stack.pop)
            def test_is(self):
                self.assertIsInstance(self.stack, Stack)
                self.assertIsNot(self.stack, self.shared)
                self.assertIsNone(self.stack.push(1))
                self.assertEqual(self.stack.xs, [1])
                self.assertCountEqual([2, 1], [1, 2])

        class TestStreams(unittest.TestCase):
            @patch("builtins.input", return_value="Ann")
            @patch("builtins.print")
            def test_mocked(self, printed, asked):
                greet()
                printed.assert_called_once_with("hi", "Ann")
                asked.assert_called_once_with("name? ")
            def test_redirected(self):
                out = io.StringIO()
                with patch("sys.stdin", io.StringIO("Bob\\n")), contextlib.redirect_stdout(out): greet()
                self.assertIn("hi Bob", out.getvalue())
            @patch("sys.stdout", new_callable=io.StringIO)
            def test_patched(self, out):
                with patch("builtins.input", lambda *a: "Cid"): greet()
                self.assertEqual(out.getvalue(), "hi Cid\\n")
            def test_open(self):
                with patch("builtins.open", mock_open(read_data="data")): self.assertEqual(read("x"), "data")
            def test_threads(self):
                stack = Stack()
                threads = [threading.Thread(target=stack.push, args=(n,)) for n in range(8)]
                for thread in threads: thread.start()
                for thread in threads: thread.join()
                self.assertEqual(sorted(stack.xs), list(range(8)))

        class TestAsync(unittest.IsolatedAsyncioTestCase):
            async def asyncSetUp(self): self.ready = True
            async def test_double(self):
                self.assertEqual(await double(4), 8)
                self.assertEqual(await asyncio.gather(double(1), double(2)), [2, 4])
            async def test_generator(self):
                self.assertEqual([x async for x in ticks(3)], [0, 1, 2])
            async def test_context(self):
                async with Session() as value: self.assertEqual(value, 5)

        def test_run(): assert asyncio.run(double(3)) == 6
        """,
    ),
}


@pytest.mark.parametrize("name", _ASSERTS)
def test_objects_behave_as_in_one_process(judge: Judge, name: str) -> None:
    code, *cases = _ASSERTS[name]
    graded = judge.asserts(textwrap.dedent(code), *cases)
    assert not {cases[int(case.name)]: case.message for case in graded.cases if case.outcome != "passed"}, graded.message
    assert graded.outcome is VerdictOutcome.PASSED, graded.message


@pytest.mark.parametrize("name", _UNIT_TESTS)
def test_objects_in_unit_tests_behave_normally(judge: Judge, name: str) -> None:
    code, source = map(textwrap.dedent, _UNIT_TESTS[name])
    graded = judge.unit_tests(code, source)
    assert not {case.name: case.message for case in graded.cases if case.outcome != "passed"}, graded.message
    assert graded.outcome is VerdictOutcome.PASSED, graded.message
