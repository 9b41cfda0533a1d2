"""Tests that execute what their submission may have chosen: reported before it happens, and nothing else is."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

import pytest

from coding_gym.tasks import Verdict
from coding_gym_server.protocol.grading import Graded, VerdictOutcome
from tests.grading.judging import Judge

EXECUTING = {
    "eval": ("return [1, 2]", "assert eval(repr(answer())) == [1, 2]", "compile"),
    "eval in a library": ("return '1 + 1'", "import sympy\nassert sympy.sympify(answer()) == 2", "compile"),
    "exec": ("return 'x = 1'", "scope = {}\nexec(answer(), scope)\nassert scope['x'] == 1", "compile"),
    "compile": ("return 'x = 1'", "compile(answer(), 'answer', 'exec')", "compile"),
    "annotations": (
        "return {'x': 'int'}",
        "import typing\ndef f(x): ...\nf.__annotations__ = answer()\nassert typing.get_type_hints(f) == {'x': int}",
        "compile",
    ),
    "generated class": (
        "return 'x'",
        "import dataclasses\nKind = dataclasses.dataclass(type('Kind', (), {'__annotations__': {answer() + ': [0]': int}}))",
        "compile",
    ),
    "custom loader": (
        "return 'x = 1'",
        "import importlib.abc, importlib.util\n"
        "class Loader(importlib.abc.SourceLoader):\n"
        "    def get_filename(self, name): return 'answer.py'\n"
        "    def get_data(self, path): return answer().encode()\n"
        "spec = importlib.util.spec_from_loader('answer', Loader())\n"
        "module = importlib.util.module_from_spec(spec)\n"
        "spec.loader.exec_module(module)\n"
        "assert module.x == 1",
        "compile",
    ),
    "pickle": (
        "import pickle, collections\nreturn pickle.dumps(collections.OrderedDict(a=1))",
        "import pickle\nassert pickle.loads(answer()) == {'a': 1}",
        "pickle.find_class",
    ),
    "unpickler that finds classes by itself": (
        "import pickle, collections\nreturn pickle.dumps(collections.OrderedDict(a=1))",
        "import importlib, io, pickle\n"
        "class Own(pickle.Unpickler):\n"
        "    def find_class(self, module, name): return getattr(importlib.import_module(module), name)\n"
        "assert Own(io.BytesIO(answer())).load() == {'a': 1}",
        "pickle.find_class",
    ),
    "shelf": (
        "import shelve\nwith shelve.open('shelf') as shelf: shelf['a'] = {1}.union\nreturn 1",
        "import dbm, shelve\nassert answer() and shelve.open('shelf')['a']() == {1}",
        ("open", "pickle.find_class"),
    ),
    "pandas pickle": (
        "import pandas, io\nfile = io.BytesIO()\npandas.Series([1]).to_pickle(file)\nreturn file.getvalue()",
        "import io, pandas\nassert list(pandas.read_pickle(io.BytesIO(answer()))) == [1]",
        "pickle.find_class",
    ),
    "array of objects": (
        "import io, numpy\nfile = io.BytesIO()\nnumpy.save(file, numpy.array([complex], object))\nreturn file.getvalue()",
        "import io, numpy\nassert numpy.load(io.BytesIO(answer()), allow_pickle=True)[0] is complex",
        "pickle.find_class",
    ),
    "DataFrame.eval": (
        "return 'a + 1'",
        "import pandas\nassert list(pandas.DataFrame({'a': [1]}).eval(answer())) == [2]",
        "compile",
    ),
    "DataFrame.query": (
        "return 'a > 1'",
        "import pandas\nassert len(pandas.DataFrame({'a': [1, 2]}).query(answer())) == 1",
        "compile",
    ),
    "imported file": (
        "open('written.py', 'w').write('x = 1')\nreturn 1",
        "import sys\nassert answer()\nsys.path.insert(0, '.')\nimport written\nassert written.x == 1",
        "open",
    ),
    "executed file": (
        "open('written.py', 'w').write('x = 1')\nreturn 1",
        "import runpy\nassert answer()\nassert runpy.run_path('written.py')['x'] == 1",
        "open",
    ),
    "file by another path": (
        "open('written', 'w').write('x = 1')\nreturn 1",
        "assert answer() and open('/proc/self/cwd/written').read()",
        "open",
    ),
    "program": (
        "open('written.py', 'w').write('print(1)')\nreturn 1",
        "import subprocess, sys\nassert answer()\nassert subprocess.check_output([sys.executable, 'written.py']) == b'1\\n'",
        "subprocess.Popen",
    ),
    "shell": ("return 'true'", "import os\nassert os.system(answer()) == 0", "os.system"),
    "fork": ("return 0", "import os\npid = os.fork()\nif not pid: os._exit(answer())\nos.waitpid(pid, 0)", "os.fork"),
    "marshal": (
        "import marshal\nreturn marshal.dumps([1])",
        "import marshal\nassert marshal.loads(answer()) == [1]",
        "marshal.loads",
    ),
    "machine code": ("return 'libc.so.6'", "import ctypes\nassert ctypes.CDLL(answer()).abs(-1) == 1", "ctypes.dlopen"),
    "function": (
        "return 2",
        "import types\nassert types.FunctionType((lambda: 2).__code__, {})() == answer()",
        "function.__new__",
    ),
    "code": ("return 2", "assert (lambda: 1).__code__.replace(co_consts=(None, answer()))", "code.__new__"),
}
"""What a function ``answer`` does, a test that executes it, and the event."""

HARMLESS = {
    "literal": ("return '[1, 2]'", "import ast\nassert ast.literal_eval(answer()) == [1, 2]"),
    "syntax tree": ("return 'x = 1'", "import ast\nassert isinstance(ast.parse(answer()).body[0], ast.Assign)"),
    "JSON": ("return '[1, 2]'", "import json\nassert json.loads(answer()) == [1, 2]"),
    "array": (
        "import io, numpy\nfile = io.BytesIO()\nnumpy.save(file, numpy.arange(3))\nreturn file.getvalue()",
        "import io, numpy\nassert list(numpy.load(io.BytesIO(answer()))) == [0, 1, 2]",
    ),
    "pickled data": ("import pickle\nreturn pickle.dumps([1])", "import pickle\nassert pickle.loads(answer()) == [1]"),
    "pattern": ("return '[a-z]+'", "import re\nassert re.compile(answer()).fullmatch('abc')"),
    "named tuple": (
        "return [1, 2]",
        "import collections, typing\nPoint = collections.namedtuple('Point', 'x y')\n"
        "class Line(typing.NamedTuple):\n    a: Point\n    b: int = 0\n"
        "assert Line(Point(*answer())).a.y == 2",
    ),
    "data class": (
        "return [1, 2]",
        "import dataclasses\n@dataclasses.dataclass(order=True)\nclass Point:\n    x: int\n    y: int = 0\n"
        "@dataclasses.dataclass(slots=True)\nclass Other(Point): ...\n"
        "assert dataclasses.make_dataclass('Pair', ['a', 'b'])(*answer()).b == Point(*answer()).y == 2",
    ),
    "late import": (
        "return 4",
        "import bdb, wave, xml.dom.minidom, ctypes.util, asyncio.staggered, imaplib\nassert answer() == 4",
    ),
    "late library": (
        "return 4",
        "import scipy.stats, sympy.plotting, matplotlib.animation, pandas.plotting\nassert answer() == 4",
    ),
    "patch": (
        "return input()",
        "from unittest.mock import MagicMock, patch\nwith patch('builtins.input', side_effect=['a']) as mock:\n"
        "    assert answer() == 'a'\nassert mock.called and MagicMock(return_value=1)() == 1",
    ),
    "specified mock": (
        "return 4",
        "import os\nfrom unittest.mock import create_autospec, patch\nassert create_autospec(os.listdir, return_value=4)('.') == answer()\n"
        "with patch('os.getcwd', autospec=True) as mock:\n    os.getcwd()\nassert mock.called",
    ),
    "pytest": ("return [][0]", "import pytest\nwith pytest.raises(IndexError, match='range'):\n    answer()"),
    "coroutine": ("return 4", "import asyncio\nasync def main(): return answer()\nassert asyncio.run(main()) == 4"),
    "own files": (
        "return open('in.txt').read().upper()",
        "workspace.write_text('in.txt', 'a')\nassert answer() == 'A'\nassert workspace.read_text('in.txt') == 'a'",
    ),
    "system's files": ("return 4", "import os\nassert answer() == 4 and open(os.__file__).read()"),
    "copy": ("return [[1]]", "import copy\nvalue = answer()\nassert copy.deepcopy(value) == value"),
    "failure": (
        "return 5",
        "import unittest\ncase = unittest.TestCase()\n"
        "with case.assertRaises(AssertionError):\n    case.assertEqual(answer(), 4)",
    ),
}
"""What a function ``answer`` does, and a test that executes nothing of it."""


def program(body: str) -> str:
    return f"def answer():\n{textwrap.indent(body, '    ')}\n"


def libraries_of(source: str) -> set[str]:
    return {name for name in ("matplotlib", "numpy", "pandas", "scipy", "sympy") if f"import {name}" in source}


def need(*sources: str) -> None:
    for name in set().union(*map(libraries_of, sources)):
        pytest.importorskip(name)


def grade(judge: Judge, body: str, case: str) -> Iterator[Graded]:
    """Grade with the test as a snippet, as a function and as a method."""
    yield judge.asserts(program(body), case, entry_point="answer")
    for indent, head in ((4, "def test():\n"), (8, "import unittest\nclass Test(unittest.TestCase):\n    def test(self):\n")):
        yield judge.unit_tests(program(body), head + textwrap.indent(case, " " * indent), entry_point="answer")


@pytest.mark.parametrize("kind", EXECUTING)
def test_execution_is_reported(judge: Judge, kind: str) -> None:
    body, case, events = EXECUTING[kind]
    need(body, case)
    for graded in grade(judge, body, case):
        assert graded.executed in ([events] if isinstance(events, str) else events), graded.cases
        assert not Verdict.of("task", graded).tamper_resistant


@pytest.mark.parametrize("kind", HARMLESS)
def test_harmless_tests_are_not_reported(judge: Judge, kind: str) -> None:
    body, case = HARMLESS[kind]
    need(body, case)
    for graded in grade(judge, body, case):
        assert (graded.executed, graded.cases[0].message) == ("", "")
        assert Verdict.of("task", graded).tamper_resistant


def test_report_cannot_be_withdrawn(judge: Judge) -> None:
    forgery = """
