"""Output of code: the semantics of CPython in one namespace that persists across cells."""

from __future__ import annotations

import pytest

from coding_gym_server.protocol import Outcome

# (cells, output of the last cell); all cells succeed and write nothing to stderr.
PROGRAMS = {
    "recursion": (["def fact(n):\n    return 1 if n < 2 else n * fact(n - 1)", "fact(20)"], "2432902008176640000\n"),
    "mutual recursion across cells": (
        ["def even(n): return n == 0 or odd(n - 1)", "def odd(n): return n != 0 and even(n - 1)", "even(101)"],
        "False\n",
    ),
    "import inside a function": (["def f():\n    import math\n    return math.floor(2.5)", "f()"], "2\n"),
    "comprehension over top-level names": (["xs = [1, 2]; k = 10", "print([x * k for x in xs if x < k])"], "[10, 20]\n"),
    "nested comprehension in a function": (
        ["n = 2", "def f(): return {i: [j * n for j in range(i)] for i in range(3)}", "f()"],
        "{0: [], 1: [0], 2: [0, 2]}\n",
    ),
    "class body sees globals": (["n = 3", "class A:\n    xs = [n for _ in range(n)]", "A.xs"], "[3, 3, 3]\n"),
    "dataclass": (
        [
            "from dataclasses import dataclass, field\n"
            "@dataclass(order=True)\nclass P:\n    x: int\n    ys: list[int] = field(default_factory=list)",
            "P(1) < P(2), P(3)",
        ],
        "(True, P(x=3, ys=[]))\n",
    ),
    "pickle of a class": (
        ["class A:\n    def __init__(self, x): self.x = x", "import pickle; pickle.loads(pickle.dumps([A, A(5)]))[1].x"],
        "5\n",
    ),
    "pickle of a function": (["def f(x): return x + 1", "import pickle; pickle.loads(pickle.dumps(f))(1)"], "2\n"),
    "enum": (["import enum\nclass C(enum.Enum):\n    A = enum.auto()", "C.A, C['A'] is C.A"], "(<C.A: 1>, True)\n"),
    "namedtuple": (["import collections; P = collections.namedtuple('P', 'x y')", "P(1, 2)"], "P(x=1, y=2)\n"),
    "typing": (
        ["from typing import *\nT = TypeVar('T')\nclass Box(Generic[T]):\n    item: 'Box[int]' = None", "get_type_hints(Box)"],
        "{'item': __main__.Box[int]}\n",
    ),
    "annotations of the module": (["x: int = 3", "__import__('__main__').__annotations__"], "{'x': <class 'int'>}\n"),
    "closure": (
        [
            "def counter():\n    n = 0\n    def up():\n        nonlocal n\n        n += 1\n        return n\n    return up",
            "up = counter()",
            "up(), up()",
        ],
        "(1, 2)\n",
    ),
    "modes of the streams": (["import sys; sys.stdin.mode, sys.stdout.mode, sys.stderr.mode"], "('r', 'w', 'w')\n"),
    "wrapped standard input": (
        ["import gc, io, sys\nsys.stdin = io.TextIOWrapper(sys.stdin.buffer)\ngc.collect(); None", "sys.stdin.read()"],
        "''\n",
    ),
    "real builtins": (["import builtins", "__builtins__ is builtins"], "True\n"),
    "global statement": (["def f():\n    global made\n    made = 7", "f(); made"], "7\n"),
    "generator": (["def g():\n    got = yield 1\n    yield got", "it = g(); next(it)", "it.send('sent')"], "'sent'\n"),
    "decorator": (
        ["import functools\n@functools.cache\ndef fib(n): return n if n < 2 else fib(n-1) + fib(n-2)", "fib(90)"],
        "2880067194370816120\n",
    ),
    "match": (["match {'k': [1, 2]}:\n    case {'k': [a, *rest]}:\n        print(a, rest)"], "1 [2]\n"),
    "walrus": (["if (n := 3) > 2: print(n)", "n"], "3\n"),
    "lambda": (["f = lambda *a, **k: (a, k)", "f(1, b=2)"], "((1,), {'b': 2})\n"),
    "async": (
        [
            "import asyncio\nasync def f(n):\n    await asyncio.sleep(0.001)\n    return n",
            "async def both():\n    return await asyncio.gather(f(1), f(2))",
            "asyncio.run(both())",
        ],
        "[1, 2]\n",
    ),
    "async twice": (["import asyncio\nasync def f(): return 1", "asyncio.run(f())", "asyncio.run(f())"], "1\n"),
    "main guard": (["if __name__ == '__main__': print('main')"], "main\n"),
    "main module": (["x = 1", "import __main__, sys; __main__.x, sys.modules['__main__'] is __main__"], "(1, True)\n"),
    "exec and eval": (["exec('y = 2')", "eval('y + 1')"], "3\n"),
    "globals are locals": (["globals() is locals()"], "True\n"),
    "no name but its own": (["sorted(n for n in globals() if not n.startswith('__'))"], "[]\n"),
    "underscore": (["6 * 7", "_ + 1"], "43\n"),
    "underscore of a longer cell": (["x = 5\nx * 2", "_"], "10\n"),
    "del": (["x = 1", "del x", "'x' in globals()"], "False\n"),
    "star import": (["from math import *", "floor(pi)"], "3\n"),
    "value of a longer cell": (["x = 1\nx + 1"], "2\n"),
    "only the last value": (["1\n2\n3"], "3\n"),
    "values on one line": (["1; 2"], "2\n"),
    "None is not shown": (["None"], ""),
    "a last statement is not shown": (["1\nx = 2"], ""),
    "value of a string": (["'a\\n\"'"], "'a\\n\"'\n"),
    "value in a branch": (["if True:\n    5"], ""),
    "value with a trailing semicolon": (["5;"], "5\n"),
    "value with a comment": (["5  # five"], "5\n"),
    "value of a call that prints": (["print('a') or 5"], "a\n5\n"),
    "docstring": (["'doc'\nx = 1", "__doc__"], "'doc'\n"),
    "empty": ([""], ""),
    "blank": (["  \n\t\n"], ""),
    "only comments": (["# one\n# two"], ""),
    "one comment": (["# one"], ""),
    "one comment, a colon": (["# one: two"], ""),
    "pass": (["pass"], ""),
    "form feed": (["\f\nprint(1)\n\f"], "1\n"),
    "CRLF": (["if True:\r\n    print('a')\r\n    print('b')\r\n"], "a\nb\n"),
    "CR": (["a = 1\rprint(a)"], "1\n"),
    "CR at the end": (["print(1)\r"], "1\n"),
    "CRLF in a string": (["'''a\r\nb'''"], "'a\\nb'\n"),
    "tabs": (["if True:\n\tif True:\n\t\tprint('t')"], "t\n"),
    "byte order mark": (["\ufeffprint(1)"], "1\n"),
    "byte order mark, two lines": (["\ufeffx = 1\nx"], "1\n"),
    "coding cookie": (["# -*- coding: latin-1 -*-\nprint('é')"], "é\n"),
    "line continuation": (["x = 1 + \\\n    2\nx"], "3\n"),
    "no newline at the end of a block": (["for i in range(2):\n    print(i)"], "0\n1\n"),
    "1 MB of code": (["x = 0\n" + "x += 1  # one more\n" * 55_000 + "x"], "55000\n"),
    "1 MB literal": ([f"s = '{'é' * 500_000}'", "len(s)"], "500000\n"),
    "huge int": (["len(hex(7 ** 100_000))"], "70186\n"),
    "annotations are not lazy": (["def f(x: 1 + 1): pass", "f.__annotations__"], "{'x': 2}\n"),
    "future import stays": (
        ["from __future__ import annotations", "def f(x: 1 + 1): pass", "f.__annotations__"],
        "{'x': '1 + 1'}\n",
    ),
    "future import in a longer cell stays": (
        ["from __future__ import annotations\nimport os", "def f(x: 1 + 1): pass\nf.__annotations__"],
        "{'x': '1 + 1'}\n",
    ),
    "getsource of a function": (
        ["def f(x):\n    return x  # ü", "y = 1", "import inspect; print(inspect.getsource(f).rstrip())"],
        "def f(x):\n    return x  # ü\n",
    ),
    "getsource of a class": (
        [
            "y = 1\n\nclass A:\n    def f(self):\n        return 1\n\nz = 2",
            "import inspect; print(inspect.getsource(A).rstrip())",
        ],
        "class A:\n    def f(self):\n        return 1\n",
    ),
    "getsource of a method": (
        ["class A:\n    def f(self):\n        return 1", "import inspect; print(inspect.getsource(A.f).rstrip())"],
        "    def f(self):\n        return 1\n",
    ),
    "getsource of a dataclass": (
        [
            "from dataclasses import dataclass\n@dataclass\nclass A:\n    x: int = 0",
            "import inspect; print(inspect.getsource(A).rstrip())",
        ],
        "@dataclass\nclass A:\n    x: int = 0\n",
    ),
    "getsource of a redefined class": (
        ["class A:\n    x = 1", "class A:\n    x = 2", "import inspect; print(inspect.getsource(A).rstrip())"],
        "class A:\n    x = 2\n",
    ),
    "getsource of a nested class": (
        ["class A:\n    class B:\n        x = 1", "import inspect; print(inspect.getsource(A.B).rstrip())"],
        "    class B:\n        x = 1\n",
    ),
    "getsource of a library's class": (
        [
            "import inspect, enum",
            "inspect.getsource(enum.Enum).splitlines()[0], inspect.getsourcefile(enum.Enum) == enum.__file__",
        ],
        "('class Enum(metaclass=EnumType):', True)\n",
    ),
    "doctest": (
        ["def f():\n    '''\n    >>> f()\n    1\n    '''\n    return 1", "import doctest; doctest.testmod()"],
        "TestResults(failed=0, attempted=1)\n",
    ),
    "logging to stdout": (
        ["import logging, sys; logging.basicConfig(stream=sys.stdout)", "logging.warning('w')"],
        "WARNING:root:w\n",
    ),
    "sys.argv": (["import sys; sys.argv"], "['']\n"),
    "import from the working directory": (["open('mod.py', 'w').write('x = 4') and None", "import mod; mod.x"], "4\n"),
    "chdir stays": (["import os; os.mkdir('d'); os.chdir('d')", "os.path.basename(os.getcwd())"], "'d'\n"),
    "environment stays": (
        ["import os; os.environ['A'] = 'b'", "import subprocess; subprocess.check_output('echo $A', shell=True)"],
        "b'b\\n'\n",
    ),
    "stdin is at its end": (
        ["import sys; sys.stdin.read(), sys.stdin.buffer.read(), sys.stdin.isatty()"],
        "('', b'', False)\n",
    ),
    "temporary files": (["import tempfile\nwith tempfile.NamedTemporaryFile('w+') as f:\n    print(f.write('abc'))"], "3\n"),
    "sqlite": (
        [
            "import sqlite3; db = sqlite3.connect('a.db'); db.execute('create table t(x)');"
            "db.execute('insert into t values(4)');"
            "db.commit()",
            "list(db.execute('select * from t'))",
        ],
        "[(4,)]\n",
    ),
    "thread": (
        ["import threading\nt = threading.Thread(target=print, args=('in a thread',))\nt.start(); t.join()"],
        "in a thread\n",
    ),
    "thread over two cells": (
        [
            "import threading, time\ndone = threading.Event()\nresult = []\n"
            "t = threading.Thread(target=lambda: (done.wait(), result.append(1)), daemon=True); t.start()",
            "done.set(); t.join(); result",
        ],
        "[1]\n",
    ),
    "thread pool": (
        ["from concurrent.futures import *\nwith ThreadPoolExecutor(4) as pool:\n    print(sum(pool.map(abs, range(-9, 1))))"],
        "45\n",
    ),
    "process pool": (
        [
            "def square(x): return x * x",
            "from concurrent.futures import *\nwith ProcessPoolExecutor(2) as pool: print(list(pool.map(square, range(4))))",
        ],
        "[0, 1, 4, 9]\n",
    ),
    "multiprocessing.Process": (
        [
            "import multiprocessing as mp\ndef f(q): q.put(mp.current_process().name); print('child')",
            "q = mp.Queue(); p = mp.Process(target=f, args=(q,), name='P'); p.start(); p.join(); q.get(), p.exitcode",
        ],
        "child\n('P', 0)\n",
    ),
    "multiprocessing.Lock and Value": (
        [
            "import multiprocessing as mp\ndef f(lock, value):\n    for _ in range(50):\n        with lock: value.value += 1",
            "lock, value = mp.Lock(), mp.Value('i', 0)\nps = [mp.Process(target=f, args=(lock, value)) for _ in range(3)]",
            "for p in ps: p.start()\nfor p in ps: p.join()\nvalue.value",
        ],
        "150\n",
    ),
    "multiprocessing.Pool": (
        ["def f(x): return -x", "import multiprocessing as mp\nwith mp.Pool(2) as pool: print(pool.map(f, [1, 2, 3]))"],
        "[-1, -2, -3]\n",
    ),
    "multiprocessing.Manager": (
        ["import multiprocessing as mp\nwith mp.Manager() as m:\n    d = m.dict(a=1); d['b'] = 2; print(dict(d))"],
        "{'a': 1, 'b': 2}\n",
    ),
    "multiprocessing.Pipe": (
        [
            "import multiprocessing as mp\na, b = mp.Pipe()\np = mp.Process(target=lambda: b.send('hi')); p.start()",
            "a.recv(), p.join()",
        ],
        "('hi', None)\n",
    ),
    "multiprocessing, spawned": (
        [
            "import multiprocessing as mp\np = mp.get_context('spawn').Process(target=print, args=('spawned',))\n"
            "p.start(); p.join()"
        ],
        "spawned\n",
    ),
    "shared memory": (
        [
            "from multiprocessing.shared_memory import SharedMemory\ns = SharedMemory(create=True, size=8); s.buf[0] = 7",
            "t = SharedMemory(s.name); v = t.buf[0]; t.close(); s.close(); s.unlink(); v",
        ],
        "7\n",
    ),
    "subprocess": (["import subprocess\nsubprocess.run(['echo', 'from a child']).returncode"], "from a child\n0\n"),
    "subprocess, captured": (
        ["import subprocess\nsubprocess.run('echo out; echo err >&2; exit 3', shell=True, capture_output=True, text=True)"],
        "CompletedProcess(args='echo out; echo err >&2; exit 3', returncode=3, stdout='out\\n', stderr='err\\n')\n",
    ),
    "subprocess with input": (["import subprocess; subprocess.run(['cat'], input=b'in', stdout=-1).stdout"], "b'in'\n"),
    "python in a subprocess": (
        ["import subprocess, sys; subprocess.run([sys.executable, '-c', 'import numpy; print(numpy.arange(2))']);"],
        "[0 1]\nCompletedProcess(args=['{python}', '-c', 'import numpy; print(numpy.arange(2))'], returncode=0)\n",
    ),
    "os.system": (["import os; os.system('echo s; exit 2') >> 8"], "s\n2\n"),
    "order of output": (
        ["import os, sys, subprocess\nprint('1')\nsubprocess.run(['echo', '2'])\nos.write(1, b'3\\n')\nprint('4', end='')"],
        "1\n2\n3\n4",
    ),
    "fork": (
        ["import os\npid = os.fork()\nif pid == 0:\n    print('child')\nelse:\n    print(os.waitpid(pid, 0)[1])", "pid > 0"],
        "True\n",
    ),
    "fork, its output": (
        ["import os\npid = os.fork()\nif pid: os.waitpid(pid, 0)\nprint('child' if pid == 0 else 'parent')"],
        "child\nparent\n",
    ),
    "fork, sys.exit": (
        ["import os, sys\nif (pid := os.fork()) == 0: sys.exit(7)\nos.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])"],
        "7\n",
    ),
    "a child's status after an exception": (
        [
            "import os, sys\nif (pid := os.fork()) == 0:\n    sys.stderr = open(os.devnull, 'w')\n    1/0\n"
            "os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])"
        ],
        "1\n",
    ),
    "no end of line": (["print('x', end='')"], "x"),
    "C stdio": (["import ctypes; libc = ctypes.CDLL(None); libc.puts(b'from C') and libc.fflush(None)"], "from C\n0\n"),
    "C stdio without fflush": (["import ctypes; ctypes.CDLL(None).puts(b'from C'); None", "None"], ""),
    "os.write": (["import os; os.write(1, b'raw\\n');"], "raw\n4\n"),
    "sys.stdout.buffer": (["import sys; print('a'); _ = sys.stdout.buffer.write(b'b\\n'); print('c')"], "a\nb\nc\n"),
    "unicode": (["'äöü ñ 漢字 한글 עברית \\U0001f600 e\\u0301'"], "'äöü ñ 漢字 한글 עברית 😀 e\u0301'\n"),
    "unicode names": (["变量 = 'é'; ñ = 变量 * 2", "ñ"], "'éé'\n"),
    "emoji with joiners": (["print('👩‍👩‍👧‍👦🏳️‍🌈')"], "👩‍👩‍👧‍👦🏳️‍🌈\n"),
    "line and paragraph separators": (["print('a\\u2028b\\u2029c\\x85d')"], "a\u2028b\u2029c\x85d\n"),
    "control characters": (["print('\\x1b[31mred\\x07\\r\\x7f')"], "\x1b[31mred\x07\r\x7f\n"),
    "lone surrogate": (["print('a\\ud800b\\udfff')"], "a\ufffdb\ufffd\n"),
    "lone surrogate as a value": (["'\\ud800'"], "'\\ud800'\n"),
    "NUL": (["print('a\\0b')"], "a\ufffdb\n"),
    "no UTF-8": (["import os; os.write(1, b'a\\xffb\\xc3') and None"], "a\ufffdb\ufffd"),
    "cut UTF-8, twice": (["import os; os.write(1, '漢'.encode()[:2]); os.write(1, '漢'.encode()[2:]) and None"], "漢"),
    "redirect_stdout": (
        ["import contextlib, io\nwith contextlib.redirect_stdout(io.StringIO()) as f: print('x')", "f.getvalue()"],
        "'x\\n'\n",
    ),
    "stdout replaced": (
        [
            "import io, sys; sys.stdout = io.StringIO()",
            "print('into it')",
            "x = sys.stdout.getvalue(); sys.stdout = sys.__stdout__; x",
        ],
        "'into it\\n'\n",
    ),
    "stdout replaced and closed": (
        ["import io, sys; sys.stdout = io.StringIO(); sys.stdout.close()", "print('works')"],
        "works\n",
    ),
    "stdout closed": (["import sys; sys.stdout.close()", "print('works')"], "works\n"),
    "stdout closed with what it wraps": (["import sys; sys.stdout.detach().close()", "print('works')"], "works\n"),
    "stdout detached": (["import sys; sys.stdout.detach().flush()", "print('works')"], "works\n"),
    "stdout None": (["import sys; sys.stdout = None", "print('works')"], "works\n"),
    "stdout deleted": (["import sys; del sys.stdout", "print('works')"], "works\n"),
    "stdout as None for good": (["import sys; sys.stdout = sys.__stdout__ = None", "print('works')"], "works\n"),
    "descriptor 1 closed": (["import os; os.close(1)", "print('works')"], "works\n"),
    "descriptor 1 closed after output": (["import os; print('before'); os.close(1)", "print('works')"], "works\n"),
    "all three closed": (["import os; os.closerange(0, 3)", "import sys; print('works' + sys.stdin.read())"], "works\n"),
    "stdin closed": (["import sys; sys.stdin.close()", "sys.stdin.read()"], "''\n"),
    "descriptor 0 closed": (["import os; os.close(0)", "import os, sys; os.fstat(0) and sys.stdin.read()"], "''\n"),
    "displayhook": (["import sys; sys.displayhook = lambda v: print('<', v, '>')", "5"], "< 5 >\n"),
    "print patched": (
        ["import builtins; print_ = print; builtins.print = lambda *a: print_('patched', *a)", "print(1)"],
        "patched 1\n",
    ),
    "open patched": (["import builtins; builtins.open = None", "print('works')"], "works\n"),
    "builtins of the namespace deleted": (["del __builtins__", "print(len([1]))"], "1\n"),
    "builtins of the namespace replaced": (["__builtins__ = {}", "1 + 1"], "2\n"),
    "namespace cleared": (["globals().clear()", "print(1)"], "1\n"),
    "name changed": (["__name__ = 'other'", "1"], "1\n"),
    "main replaced": (["import sys, types; sys.modules['__main__'] = types.ModuleType('x'); y = 4", "y"], "4\n"),
    "linecache cleared": (["import linecache; linecache.clearcache()", "1 + 1"], "2\n"),
    "reliability guard of HumanEval": (
        [
            "import builtins, os, shutil, subprocess, sys\n"
            "builtins.exit = builtins.quit = None\n"
            "for name in 'kill system putenv remove removedirs rmdir fchdir setuid fork forkpty killpg rename renames truncate'"
            "' replace unlink'"
            "' fchmod fchown chmod chown chroot lchown getcwd chdir'.split(): setattr(os, name, None)\n"
            "shutil.rmtree = shutil.move = shutil.chown = subprocess.Popen = None\n"
            "for name in 'ipdb joblib resource psutil tkinter'.split(): sys.modules[name] = None",
            "1 + 1",
        ],
        "2\n",
    ),
    "json nested 100k deep": (["import json\ntry: json.loads('[' * 100_000)\nexcept RecursionError: print('deep')"], "deep\n"),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_prints_expected_output(session, name):
    cells, expected = PROGRAMS[name]
    for cell in cells:
        seen = session.run(cell)
        assert (seen.stderr, seen.exit_code) == ("", 0)
    if "{python}" in expected:
        expected = expected.replace("{python}", session.run("import sys; print(sys.executable, end='')").stdout)
    assert seen.stdout == expected
    assert seen.metadata.outcome is Outcome.OK
    assert not seen.metadata.state_lost


@pytest.mark.parametrize("code", ["5", "1\n2", "x = 1\nx", "print('a') or 5"])
def test_show_value_false_hides_values(session, code):
    session.reset(show_value=False)
    assert session.run(code).stdout == ("a\n" if "print" in code else "")
    session.reset()
    assert session.run("5").stdout == "5\n"


@pytest.mark.parametrize(
    ("code", "exit_code", "stderr"),
    [
        ("import sys; sys.exit()", 0, ""),
        ("import sys; sys.exit(None)", 0, ""),
        ("import sys; sys.exit(0)", 0, ""),
        ("import sys; sys.exit(3)", 3, ""),
        ("import sys; sys.exit(300)", 300 % 256, ""),
        ("import sys; sys.exit(-1)", 255, ""),
        ("import sys; sys.exit(2 ** 70 + 5)", 5, ""),
        ("import sys; sys.exit(True)", 1, ""),
        ("import sys; sys.exit(False)", 0, ""),
        ("import sys; sys.exit('message')", 1, "message\n"),
        ("import sys; sys.exit('')", 1, "\n"),
        ("import sys; sys.exit(2.5)", 1, "2.5\n"),
        ("import sys; sys.exit((1, 2))", 1, "(1, 2)\n"),
        ("import sys; sys.exit('\\ud800')", 1, "\\ud800\n"),
        ("exit(4)", 4, ""),
        ("quit()", 0, ""),
        ("raise SystemExit", 0, ""),
        ("raise SystemExit(9)", 9, ""),
        ("def f(): raise SystemExit(6)\nf()", 6, ""),
        ("import builtins, sys; builtins.print = None; sys.exit('message')", 1, "message\n"),
    ],
)
def test_exit_sets_exit_code(session, code, exit_code, stderr):
    session.run("kept = 1")
    seen = session.run(code)
    assert (seen.stdout, seen.stderr, seen.exit_code) == ("", stderr, exit_code)
    assert seen.metadata.outcome is (Outcome.OK if exit_code == 0 else Outcome.ERROR)
    assert not seen.metadata.state_lost
    assert session.run("kept").stdout == "1\n"


# Last line on stderr of a failing cell, without frames of the backend; the session continues.
FAILURES = {
    "1 / 0": "ZeroDivisionError: division by zero\n",
    "undefined": "NameError: name 'undefined' is not defined\n",
    "    x = 1": "IndentationError: unexpected indent\n",
    "if True:\nprint(1)": "IndentationError: expected an indented block after 'if' statement on line 1\n",
    "if True:\n\tx = 1\n        y = 2": "TabError: inconsistent use of tabs and spaces in indentation\n",
    "x = = 1": "SyntaxError: invalid syntax\n",
    "print('a": "SyntaxError: unterminated string literal (detected at line 1)\n",
    "return 1": "SyntaxError: 'return' outside function\n",
    "await f()": "SyntaxError: 'await' outside function\n",
    "x = 1\nbreak": "SyntaxError: 'break' outside loop\n",
    "'\\ud800'.encode()": "surrogates not allowed\n",
    "x = '\0'": "source code string cannot contain null bytes\n",
    "\0": "source code string cannot contain null bytes\n",
    "from __future__ import no_such": "SyntaxError: future feature no_such is not defined\n",
    "x = 1\nfrom __future__ import annotations": "from __future__ imports must occur at the beginning of the file\n",
    "input('prompt')": "EOFError: EOF when reading a line\n",
    "import no_such_module": "ModuleNotFoundError: No module named 'no_such_module'\n",
    "class E(BaseException): pass\nraise E('odd')": "E: odd\n",
    "raise GeneratorExit": "GeneratorExit\n",
    "raise StopIteration(3)": "StopIteration: 3\n",
    "raise ValueError from KeyError('cause')": "ValueError\n",
    "class E(Exception):\n    def __str__(self): raise ValueError\nraise E": "E: <exception str() failed>\n",
    "class E(Exception):\n    __str__ = __repr__ = None\nraise E": "E: <exception str() failed>\n",
    "class E(Exception):\n    def __str__(self): return 5\nraise E": "E: <exception str() failed>\n",
    "class V:\n    def __repr__(self): raise ValueError('no repr')\nV()": "ValueError: no repr\n",
    "class V:\n    def __repr__(self): return 5\nV()": "TypeError: __repr__ returned non-string (type int)\n",
    "class E(Exception):\n    __module__ = None\nraise E('m')": "E: m\n",
    "raise 5": "TypeError: exceptions must derive from BaseException\n",
    "def f(): f()\nf()": "RecursionError: maximum recursion depth exceeded\n",
    "raise ExceptionGroup('several', [ValueError(1), ExceptionGroup('inner', [KeyError('k')])])": "+-------------------",
    "e = ValueError('loop'); e.__cause__ = e; raise e": "ValueError: loop\n",
    "raise ValueError('\\ud800 \\0')": "ValueError: \\ud800 \ufffd\n",
    "raise ValueError('漢字 😀')": "ValueError: 漢字 😀\n",
    "int('9' * 5000)": "value has 5000 digits; use sys.set_int_max_str_digits() to increase the limit\n",
    "import sys; sys.displayhook = None\n5": "TypeError: 'NoneType' object is not callable\n",
    "import sys; del sys.displayhook\n5": "RuntimeError: lost sys.displayhook\n",
    "import os; os.kill(os.getpid(), 2)": "KeyboardInterrupt\n",
    "import asyncio\nasync def f(): raise ValueError('async')\nasyncio.run(f())": "ValueError: async\n",
    "from concurrent.futures import *\nThreadPoolExecutor().submit(lambda: 1 / 0).result()": "division by zero\n",
    "import subprocess; subprocess.run('exit 5', shell=True, check=True)": "returned non-zero exit status 5.\n",
    "import json; json.loads('{')": "property name enclosed in double quotes: line 1 column 2 (char 1)\n",
    "import inspect; inspect.getsource(int)": "TypeError: <class 'int'> is a built-in class\n",
    "import inspect; inspect.getsource(exec_made := type('No', (), {'__module__': '__main__'}))": "\n",
    "class F:\n    def write(self, text): raise OSError('full')\nimport sys; sys.stdout = F()\nprint(1)": "OSError: full\n",
}


@pytest.mark.parametrize("code", FAILURES)
def test_failure_shows_exception_and_keeps_namespace(session, code):
    session.run("kept = 1")
    seen = session.run(code)
    assert seen.stderr.endswith(FAILURES[code]) or FAILURES[code] in seen.stderr
    assert "coding_gym_server" not in seen.stderr
    assert seen.exit_code == (130 if "KeyboardInterrupt" in seen.stderr else 1)
    assert seen.metadata.outcome is Outcome.ERROR
    assert not seen.metadata.state_lost
    assert session.run("import sys; sys.stdout = sys.__stdout__; print(kept)").stdout == "1\n"


@pytest.mark.parametrize(
    "code", ["(" * 100_000 + ")" * 100_000, "-" * 100_000 + "1", "x = " + "[" * 500 + "]" * 500, "1" + "+1" * 200_000]
)
def test_unparsable_code_is_survived(session, code):
    seen = session.run(code)
    assert seen.exit_code != 0
    assert seen.metadata.outcome in (Outcome.ERROR, Outcome.KILLED)
    assert "coding_gym_server" not in seen.stderr
    assert session.run("print('works')").stdout == "works\n"


def test_traceback_shows_source_across_cells(session):
    session.run("def inner(x):\n    y = x\n    return y / 0  # the culprit")
    session.run("class A:\n    def method(self):\n        return inner(1)")
    seen = session.run("a = A()\n\na.method()")
    lines = [line for line in seen.stderr.splitlines() if not set(line) <= set(" ^~")]
    assert lines == [
        "Traceback (most recent call last):",
        '  File "<cell 3>", line 3, in <module>',
        "    a.method()",
        '  File "<cell 2>", line 3, in method',
        "    return inner(1)",
        '  File "<cell 1>", line 3, in inner',
        "    return y / 0  # the culprit",
        "ZeroDivisionError: division by zero",
    ]


def test_traceback_of_chained_exceptions(session):
    seen = session.run("try:\n    {}['missing']\nexcept KeyError as e:\n    raise ValueError('second') from e")
    assert "    {}['missing']\n" in seen.stderr
    assert "KeyError: 'missing'\n\nThe above exception was the direct cause of the following exception:\n" in seen.stderr
    assert seen.stderr.endswith("ValueError: second\n")
    assert seen.stderr.count('File "') == 2
    seen = session.run("try:\n    1 / 0\nfinally:\n    undefined")
    assert "During handling of the above exception, another exception occurred" in seen.stderr
    assert seen.stderr.count('File "') == 2


def test_syntax_error_shows_no_traceback(session):
    seen = session.run("x = 1\ny = (2,,)\n")
    assert seen.stderr.splitlines()[:2] == ['  File "<cell 1>", line 2', "    y = (2,,)"]
    assert "Traceback" not in seen.stderr


def test_syntax_error_prevents_execution(session):
    assert session.run("print('never')\n)").stdout == ""


def test_failing_cell_keeps_earlier_effects(session):
    seen = session.run("x = 5\nprint('before')\n1 / 0\nprint('after')")
    assert (seen.stdout, seen.exit_code) == ("before\n", 1)
    assert session.run("x").stdout == "5\n"


def test_print_exc_and_last_value_work(session):
    seen = session.run("import traceback\ntry: 1 / 0\nexcept ZeroDivisionError: traceback.print_exc()")
    assert seen.stderr.splitlines()[1] == '  File "<cell 1>", line 2, in <module>'
    session.run("1 / 0")
    assert session.run("import sys; sys.last_type, sys.last_value").stdout.startswith("(<class 'ZeroDivisionError'>, Zero")


@pytest.mark.parametrize(
    ("hook", "stderr"),
    [
        ("lambda t, v, tb: print('hooked', t.__name__, file=sys.stderr)", "hooked ZeroDivisionError\n"),
        ("lambda t, v, tb: undefined", "ZeroDivisionError: division by zero\n"),
        ("lambda t, v, tb: sys.exit(3)", ""),
        ("lambda t, v, tb: exec('raise KeyboardInterrupt')", ""),
        ("None", "ZeroDivisionError: division by zero\n"),
    ],
)
def test_custom_excepthook_is_called(session, hook, stderr):
    session.run(f"import sys; kept = 1; sys.excepthook = {hook}")
    seen = session.run("1 / 0")
    assert seen.stderr.endswith(stderr)
    assert "coding_gym_server" not in seen.stderr
    assert seen.metadata.outcome is Outcome.ERROR
    assert not seen.metadata.state_lost
    assert session.run("kept").stdout == "1\n"


@pytest.mark.parametrize(
    "vandalism",
    [
        "sys.stderr = object()\n1 / 0",
        "sys.stderr = None\n1 / 0",
        "del sys.stderr\n1 / 0",
        "class L(list): flush = None\nsys.stdout = L()",
        "sys.stdout = sys.stderr = 'text'\n1 / 0",
        "class F:\n    def __getattr__(self, name): raise KeyboardInterrupt\nsys.stdout = F()",
        "class F:\n    def flush(self): sys.exit(5)\nsys.stdout = F()",
        "class F:\n    @property\n    def closed(self): raise RuntimeError\n    def flush(self): pass\nsys.stdout = F()",
        "del sys.excepthook\n1 / 0",
        "del sys.__excepthook__, sys.__stdout__, sys.__stderr__\n1 / 0",
        "class E(SystemExit):\n    code = property(lambda self: 1 / 0)\nraise E",
        "class V:\n    def __str__(self): raise ValueError\nsys.exit(V())",
        "class E(Exception):\n    __traceback__ = property()\nraise E",
        "class E(Exception):\n    def __getattribute__(self, name): raise ValueError\nraise E",
        "import signal; signal.signal(signal.SIGINT, lambda *_: 1 / 0); import os; os.kill(os.getpid(), 2)",
        "sys.setrecursionlimit(60)\ndef f(): f()\nf()",
        "sys.settrace(lambda *a: 1 / 0)\nx = 1",
        "sys.setprofile(lambda *a: 1 / 0)\nlen('')",
        "import threading; threading.excepthook = None; threading.Thread(target=lambda: 1 / 0).start()",
        "import os; os.environ.clear(); os.environ = None",
        "import gc; gc.disable(); gc.freeze()",
        "import sys; sys.path = None",
        "sys.setswitchinterval(100)",
        "import os; os.umask(0o777)",
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (4, 4))",
        "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))",
        "import os; os.rmdir(os.getcwd())",
        "import os; os.setpgid(0, 0) if os.getpgrp() != os.getpid() else None",
    ],
)
def test_vandalism_keeps_the_namespace(session, vandalism):
    session.run("import sys; kept = 1")
    assert session.run(vandalism).metadata.state_lost is False
    seen = session.run("import os; os.write(1, str(kept).encode()) and None")
    assert (seen.stdout, seen.metadata.state_lost) == ("1", False)


