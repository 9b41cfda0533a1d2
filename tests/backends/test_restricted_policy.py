"""Guarantees of the restricted backend beyond the corpora: validation programs, imports, results, interrupts."""

from __future__ import annotations

import sys

import pytest
from websockets.sync.client import connect

from coding_gym_server.worker.backends.registry import backend_class
from tests.backends.backend_session import BackendSession
from tests.support.running_server import RunningServer
from tests.support.timing import promptly


@pytest.fixture(autouse=True)
def fresh(restricted):
    restricted.reset()


# The validation programs of the coding environment that this backend originates from.


def test_basic_execution(restricted):
    shown = restricted.run("x = 6\ny = x * 7\nprint('answer', y)")
    assert (shown.stdout, shown.stderr, shown.exit_code) == ("answer 42\n", "", 0)


def test_tracebacks_contain_only_user_frames(restricted):
    shown = restricted.run("def inner():\n    return 1 / 0\n\ndef outer():\n    return inner()\n\nouter()")
    assert shown.exit_code == 1
    lines = shown.stderr.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert [line for line in lines if line.startswith("  File")] == [
        '  File "<cell 1>", line 7, in <module>',
        '  File "<cell 1>", line 5, in outer',
        '  File "<cell 1>", line 2, in inner',
    ]
    assert lines[-1] == "ZeroDivisionError: division by zero"


def test_dataclass(restricted):
    shown = restricted.run(
        "from dataclasses import dataclass\n"
        "@dataclass\nclass Point:\n    x: int\n    y: int\n"
        "    def norm1(self) -> int:\n        return abs(self.x) + abs(self.y)\n"
        "p = Point(3, y=-4)\nprint(p, p.norm1())"
    )
    assert shown.stdout == "Point(x=3, y=-4) 7\n"


def test_persistence(restricted):
    restricted.run("base = 10\ndef add(n): return base + n\nclass Kept: size = 3")
    assert restricted.run("base += 1\nprint(add(5), Kept().size)").stdout == "16 3\n"


def test_import_restrictions(restricted):
    assert restricted.run("import math\nprint(math.sqrt(16))").stdout == "4.0\n"
    shown = restricted.run("import os")
    assert shown.exit_code == 1
    last = shown.stderr.splitlines()[-1]
    assert last.startswith("ImportError: import of 'os' is not authorized in the restricted backend. Authorized: abc, ")
    assert " math, " in last


def test_utilities(restricted):
    shown = restricted.run("try:\n    {}['k']\nexcept KeyError:\n    print(format_exc())")
    assert shown.stdout.splitlines()[0] == "Traceback (most recent call last):"
    assert shown.stdout.splitlines()[-2:] == ["KeyError: 'k'", ""]
    assert restricted.run("print(safe_json_dumps({'a': [1, {2}, None]}))").stdout == '{"a": [1, "{2}", null]}\n'
    assert restricted.run("print(format_exc(), end='')").stdout == "NoneType: None\n"


# Refusals and their error messages.


REFUSALS = {
    "().__class__.__base__": "SyntaxError: the attribute '__base__' may not be read (a rule of the restricted backend)",
    "g = (i for i in [])\ngetattr(g, 'gi_frame')": "AttributeError: the attribute 'gi_frame' of 'generator' objects may not",
    "import random\nrandom._os": "AttributeError: module 'random' has no attribute '_os' in the restricted backend",
    "from statistics import sys": "ImportError: cannot import name 'sys' from 'statistics' in the restricted backend",
    "open('f', 'w')": "NameError: open() is not available in the restricted backend",
    "import math\nmath.pi = 3": "AttributeError: the attribute 'pi' of 'module' objects may not be set in the restricted",
    "type('C', (), {})": "TypeError: type() cannot create objects in the restricted backend: use a class or def statement",
    "class M(type): pass": "TypeError: 'type' cannot be a base class in the restricted backend",
    "__builtins__": "SyntaxError: '__builtins__' is reserved by the language or the restricted backend",
    "from . import x": "ImportError: import of '.' is not authorized",
    "import numpy": "ImportError: import of 'numpy' is not authorized",
}


def test_refusals_name_rule_and_backend(restricted):
    found = {}
    for code, error in REFUSALS.items():
        shown = restricted.run(code)
        found[code] = shown.exit_code, shown.stderr.splitlines()[-1][: len(error)], "coding_gym_server" in shown.stderr
    assert found == {code: (1, error, False) for code, error in REFUSALS.items()}


def test_refused_cell_executes_no_statement(restricted):
    restricted.run("print('begun')\nx = 1\nx.__class__.__mro__")
    shown = restricted.run("x")
    assert "NameError" in shown.stderr
    assert shown.stdout == ""


