from __future__ import annotations

import warnings
from typing import Any

import pytest

from coding_gym.errors import ConfigurationError
from coding_gym.tasks import (
    Asserts,
    GradingLimits,
    ProgramCase,
    Programs,
    ScreenStep,
    ScreenTests,
    Task,
    UnitTests,
    WindowCount,
)

ASSERTS = Asserts(cases=("assert double(1) == 2",))

PREFIX = '''\
import math
from typing import List

def helper(x):
    return x

def double(x: List[int]):
    """Double it."""
'''


def make(**fields: Any) -> Task:
    return Task(**{"id": "t", "prompt": "Double it.", "tests": ASSERTS, **fields})


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"id": ""}, "id of a task"),
        ({"id": 3}, "id of a task"),
        ({"prompt": None}, "a prompt that is a str"),
        ({"tests": "assert True"}, "tests that are"),
        ({"tests": Asserts(cases=())}, "no tests"),
        ({"tests": Programs(cases=())}, "no tests"),
        ({"tests": UnitTests(source=" \n")}, "no tests"),
        ({"entry_point": "Solution().f"}, "entry point that is a name"),
        ({"entry_point": "class"}, "entry point that is a name"),
        ({"entry_point": ""}, "entry point that is a name"),
        ({"files": {"/etc/passwd": ""}}, "below the working directory"),
        ({"files": {"a/../../b": ""}}, "below the working directory"),
        ({"files": {"": ""}}, "below the working directory"),
        ({"files": {"a/": ""}}, "below the working directory"),
        ({"files": {"a\0b": ""}}, "below the working directory"),
        ({"files": {"a": 1}}, "str or bytes"),
        ({"files": {"a": "\ud800"}}, "surrogates"),
        ({"tests": Asserts(cases=("'\ud800'",))}, "surrogates"),
    ],
)
def test_what_is_no_task_is_refused(fields: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        make(**fields)


@pytest.mark.parametrize(
    "tests",
    [
        ASSERTS,
        UnitTests(source="def test_it(): assert double(1) == 2"),
        Programs(cases=(ProgramCase(stdin="1\n", stdout="2\n"),), tolerance=1e-6),
        ScreenTests(steps=(ScreenStep(expect=(WindowCount(count=1),)),)),
    ],
)
def test_a_task_survives_a_file(tests: Any) -> None:
    task = make(
        tests=tests,
        entry_point="double",
        prefix="def double(x):\n",
        files={"data/a.bin": b"\xff\x00", "b.txt": "ä"},
        limits=GradingLimits(cpu_timeout=2),
        reference="def double(x): return 2 * x",
        metadata={"tags": ["easy"], "n": 1.5},
    )
    line = task.to_json()
    assert "\n" not in line
    assert Task.from_json(line) == task
    assert Task.from_json(make().to_json()) == make()


def test_what_is_no_line_of_a_tasks_file_says_why() -> None:
    with pytest.raises(ConfigurationError, match="missing required field `prompt`"):
        Task.from_json('{"id": "t"}')
    with pytest.raises(ConfigurationError, match="solution"):
        Task.from_json('{"id": "t", "prompt": "", "solution": ""}')
    with pytest.raises(ConfigurationError, match="JSON"):
        Task.from_json(b"\xff")
    with pytest.raises(ConfigurationError, match="cannot be written"):
        make(metadata={"f": object()}).to_json()


@pytest.mark.parametrize(
    "code",
    [
        "    return [2 * y for y in x]",
        "    return [2 * y for y in x]\n\nprint(double([1]))",
        "    return [2 * y for y in x] # double",
        "",
        "    pass\ndouble = None",
        "return double",
    ],
)
def test_a_completion_goes_on_where_the_prefix_ends(code: str) -> None:
    assert make(entry_point="double", prefix=PREFIX).submission(code) == PREFIX + code


@pytest.mark.parametrize(
    "code",
    [
        "def double(x: List[int]):\n    return helper(x)",
        "@staticmethod\ndef double(x): ...",
        "async def double(x): ...",
        "double = lambda x: x",
        "x, (double, y) = 1, (2, 3)",
        "double: int = 1",
        "class double: ...",
        "from a import b as double",
        "try:\n    double = 1\nexcept E:\n    pass",
        "if True:\n    def double(x): ...",
    ],
)
def test_a_program_of_its_own_gets_what_is_before_the_entry_point(code: str) -> None:
    program = make(entry_point="double", prefix=PREFIX).submission(code)
    assert program == "import math\nfrom typing import List\n\ndef helper(x):\n    return x\n\n" + code


def test_imports_from_the_future_stay_the_first() -> None:
    code = '"""Doubles."""\nfrom __future__ import annotations\ndef double(x: Any): return 2 * x\n'
    program = make(entry_point="double", prefix=PREFIX).submission(code)
    assert program.startswith('"""Doubles."""\nfrom __future__ import annotations\nimport math\n')
    compile(program, "program", "exec")


def test_an_inner_definition_is_none() -> None:
    code = "class A:\n    def double(self): ...\ndef other():\n    def double(x): ..."
    assert make(entry_point="double", prefix=PREFIX).submission(code) == PREFIX + code


def test_without_a_prefix_nothing_is_added() -> None:
    assert make(entry_point="double").submission("\ud800") == "\ud800"
    assert make().submission("print(1)") == "print(1)"


@pytest.mark.parametrize(
    "code",
    [
        "double" + "(" * 100_000,
        "double=" + "-" * 100_000 + "1",
        "double=a" + "+a" * 100_000,
        "double\0",
        "double\ud800",
        "double=0777",
    ],
    ids=["nested", "signs", "sum", "nul", "surrogate", "octal"],
)
def test_nothing_that_a_submission_is_raises(code: str) -> None:
    assert make(entry_point="double", prefix=PREFIX).submission(code).endswith(code)


def test_warnings_about_submissions_are_not_shown() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        program = make(entry_point="double", prefix=PREFIX).submission(r"def double(x): return '\d', 1if x else 2")
    assert program.startswith("import math")


def test_a_prefix_without_the_entry_point_goes_before_all() -> None:
    assert (
        make(entry_point="double", prefix="import math\n").submission("def double(x): ...") == "import math\ndef double(x): ..."
    )
    assert make(entry_point="double", prefix="def (\n").submission("def double(x): ...") == "def double(x): ..."