@pytest.mark.parametrize(("name", "exit_code"), [("KeyboardInterrupt", 130), ("ZeroDivisionError", 1)])
def test_exception_before_the_code_begins_is_reported(session, name, exit_code):
    # As an interrupt may be: between the worker's preparations for the next cell and its code.
    session.run(f"def trace(frame, *_):\n    if frame.f_code.co_name == 'execute': raise {name}")
    session.run("import sys; sys.settrace(trace)")
    seen = session.run("print('not reached')")
    assert (seen.stdout, seen.stderr, seen.exit_code) == ("", f"{name}\n", exit_code)
    assert session.run("print(1)").stdout == "1\n"


@pytest.mark.parametrize(
    "vandalism",
    [
        "import builtins; builtins.__dict__.clear()",
        "import sys\nfor m in list(sys.modules.values()):\n    if 'coding_gym_server' in m.__name__: m.__dict__.clear()",
        "import msgspec, socket, os, signal\nfor m in (msgspec, socket, os, signal): m.__dict__.clear()",
        "import gc\nfor o in gc.get_objects():\n    if isinstance(o, dict) and '_channel' in o: o.clear()",
        "import socket; socket.socket.sendall = socket.socket.recv = None",
        "import sys; sys.modules.clear()",
        "import linecache; linecache.getline = linecache.getlines = linecache.cache = None",
        "import traceback; traceback.print_exception = None; 1 / 0",
        "import os; os.getpid = os.fstat = os.dup2 = None",
        "import signal; signal.signal = None",
        "import ast, builtins; ast.Interactive = ast.Expr = None",
        "import builtins; builtins.compile = None",
        "import builtins; builtins.exec = builtins.len = builtins.isinstance = None",
    ],
)
def test_severe_vandalism_is_survived(session, vandalism):
    session.run(vandalism)
    session.run("1")
    seen = session.run("print('works')")
    assert (seen.stdout, seen.exit_code, seen.metadata.outcome) == ("works\n", 0, Outcome.OK)