ODD_CELLS = [
    "'{0.__class__}'.format(1)",
    "raise SyntaxError('x', ('/etc/passwd', 1, 1, None))",
    "class C:\n    def __repr__(self): return 1\nC()",
    "class E(Exception):\n    def __str__(self): raise KeyboardInterrupt\nraise E",
    "def f(): f()\nf()",
    "x = " + "(" * 80 + "1" + ")" * 80 + "\n" + "+".join(["1"] * 3000),
    "import functools\nfunctools.update_wrapper(3, 4)",
    "\0",
]


def test_odd_cells_leave_the_session_alive(restricted):
    def attempt(code):
        shown = restricted.run(code)
        return "root:x:0" in shown.stdout + shown.stderr, restricted.run("print('alive')").stdout

    assert {code: attempt(code) for code in ODD_CELLS} == dict.fromkeys(ODD_CELLS, (False, "alive\n"))


@pytest.mark.parametrize(
    "code", ["while True: pass", "while True:\n    try:\n        while True: pass\n    except:\n        pass"]
)
def test_timeout_ends_loop_that_catches_everything(restricted, code):
    with promptly():
        shown = restricted.run(f"print('begun')\n{code}", timeout=0.3)
        assert shown.stdout == "begun\n"
        assert shown.exit_code == 124
    assert restricted.run("print('alive')").stdout == "alive\n"


def test_exit_codes(restricted):
    assert restricted.run("raise SystemExit(7)").exit_code == 7
    assert restricted.run("exit()").exit_code == 0
    assert restricted.run("1 +").exit_code == 1
    assert restricted.run("raise KeyboardInterrupt").exit_code == 130


def test_rich_cells_report_values_and_exceptions(execute):
    messages = execute("print('out')\n{'a': 1}")
    assert [each["text"] for each in messages if each["type"] == "stdout"] == ["out\n"]
    (result,) = (each for each in messages if each["type"] == "result")
    assert (result["text"], result["is_main_result"]) == ("{'a': 1}", True)
    assert not [each for each in execute("x = 1") if each["type"] == "result"]
    (error,) = (each for each in execute("x.__class__.__mro__") if each["type"] == "error")
    assert error["name"] == "SyntaxError"
    assert "a rule of the restricted backend" in error["value"]
    (error,) = (each for each in execute("import random\nrandom._os") if each["type"] == "error")
    assert error["name"] == "AttributeError"
    assert "<cell" in error["traceback"]


@pytest.fixture(scope="module")
def authorized(tmp_path_factory):
    options = ("--backend", "restricted", "--authorized-imports", "numpy,os.path")
    with (
        RunningServer(tmp_path_factory.mktemp("authorized"), *options) as server,
        connect(server.ws_url, proxy=None) as socket,
    ):
        yield BackendSession(socket, "restricted")


def test_authorized_package_provides_its_submodules(authorized):
    authorized.reset()
    shown = authorized.run_all(
        [
            "import numpy as np\na = np.arange(6).reshape(2, 3)\na[0] += 1\na[1, 1:] = 9\na.shape = (3, 2)",
            "a.T.tolist(), float(np.linalg.det(np.eye(2)))",
            "from numpy import random\nimport numpy.fft",
            "int(random.default_rng(0).integers(5)), numpy.fft.fft([1.0]).real.tolist()",
            "import os.path as p\np.join('a', 'b')",
        ]
    )
    assert shown.stdout.splitlines() == ["([[1, 3, 9], [2, 3, 9]], 1.0)", "(4, [1.0])", "'a/b'"]
    assert shown.stderr == ""


UNAUTHORIZED = [
    *("np.os", "np.lib.os", "np.testing", "np.ctypeslib", "np.load", "np._core", "np.linalg._linalg.sys"),
    *("from numpy import testing", "import numpy.testing._private.utils", "import numpy._core", "import numpyro"),
    *(
        "import os\nos.system",
        "import os.path\nos.system",
        "import os.path as p\np.os.system",
        "import os.path as p\np.genericpath",
        "import sys",
    ),
]


def test_imports_of_authorized_package_are_not_authorized(authorized):
    def attempt(code):
        authorized.reset()
        shown = authorized.run(f"import numpy as np\n{code}\nprint('reached')")
        error = shown.stderr.splitlines()[-1].partition(": ")[0]
        return shown.stdout, shown.exit_code, error in ("AttributeError", "ImportError", "SyntaxError")

    assert {code: attempt(code) for code in UNAUTHORIZED} == dict.fromkeys(UNAUTHORIZED, ("", 1, True))


def test_missing_package_error_names_install_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "smolagents", None)
    monkeypatch.delitem(sys.modules, "coding_gym_server.worker.backends.smolagents", raising=False)
    with pytest.raises(ImportError, match=r"needs 'smolagents', which is not installed: pip install 'coding-gym\[backends\]'"):
        backend_class("smolagents")
