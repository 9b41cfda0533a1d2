"""smolagents' interpreter in a worker."""

from __future__ import annotations

import pytest

from tests.support.requirements import import_extra
from tests.support.timing import promptly


@pytest.fixture(scope="module")
def smol(open_session):
    import_extra("smolagents")
    return open_session("smolagents")


@pytest.fixture(autouse=True)
def fresh(smol):
    smol.reset()


def test_state_persists_until_a_reset(smol):
    assert smol.run("x = 20\ndef add(n):\n    return x + n\nclass A:\n    y = 2").exit_code == 0
    assert smol.run("print(add(1) * A.y)").stdout == "42\n"
    smol.reset()
    shown = smol.run("print(x)")
    assert shown.exit_code == 1
    assert "`x` is not defined" in shown.stderr


def test_last_expression_is_shown_but_not_assignments(smol):
    assert smol.run("x = 3").stdout == ""
    assert smol.run("x + 1").stdout == "4\n"
    assert smol.run("None").stdout == ""


def test_imports(smol):
    assert smol.run("import math\nprint(math.floor(2.5))").stdout == "2\n"
    shown = smol.run("import os")
    assert (shown.stdout, shown.exit_code) == ("", 1)
    assert "Import of os is not allowed. Authorized imports are" in shown.stderr


def test_exception_keeps_earlier_output(smol):
    shown = smol.run("print('before')\nprint('also')\n1 / 0")
    assert (shown.stdout, shown.exit_code) == ("before\nalso\n", 1)
    assert shown.stderr.startswith("InterpreterError: Code execution failed at line '1 / 0' due to: ZeroDivisionError")


def test_syntax_errors_are_observations(smol):
    shown = smol.run("def f(:")
    assert shown.exit_code == 1
    assert "Code parsing failed on line 1" in shown.stderr


@pytest.mark.parametrize(
    "code", ["while True:\n    pass", "while True:\n    try:\n        1 / 0\n    except:\n        pass", "sum(range(10**12))"]
)
def test_timeout_ends_hanging_loop(smol, code):
    with promptly():
        shown = smol.run(f"print('begun')\n{code}", timeout=0.5)
        assert (shown.stdout, shown.exit_code) == ("begun\n", 124)
    assert smol.run("print('alive')").stdout == "alive\n"


def test_utilities(smol):
    assert smol.run("print(safe_json_dumps({'a': {1}}))").stdout == '{"a": "{1}"}\n'
    shown = smol.run("try:\n    1 / 0\nexcept ZeroDivisionError:\n    print(format_exc())")
    assert "ZeroDivisionError: division by zero" in shown.stdout
