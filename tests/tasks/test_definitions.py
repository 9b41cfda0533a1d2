from __future__ import annotations

import doctest

import pytest

from coding_gym.tasks import dependencies as definitions
from coding_gym.tasks.dependencies import DefinitionTracker


def program(*codes):
    known = DefinitionTracker()
    for code in codes[:-1]:
        known.add(code)
    return known.program(codes[-1])


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        (["import os", "x = 1", "print(x)"], "x = 1\nprint(x)"),
        (["x = 1", "x = 2", "print(x)"], "x = 2\nprint(x)"),
        (["x = 1", "x += 1", "x = x * 2", "print(x)"], "x = 1\nx += 1\nx = x * 2\nprint(x)"),
        (["t = {}", "t['a'] = 1", "t.update(b=2)", "print(t)"], "t = {}\nt['a'] = 1\nprint(t)"),
        (["a, (b, *c) = 1, (2, 3)", "print(c)"], "a, (b, *c) = (1, (2, 3))\nprint(c)"),
        (["class A:\n    pass", "A.n = 1", "A().n"], "class A:\n    pass\nA.n = 1\nA().n"),
        (["x: int", "x: int = 3", "x"], "x: int = 3\nx"),
        (["import os.path as p, sys", "p"], "import os.path as p, sys\np"),
        (["x = 1; y = x", "print(y)"], "x = 1\ny = x\nprint(y)"),
        # Names that the code binds before using them are not dependencies.
        (["x = open()", "x = 2\nprint(x)"], "x = 2\nprint(x)"),
        (["x = 1", "x = x + 1"], "x = 1\nx = x + 1"),
        (["def f(): pass", "def f():\n    return f()"], "def f():\n    return f()"),
        # Functions look names up when they are called.
        (
            ["def f():\n    return g()", "def g():\n    return 1", "f()"],
            "def f():\n    return g()\ndef g():\n    return 1\nf()",
        ),
        (
            ["def f():\n    return K", "K = 1", "A = f()", "K = 2", "print(A, f())"],
            "def f():\n    return K\nK = 1\nA = f()\nK = 2\nprint(A, f())",
        ),
        (["def f():\n    return f", "f()"], "def f():\n    return f\nf()"),
        (["@deco\ndef f():\n    pass", "f()"], "@deco\ndef f():\n    pass\nf()"),
        # Imports from __future__ stay first.
        (
            ["x = 1", "'doc'\nfrom __future__ import annotations\nprint(x)"],
            "'doc'\nfrom __future__ import annotations\nx = 1\nprint(x)",
        ),
        # Code that does not parse has no definitions and no dependencies.
        (["x = ", "x"], "x"),
        (["x = 1", "x x"], "x x"),
        (["x = 1", ""], ""),
        ([""], ""),
        (["for x in range(3):\n    pass", "x"], "x"),
    ],
)
def test_program_contains_required_definitions(codes, expected):
    assert program(*codes) == expected


def test_clear_forgets_definitions():
    known = DefinitionTracker()
    known.add("x = 1")
    known.clear()
    assert known.program("x") == "x"


def test_docstring_examples_are_correct():
    assert doctest.testmod(definitions).failed == 0
