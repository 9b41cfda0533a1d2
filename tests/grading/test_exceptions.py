"""Exceptions cross with their classes, arguments and data, so that handlers of tests catch them."""

from __future__ import annotations

import textwrap
from typing import Any

import pytest

from coding_gym_server.protocol.grading import CaseOutcome
from coding_gym_server.remote_objects.exceptions import class_of_name, exception_state, name_of_class, new_exception
from coding_gym_server.remote_objects.values import MalformedError
from tests.grading.judging import Judge

_CODE = """
import csv, decimal, json, queue, sqlite3, struct, subprocess, urllib.error, zipfile, zlib
def load(text): return json.loads(text)
def run(): subprocess.run(["false"], check=True)
def query(): sqlite3.connect(":memory:").execute("select * from missing")
def divide(): return decimal.Decimal(1) / 0
def unzip(): zipfile.ZipFile(__file__ and "/dev/null")
def read(path): return open(path).read()
def decode(): b"\\xff".decode()
def rows(): list(csv.reader(["a\\0"], strict=True)); raise csv.Error("bad")
def stop(): queue.Queue().get_nowait()
def fetch(): raise urllib.error.HTTPError("http://x", 404, "gone", {}, None)
class DiskError(OSError):
    def __init__(self, path): super().__init__(5, "broken", path); self.path = path
class ParseError(json.JSONDecodeError):
    pass
class Odd(UnicodeDecodeError):
    pass
class Quiet(KeyError):
    def __init__(self): pass
    def __str__(self): return "quiet"
def own(n):
    if n == 0: raise DiskError("disk")
    if n == 1: raise ParseError("no", "doc", 1)
    if n == 2: raise Odd("ascii", b"x", 0, 1, "why")
    if n == 3: raise Quiet
    raise ExceptionGroup("many", [ValueError(1), DiskError("d")])
def value(): return ValueError("v", [1]), FileNotFoundError(2, "no", "f")
def pass_on(f): return f()
def catch(f):
    try: f()
    except json.JSONDecodeError as e: return e.pos, e.msg
    except OSError as e: return e.errno, e.filename
"""

_CASES = {
    "JSON": "try: load('{x')\nexcept json.JSONDecodeError as e: assert (e.pos, e.lineno, e.doc) == (1, 1, '{x') and 'Expecting' in e.msg + str(e)\n"
    "else: raise AssertionError",
    "processes": "try: run()\nexcept subprocess.CalledProcessError as e: assert e.returncode == 1 and e.cmd == ['false'] and 'returned non-zero' in str(e)\n"
    "else: raise AssertionError",
    "databases": "try: query()\nexcept sqlite3.OperationalError as e: assert 'no such table' in str(e)\nelse: raise AssertionError",
    "decimals": "try: divide()\nexcept decimal.DivisionByZero: pass\nelse: raise AssertionError",
    "archives": "try: unzip()\nexcept zipfile.BadZipFile: pass\nelse: raise AssertionError",
    "files": "try: read('none.txt')\nexcept FileNotFoundError as e: assert (e.errno, e.strerror, e.filename) == (2, 'No such file or directory', 'none.txt')\n"
    "else: raise AssertionError",
    "codecs": "try: decode()\nexcept UnicodeDecodeError as e: assert (e.encoding, e.object, e.start, e.end) == ('utf-8', b'\\xff', 0, 1) and 'invalid' in str(e)\n"
    "else: raise AssertionError",
    "tables": "try: rows()\nexcept csv.Error: pass\nelse: raise AssertionError",
    "queues": "try: stop()\nexcept queue.Empty: pass\nelse: raise AssertionError",
    "web": "try: fetch()\nexcept urllib.error.HTTPError as e: assert e.code == 404 and e.msg == 'gone'\nelse: raise AssertionError",
    "own, of OSError": "try: own(0)\nexcept OSError as e: assert (e.errno, e.filename, e.path) == (5, 'disk', 'disk') and isinstance(e, DiskError)\n"
    "else: raise AssertionError\nassert issubclass(DiskError, OSError)",
    "own, of a library's": "try: own(1)\nexcept json.JSONDecodeError as e: assert type(e).__name__ == 'ParseError' and e.pos == 1\nelse: raise AssertionError",
    "own, of codecs": "try: own(2)\nexcept UnicodeDecodeError as e: assert e.reason == 'why'\nelse: raise AssertionError",
    "own, without arguments": "try: own(3)\nexcept KeyError as e: assert str(e) == 'quiet' and e.args == ()\nelse: raise AssertionError",
    "groups": "try: own(4)\nexcept* ValueError as e: assert e.exceptions[0].args == (1,)\nexcept* OSError as e: assert e.exceptions[0].path == 'd'\n"
    "else: raise AssertionError",
    "values": "v, f = value()\nassert type(v) is ValueError and v.args == ('v', [1]) and type(f) is FileNotFoundError and f.filename == 'f'",
    "identity of own": "class E(Exception): pass\nerror = E(1)\ndef fail(): raise error\ntry: pass_on(fail)\nexcept E as e: assert e is error\n"
    "else: raise AssertionError",
    "to the submission": "def fail(): json.loads('{x')\nassert catch(fail) == (1, 'Expecting property name enclosed in double quotes')\n"
    "def lost(): open('nothing')\nassert catch(lost) == (2, 'nothing')",
    "assertRaises": "import unittest\nt = unittest.TestCase()\nwith t.assertRaises(json.JSONDecodeError): load('x')\n"
    "with t.assertRaisesRegex(OSError, 'broken'): own(0)\nwith t.assertRaises(DiskError): own(0)",
}


def test_handlers_catch_exceptions_of_libraries(judge: Judge) -> None:
    setup = "import csv, decimal, json, queue, sqlite3, subprocess, urllib.error, zipfile"
    graded = judge.asserts(textwrap.dedent(_CODE), *_CASES.values(), setup=setup)
    names = list(_CASES)
    assert {names[int(case.name)]: case.message for case in graded.cases if case.outcome is not CaseOutcome.PASSED} == {}


def test_names_resolve_to_exceptions_only() -> None:
    assert class_of_name("KeyError") is KeyError
    assert name_of_class(class_of_name("json.decoder:JSONDecodeError")) == "json.decoder:JSONDecodeError"
    for name in (
        *("eval", "type", "", ":", "object", "subprocess:Popen", "unittest.case:SkipTest", "unittest.case:_ShouldStop"),
        *("_pytest.outcomes:Skipped", "os:error", "json.decoder:JSONDecoder", "nowhere:Error", "asyncio.exceptions:nothing"),
    ):
        with pytest.raises(MalformedError):
            class_of_name(name)


def test_attributes_are_data_of_the_class() -> None:
    error = new_exception(OSError, (5, "x"), {"filename": "g", "args": (1,), "_private": 2, "add_note": 3, "extra": 4})
    assert (error.args, vars(error)) == ((5, "x"), {"extra": 4})
    assert error.filename == "g"
    assert exception_state(error)[1] == {"errno": 5, "strerror": "x", "filename": "g", "extra": 4}
    assert callable(error.add_note)


@pytest.mark.parametrize("state", [((), ()), ([], {}), (None, {}), ((), None)])
def test_malformed_state_is_refused(state: Any) -> None:
    with pytest.raises(MalformedError):
        new_exception(ValueError, *state)