import contextlib, gc, msgspec, os, socket, struct
from coding_gym_server.protocol.grading import CaseOutcome, CaseResult
from coding_gym_server.test_runner.messages import Executing, TestsRun
passed = TestsRun(is_loaded=True, is_lost=False, cases=[CaseResult(name="0", outcome=CaseOutcome.PASSED)])
for message in (Executing(""), passed):
    body = msgspec.msgpack.encode(message)
    for end in [found for found in gc.get_objects() if isinstance(found, socket.socket)]:
        with contextlib.suppress(OSError):
            end.sendall(struct.pack("<I", len(body)) + body)
os._exit(0)
"""
    code = f"class Text(str):\n    def __repr__(self): return 'exec(' + repr({forgery!r}) + ')'\ndef answer(): return Text()"
    graded = judge.asserts(code, "assert eval(repr(answer())) == 'a'", entry_point="answer")
    assert (graded.outcome, graded.executed) == (VerdictOutcome.PASSED, "compile")
    assert not Verdict.of("task", graded).tamper_resistant


@pytest.mark.parametrize(
    "case",
    [
        "import copy\nassert copy.copy(answer()) == [1]",
        "import copy\nassert copy.deepcopy(answer()) == [1]",
        "import copy\nassert copy.deepcopy([answer()]) == [[1]]",
        "import pickle\nassert pickle.loads(pickle.dumps(answer())) == [1]",
        "assert answer()() == [1]",
        "assert answer()()() == [1]",
        "assert sorted([2, 1], key=answer()) == [2, 1]",
        "import functools\nassert functools.reduce(answer(), [1, 2]) == [1]",
    ],
)
def test_copies_and_calls_of_objects_execute_nothing(judge: Judge, case: str) -> None:
    code = """
class Answer:
    def __reduce_ex__(self, protocol): return eval, ("[1]",)
    def __reduce__(self): return eval, ("[1]",)
    def __copy__(self): return eval
    def __deepcopy__(self, memo): return eval
    def __call__(self, *arguments): return eval
def answer(): return Answer()
"""
    graded = judge.asserts(code, case, entry_point="answer")
    assert (graded.outcome, graded.executed) == (VerdictOutcome.FAILED, "")