@pytest.mark.parametrize(
    ("code", "stderr"),
    [
        ("import warnings; warnings.warn('careful')", "<cell 1>:1: UserWarning: careful\n"),
        ("import warnings; warnings.warn('old', DeprecationWarning)", "<cell 1>:1: DeprecationWarning: old\n"),
        ("x = 1\nx is 1", '<cell 1>:2: SyntaxWarning: "is" with'),
        ("import logging; logging.warning('w'); logging.info('i')", "WARNING:root:w\n"),
        ("import sys; print('e', end='', file=sys.stderr)", "e"),
        ("import os; os.write(2, b'\\xff\\0') and None", "\ufffd\ufffd"),
        ("import subprocess; subprocess.run('echo err >&2', shell=True) and None", "err\n"),
        ("import faulthandler; faulthandler.dump_traceback()", 'File "<cell 1>", line 1 in <module>\n'),
        (
            "import threading; t = threading.Thread(target=lambda: 1 / 0); t.start(); t.join()",
            "ZeroDivisionError: division by zero\n",
        ),
        (
            "import multiprocessing as mp; p = mp.Process(target=lambda: 1 / 0); p.start(); p.join()",
            "ZeroDivisionError: division by zero\n",
        ),
        ("class A:\n    def __del__(self): 1 / 0\nA() and None", "ZeroDivisionError: division by zero\n"),
    ],
)
def test_successful_cell_can_write_stderr(session, code, stderr):
    seen = session.run(code)
    assert stderr in seen.stderr
    assert seen.stderr.count(stderr) == 1
    assert (seen.exit_code, seen.metadata.outcome) == (0, Outcome.OK)


def test_thread_output_appears_in_later_cell(session):
    session.run("import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.05), print('late'))).start()")
    assert session.run("time.sleep(0.2)").stdout == "late\n"


def test_forked_child_never_answers_for_parent(session):
    session.run("import os")
    seen = session.run("if pid := os.fork(): os.wait()\nprint('p' if pid else 'c')\nraise (ValueError if pid else KeyError)")
    assert (seen.stdout, seen.exit_code) == ("c\np\n", 1)
    assert [line for line in seen.stderr.splitlines() if line.endswith("Error")] == ["KeyError", "ValueError"]
    assert session.run("print(pid > 0)").stdout == "True\n"


def test_forked_child_outlives_its_cell(session):
    session.run("import os, time\nif (pid := os.fork()) == 0:\n    time.sleep(0.1)\n    print('child', flush=True)")
    assert session.run("os.waitpid(pid, 0)[1]").stdout == "child\n0\n"
