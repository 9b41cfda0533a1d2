"""Ordinary programs: each is a list of cells that print the same in the restricted backend as in plain Python."""

from __future__ import annotations

__all__ = ["PROGRAMS"]

PROGRAMS = {
    "arithmetic": ["print(2**100, 7 // 2, -7 % 3, 1e3, 3 + 4j, ~5, 6 & 3 | 8 ^ 1)"],
    "value of the last expression": ["x = 20", "x * 2 + 2", "_ + 1"],
    "fibonacci": ["def fib(n):\n    a, b = 0, 1\n    while a < n:\n        yield a\n        a, b = b, a + b", "list(fib(100))"],
    "recursion": ["def fact(n): return 1 if n < 2 else n * fact(n - 1)", "fact(30)"],
    "functions of several cells": ["def even(n): return n == 0 or odd(n - 1)", "def odd(n): return n and even(n - 1)", "even(50)"],
    "f-strings": ["name, n = 'π', 3.14159\nprint(f'{name!r:>6} {n:.2f} {n=} {n:{8}.{3}} {{}} {1_000_000:,}')"],
    "str.format": ["print('{0} {1!r:>5} {x[k]} {y.real:.1f}'.format(1, 'a', x={'k': 2}, y=3))"],
    "str.format by position": ["print('{:>{w}}|{:<4}|{:^5}'.format('a', 'b', 'c', w=3), '{a}'.format_map({'a': 1}))"],
    "percent": ["print('%s %5.2f %%' % ('x', 2.5))"],
    "slices": ["xs = list(range(10))\nxs[2:5] = ['a']\nxs[::2], xs[-3:], xs[1:-1:3]", "del xs[1:3]\nxs"],
    "unpacking": ["a, (b, *c), [d] = 1, (2, 3, 4), [5]\n[a, b, c, d]", "first, *_, last = 'hello'\nfirst, last"],
    "unpacking too much": ["try:\n    a, b = [1, 2, 3]\nexcept ValueError as e:\n    print(e)"],
    "chained assignment": ["a = b = c = [1]\na.append(2)\nprint(b, c is a)"],
    "augmented": [
        "class C: pass\nc = C()\nc.n = 1\nd = {'k': [1]}\nc.n += 2\nc.n **= 3\nd['k'] += [2]\nd['k'][0] -= 5\nm = 'a'\nm *= 3",
        "c.n, d, m",
    ],
    "augmented evaluates once": [
        "def f():\n    print('once')\n    return d\nd = {'k': 1}\nf()['k'] += 1\nd",
        "class C:\n    n = 1\n    def add(self):\n        self.n = 10\n        return 1\nc = C()\nc.n += c.add()\nc.n",
    ],
    "augmented slice": ["xs = [1, 2, 3]\nxs[1:] += [4]\nxs"],
    "comprehensions": ["n = 3\n[i * j for i in range(n) for j in range(i) if i != j], {i: i**2 for i in range(3)}, {c for c in 'a'}, sum(x for x in [1])"],
    "comprehension over pairs": ["[a + b for a, b in zip([1, 2], [3, 4])], {k: v for k, (v, _) in {'a': (1, 2)}.items()}"],
    "walrus": ["if (n := len('abc')) > 2: print(n)\n[y for x in range(4) if (y := x * x) > 1]"],
    "lambda and sorting": ["sorted(['bb', 'a', 'ccc'], key=lambda s: -len(s)), max([1, 5, 2], key=lambda x: x % 5)"],
    "closure": ["def counter():\n    n = 0\n    def up():\n        nonlocal n\n        n += 1\n        return n\n    return up", "u = counter()\nu(), u()"],
    "global": ["total = 0\ndef add(n):\n    global total\n    total += n", "add(3); add(4); total"],
    "keywords": ["def f(a, /, b, *args, c=3, **kw): return a, b, args, c, kw", "f(1, 2, 3, c=4, d=5), f(*[1, 2], **{'z': 0})"],
    "decorator": [
        "import functools\ndef twice(f):\n    @functools.wraps(f)\n    def wrapper(*a):\n        return f(f(*a))\n    return wrapper",
        "@twice\ndef inc(x):\n    'Add one.'\n    return x + 1\ninc(1), inc.__name__, inc.__doc__",
    ],
    "decorator with state": ["def count(f):\n    def w():\n        w.calls += 1\n        return f()\n    w.calls = 0\n    w.__name__ = f.__name__\n    return w\n@count\ndef g(): return 1\ng(); g()\ng.calls, g.__name__"],
    "cache": ["import functools\n@functools.cache\ndef fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)\nfib(80), fib.cache_info().hits"],
    "class": [
        "class Account:\n    count = 0\n    def __init__(self, owner, balance=0):\n        self.owner = owner\n        self._balance = balance\n"
        "        self.__pin = 1234\n        Account.count += 1\n    @property\n    def balance(self): return self._balance\n"
        "    @balance.setter\n    def balance(self, value):\n        if value < 0: raise ValueError('negative')\n        self._balance = value\n"
        "    @classmethod\n    def empty(cls): return cls('nobody')\n    @staticmethod\n    def bank(): return 'B'\n"
        "    def pin(self): return self.__pin\n    def __repr__(self): return f'{self.__class__.__name__}({self.owner!r})'",
        "a = Account('x', 5)\na.balance += 3\na, a.balance, a.pin(), Account.empty(), Account.bank(), Account.count",
        "try:\n    a.balance = -1\nexcept ValueError as e:\n    print(e)",
    ],
    "inheritance": [
        "class A:\n    def __init__(self): self.x = 1\n    def hi(self): return 'A'\n"
        "class B(A):\n    def __init__(self):\n        super().__init__()\n        self.y = 2\n    def hi(self): return super().hi() + 'B'",
        "b = B()\nb.x, b.y, b.hi(), isinstance(b, A), issubclass(B, A), vars(b), b.__dict__, type(b).__name__",
    ],
    "operators of a class": [
        "class V:\n    def __init__(self, x, y): self.x, self.y = x, y\n    def __add__(self, o): return V(self.x + o.x, self.y + o.y)\n"
        "    def __mul__(self, k): return V(self.x * k, self.y * k)\n    __rmul__ = __mul__\n    def __eq__(self, o): return (self.x, self.y) == (o.x, o.y)\n"
        "    def __hash__(self): return hash((self.x, self.y))\n    def __abs__(self): return (self.x**2 + self.y**2)**0.5\n"
        "    def __bool__(self): return bool(abs(self))\n    def __repr__(self): return f'V({self.x}, {self.y})'\n    def __iter__(self): yield from (self.x, self.y)",
        "v = V(3, 4)\nv + v, 2 * v, v == V(3, 4), abs(v), bool(V(0, 0)), tuple(v), len({v, V(3, 4)})",
    ],
    "container class": [
        "class Stack:\n    __slots__ = ('_items',)\n    def __init__(self): self._items = []\n    def __len__(self): return len(self._items)\n"
        "    def __getitem__(self, i): return self._items[i]\n    def __setitem__(self, i, v): self._items[i] = v\n    def __contains__(self, x): return x in self._items\n"
        "    def push(self, x):\n        self._items.append(x)\n        return self",
        "s = Stack().push(1).push(2)\ns[0] = 9\ns[1] += 1\nlen(s), s[0], s[1], 9 in s, list(s)",
    ],
    "iterator class": ["class Down:\n    def __init__(self, n): self.n = n\n    def __iter__(self): return self\n    def __next__(self):\n        if self.n == 0: raise StopIteration\n        self.n -= 1\n        return self.n\nlist(Down(3))"],
    "context manager": [
        "class T:\n    def __enter__(self):\n        print('in')\n        return self\n    def __exit__(self, kind, error, trace):\n        print('out', kind and kind.__name__)\n        return True\n"
        "with T() as t, T(): raise KeyError('k')",
        "from contextlib import contextmanager, suppress\n@contextmanager\ndef tag(n):\n    print(f'<{n}>')\n    yield n\n    print(f'</{n}>')\nwith tag('a') as x, suppress(KeyError): print(x); {}['k']",
    ],
    "dataclass": [
        "from dataclasses import dataclass, field, asdict, replace\n@dataclass(order=True, frozen=True)\nclass P:\n    x: int\n    y: int = 0\n    tags: list[str] = field(default_factory=list, compare=False)\n    def norm(self) -> int: return self.x + self.y",
        "P(1) < P(2), P(1, 2), asdict(P(3)), replace(P(1), y=5).norm()",
        "try:\n    P(1).x = 2\nexcept Exception as e:\n    print(type(e).__name__, e)",
    ],
    "dataclass after init": ["import dataclasses\n@dataclasses.dataclass\nclass R:\n    w: float\n    h: float\n    area: float = dataclasses.field(init=False)\n    def __post_init__(self): self.area = self.w * self.h\nR(2, 3)"],
    "dataclass with slots": ["from dataclasses import dataclass\n@dataclass(slots=True)\nclass S:\n    n: int = 1\n    def up(self): self.n += 1\ns = S()\ns.up()\ns"],
    "frozen by object.__setattr__": ["from dataclasses import dataclass\n@dataclass(frozen=True)\nclass F:\n    n: int\n    def __post_init__(self): object.__setattr__(self, 'n', self.n * 2)\nF(4)"],
    "annotations": ["x: int = 3\ny: 'list[int]'\ndef f(a: int, *b: str, c: float | None = None) -> dict[str, int]: return {}\nclass C:\n    z: int = 1\n    def __init__(self): self.w: int = 2\nx, C().z, C().w, f.__annotations__"],
    "typing": ["from typing import Any, Callable, Generic, Optional, TypeVar, Union, NamedTuple, Protocol, Literal\nT = TypeVar('T')\nclass Box(Generic[T]):\n    def __init__(self, item: T) -> None: self.item = item\nclass Q(NamedTuple):\n    a: int\n    b: str = 'b'\nBox[int](3).item, Q(1), Q(1)._replace(a=2), Optional[int], Callable[[int], str]"],
    "type annotations of classes": ["def f(cls: type[int], t: type | None = None) -> type: return cls\nf(bool), isinstance(int, type), type(3) is int, type(3)(7)"],
    "abstract": ["from abc import ABC, ABCMeta, abstractmethod\nclass S(ABC):\n    @abstractmethod\n    def area(self): ...\nclass Sq(S):\n    def area(self): return 4\nclass M(metaclass=ABCMeta): pass", "try:\n    S()\nexcept TypeError as e:\n    print(e)\nSq().area()"],
    "enum": ["from enum import Enum, IntEnum, Flag, auto\nclass C(Enum):\n    RED = auto()\n    BLUE = 'b'\n    @classmethod\n    def _missing_(cls, v): return cls.RED\n    @property\n    def low(self): return self.name.lower()", "class F(Flag):\n    A = auto()\n    B = auto()", "C.RED, C['BLUE'].value, C('zzz'), [c.low for c in C], F.A | F.B, list(C.__members__)"],
    "namedtuple": ["from collections import namedtuple\nP = namedtuple('P', 'x y', defaults=[0])\np = P(1)\np, p.x, p._asdict(), p._replace(y=3), P._fields, P._make([4, 5])"],
    "subclass hook and keywords": ["class Base:\n    known = []\n    def __init_subclass__(cls, /, tag=None, **kw):\n        super().__init_subclass__(**kw)\n        cls.tag = tag\n        Base.known.append(cls.__name__)\nclass A(Base, tag='t'): pass\nA.tag, Base.known"],
    "descriptor": ["class Positive:\n    def __set_name__(self, owner, name): self.name = '_' + name\n    def __get__(self, obj, owner): return getattr(obj, self.name)\n    def __set__(self, obj, value):\n        if value < 0: raise ValueError(self.name)\n        setattr(obj, self.name, value)\nclass A:\n    n = Positive()\n    def __init__(self, n): self.n = n\nA(3).n"],
    "dynamic attributes": ["class D:\n    def __init__(self): self.data = {}\n    def __getattr__(self, name): return f'no {name}'\n    def __call__(self, x): return x + 1\nd = D()\nsetattr(d, 'k', 5)\nd.k, d.zzz, getattr(d, 'q'), hasattr(1, 'real'), hasattr(1, 'zzz'), getattr(1, 'zzz', 'default'), d(1), callable(d)", "delattr(d, 'k')\nd.k"],
    "setattr of a class": ["class R:\n    def __setattr__(self, name, value):\n        print('set', name)\n        super().__setattr__(name, value)\nr = R()\nr.x = 1\nr.x"],
    "singleton": ["class S:\n    _instance = None\n    def __new__(cls):\n        if cls._instance is None:\n            cls._instance = super().__new__(cls)\n        return cls._instance\nS() is S()"],
    "match": [
        "def what(x):\n    match x:\n        case 0 | 1: return 'small'\n        case int(n) if n > 100: return f'large {n}'\n        case -5: return 'minus'\n        case str() as s: return s.upper()\n        case [a, [b, *c], *_]: return ('nested', a, b, c)\n        case {'k': v, **rest}: return (v, rest)\n        case (a, b): return ('two', a, b)\n        case None | True: return 'singleton'\n        case _: return 'other'",
        "[what(x) for x in [1, 101, -5, 'a', [1, [2, 3], 4], {'k': 1, 'z': 2}, (5, 6), None, 2.5, True, b'b', []]]",
    ],
    "match of classes": [
        "from dataclasses import dataclass\nfrom enum import Enum\nclass C(Enum):\n    R = 1\n@dataclass\nclass P:\n    x: int\n    y: int\nclass N:\n    __match_args__ = ('left', 'right')\n    def __init__(self, l, r): self.left, self.right = l, r",
        "def f(o):\n    match o:\n        case P(0, y=0): return 'origin'\n        case P(x, y) if x == y: return f'diagonal {x}'\n        case P(x=x): return x\n        case C.R: return 'red'\n        case N(P() as p, N(a, b) | a as b): return (p, b)\n        case dict(d): return len(d)\n        case float(real=r): return r",
        "[f(P(0, 0)), f(P(2, 2)), f(P(1, 2)), f(C.R), f({}), f(2.5)]",
    ],
    "match leaves names alone": ["x = 'before'\nmatch (1, 2):\n    case (x, 3): print('no')\n    case (y, 2): print('yes', y)\nx"],
    "match of too many": ["class A: __match_args__ = ('x',)\ntry:\n    match A():\n        case A(1, 2): pass\nexcept TypeError as e:\n    print(e)"],
    "exceptions": [
        "class MyError(Exception):\n    def __init__(self, code):\n        super().__init__(f'code {code}')\n        self.code = code",
        "def f(x):\n    try:\n        if x == 0: raise MyError(7)\n        if x == 1: return 1 / 0\n        if x == 2: [][1]\n    except MyError as e: return e.code, str(e), e.args\n    except (ZeroDivisionError, IndexError) as e: return type(e).__name__\n    else: return 'else'\n    finally: print('finally', x)\n[f(i) for i in range(4)]",
        "try:\n    try: 1/0\n    except ZeroDivisionError as e: raise ValueError('v') from e\nexcept ValueError as e: print(repr(e.__cause__))\nassert True, 'no'",
    ],
    "uncaught exception": ["def f(): return {}['missing']\nf()"],
    "assertion": ["assert 1 == 2, 'sums'"],
    "syntax error": ["def f(:\n    pass"],
    "name error": ["undefined_name"],
    "attribute error": ["'text'.nothing"],
    "generators": ["def g():\n    got = yield 1\n    print(got)\n    yield from [2, 3]\n    return 4\ndef h():\n    r = yield from g()\n    print('r', r)", "it = h()\nnext(it), it.send('x'), list(it)"],
    "async": ["import asyncio\nasync def f(n):\n    await asyncio.sleep(0.001)\n    return n\nasync def gen():\n    for i in range(3): yield i\nclass A:\n    async def __aenter__(self): return 5\n    async def __aexit__(self, *a): return False", "async def main():\n    async with A() as a: pass\n    xs = [x async for x in gen()]\n    async for y in gen(): a += y\n    return await asyncio.gather(f(1), f(2)), xs, a, await asyncio.wait_for(f(3), 1)\nasyncio.run(main())"],
    "async queue": ["import asyncio\nasync def main():\n    q = asyncio.Queue()\n    async def produce():\n        for i in range(3): await q.put(i)\n        await q.put(None)\n    t = asyncio.create_task(produce())\n    out = []\n    while (x := await q.get()) is not None: out.append(x)\n    await t\n    return out\nasyncio.run(main())"],
    "modules of numbers": ["import math, cmath, random, statistics, decimal, fractions", "random.seed(1)\nmath.gcd(12, 18), cmath.sqrt(-1), random.randint(1, 9), random.choice('abc'), statistics.median([1, 5, 2]), decimal.Decimal('0.1') * 3, fractions.Fraction(1, 3) + 1", "decimal.getcontext().prec = 5\ndecimal.Decimal(1) / 3", "random.Random(3).sample(range(100), 3)"],
    "modules of text": ["import re, string, textwrap, unicodedata, difflib, html", "re.findall(r'(\\w)(\\d)', 'a1 b2'), re.sub('a', lambda m: m.group().upper(), 'banana'), string.ascii_lowercase[:3], textwrap.shorten('a b c d', 5), unicodedata.name('é'), html.escape('<')", "string.Template('$a').substitute(a=1), string.Formatter().format('{0.real}', 3), re.compile('x', re.I).pattern"],
    "modules of data": ["import json, base64, hashlib, csv, io, struct, zlib, binascii", "json.loads(json.dumps({'a': [1, None, True]})), base64.b64encode(b'x'), hashlib.sha256(b'').hexdigest()[:8], struct.pack('<H', 5), zlib.decompress(zlib.compress(b'z'))", "f = io.StringIO('a,b\\n1,2\\n')\nlist(csv.DictReader(f))", "out = io.StringIO()\nprint('to a buffer', file=out)\nout.getvalue()"],
    "modules of time": ["import datetime, time, calendar\nfrom datetime import timedelta", "datetime.date(2024, 2, 29) + timedelta(days=1), datetime.datetime.strptime('2024-01-02', '%Y-%m-%d').isoformat(), f'{datetime.date(2020, 1, 2):%d.%m.%y}', calendar.isleap(2000), time.strptime('10', '%H').tm_hour, time.perf_counter() > 0"],
    "modules of structures": ["import collections, heapq, bisect, itertools, copy, array, queue, graphlib, weakref\nfrom collections import Counter, defaultdict, deque, OrderedDict, ChainMap\nimport collections.abc", "h = [3, 1, 2]\nheapq.heapify(h)\nd = defaultdict(list)\nd['a'].append(1)\nd['n'] += [2]\nheapq.heappop(h), bisect.bisect([1, 3], 2), Counter('abca').most_common(1), dict(d), deque([1, 2], maxlen=1)", "list(itertools.accumulate([1, 2, 3])), list(itertools.product('ab', repeat=2))[:2], [(k, list(g)) for k, g in itertools.groupby('aab')]", "x = [[1]]\ny = copy.deepcopy(x)\ny[0].append(2)\nx, y, isinstance([], collections.abc.Sequence)", "list(graphlib.TopologicalSorter({'b': {'a'}}).static_order())"],
    "modules of functions": ["import functools, operator\nfrom functools import partial, reduce, total_ordering, singledispatch", "reduce(operator.mul, [1, 2, 3]), partial(int, base=2)('101'), operator.itemgetter(1)([5, 6]), operator.attrgetter('real')(3), operator.methodcaller('upper')('a')", "@total_ordering\nclass N:\n    def __init__(self, n): self.n = n\n    def __eq__(self, o): return self.n == o.n\n    def __lt__(self, o): return self.n < o.n\nN(1) >= N(0)", "@singledispatch\ndef show(x): return 'any'\n@show.register\ndef _(x: int): return 'int'\n@show.register(str)\ndef _(x): return 'str'\nshow(1), show(''), show(2.5)", "class P:\n    @functools.cached_property\n    def v(self):\n        print('once')\n        return 3\np = P()\np.v + p.v"],
    "star import": ["from math import *\nfloor(pi), gcd(4, 6)"],
    "future annotations": ["from __future__ import annotations\nfrom dataclasses import dataclass\n@dataclass\nclass Node:\n    value: int\n    next: Node | None = None\nNode(1, Node(2))"],
    "print": ["print(1, 'a', sep='-', end='!\\n', flush=True)\nprint()\nprint(*[1, 2], sep=', ')"],
    "built-in functions": ["abs(-1), all([]), any([1]), bin(5), chr(97), divmod(7, 2), hex(255), list(map(str, [1])), min(3, 1), oct(8), ord('a'), pow(2, 3, 5), repr('x'), list(reversed([1, 2])), round(2.567, 1), sorted('ba'), sum([1, 2]), list(enumerate('a')), list(zip('ab', [1, 2])), list(filter(None, [0, 1])), next(iter([4])), bytes([65]), bytearray(b'x'), complex(1, 2), frozenset([1]), slice(1, 2), hash(1), id(1) == id(1), isinstance(1, (int, str)), format(3.14159, '.2f'), ascii('é')"],
    "dir and vars": ["class A:\n    def __init__(self): self.x = 1\n    def f(self): pass\n[n for n in dir(A()) if not n.startswith('_')], vars(A()), [n for n in dir('') if n.startswith('is')][:2]"],
    "main guard": ["def main(): print('main')\nif __name__ == '__main__':\n    main()"],
    "exit": ["print('before')\nraise SystemExit(3)"],
    "leading underscores": ["_cache = {}\ndef _helper(n): return n + 1\nfor _ in range(2): _cache[_] = _helper(_)\n_cache"],
    "sieve": ["def sieve(n):\n    is_p = [True] * (n + 1)\n    is_p[0:2] = [False, False]\n    for i in range(2, int(n**0.5) + 1):\n        if is_p[i]:\n            for j in range(i * i, n + 1, i):\n                is_p[j] = False\n    return [i for i, p in enumerate(is_p) if p]\nsum(sieve(10000))"],
    "n queens": ["def queens(n, row=0, cols=frozenset(), d1=frozenset(), d2=frozenset()):\n    if row == n: return 1\n    return sum(queens(n, row + 1, cols | {c}, d1 | {row + c}, d2 | {row - c}) for c in range(n) if c not in cols and row + c not in d1 and row - c not in d2)\nqueens(6)"],
    "word count": ["text = 'the cat the dog'\ncounts = {}\nfor w in text.split():\n    counts[w] = counts.get(w, 0) + 1\nfor w, n in sorted(counts.items(), key=lambda kv: (-kv[1], kv[0])): print(f'{w:<5}{n:>3}')"],
    "matrix": ["A = [[1, 2], [3, 4]]\nB = [[0] * 2 for _ in range(2)]\nfor i in range(2):\n    for j in range(2):\n        for k in range(2):\n            B[i][j] += A[i][k] * A[k][j]\nB"],
    "dijkstra": ["import heapq\ndef dijkstra(graph, start):\n    dist = {start: 0}\n    heap = [(0, start)]\n    while heap:\n        d, u = heapq.heappop(heap)\n        if d > dist.get(u, float('inf')): continue\n        for v, w in graph[u].items():\n            if d + w < dist.get(v, float('inf')):\n                dist[v] = d + w\n                heapq.heappush(heap, (d + w, v))\n    return dist\ndijkstra({'a': {'b': 1, 'c': 4}, 'b': {'c': 2}, 'c': {}}, 'a')"],
    "linked list": ["class Node:\n    def __init__(self, v, nxt=None): self.v, self.next = v, nxt\ndef rev(n):\n    prev = None\n    while n: n.next, prev, n = prev, n, n.next\n    return prev\nn = rev(Node(1, Node(2, Node(3))))\nout = []\nwhile n:\n    out.append(n.v)\n    n = n.next\nout"],
    "many branches": ["def f(x):\n    if x == 0: return 0\n" + "".join(f"    elif x == {n}: return {n}\n" for n in range(1, 150)) + "f(149)"],
    "loop else": ["for i in range(3):\n    if i == 5: break\nelse:\n    print('else')\nwhile True:\n    break\nelse:\n    print('no')"],
    "deletion": ["d = {'a': 1}\ndel d['a']\nx = 1\ndel x\ntry:\n    x\nexcept NameError as e:\n    print(e)\nd"],
}
