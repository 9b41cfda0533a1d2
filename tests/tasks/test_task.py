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
def test_invalid_task_is_refused(fields: dict[str, Any], complaint: str) -> None:
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
def test_task_round_trips_as_json(tests: Any) -> None:
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


@pytest.mark.parametrize("sample", ["1\n", "", None])
def test_sample_input_round_trips_as_json(sample: str | None) -> None:
    task = make(tests=Programs(cases=(ProgramCase(stdout="2\n"),), compare="tokens", random_seed=None), sample_input=sample)
    assert Task.from_json(task.to_json()) == task


@pytest.mark.parametrize(
    "fields", [{"sample_input": "1"}, {"sample_input": 1, "tests": Programs(cases=(ProgramCase(stdout=""),))}]
)
def test_sample_input_is_text_for_programs(fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="a sample_input that is a str, and tests that are Programs"):
        make(**fields)


def test_invalid_json_line_is_refused_with_reason() -> None:
    with pytest.raises(ConfigurationError, match="missing required field prompt"):
        Task.from_json('{"id": "t"}')
    with pytest.raises(ConfigurationError, match="solution"):
        Task.from_json('{"id": "t", "prompt": "", "solution": ""}')
    with pytest.raises(ConfigurationError, match="JSON"):
        Task.from_json(b"\xff")
    with pytest.raises(ConfigurationError, match="recursion"):
        Task.from_json('{"id": "t", "prompt": "", "metadata": {"x": ' + "[" * 5000)
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
def test_completion_is_appended_to_prefix(code: str) -> None:
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
def test_complete_program_gets_code_before_entry_point(code: str) -> None:
    program = make(entry_point="double", prefix=PREFIX).submission(code)
    assert program == "import math\nfrom typing import List\n\ndef helper(x):\n    return x\n\n" + code


def test_future_imports_stay_first() -> None:
    code = '"""Doubles."""\nfrom __future__ import annotations\ndef double(x: Any): return 2 * x\n'
    program = make(entry_point="double", prefix=PREFIX).submission(code)
    assert program.startswith('"""Doubles."""\nfrom __future__ import annotations\nimport math\n')
    compile(program, "program", "exec")


@pytest.mark.parametrize("mark", ["\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029", "\r\n", "\r"])
def test_lines_are_counted_as_by_python(mark: str) -> None:
    prefix = f"x = 1  # {mark}\nimport math\n\n"
    task = make(entry_point="double", prefix=f"{prefix}def double(x):\n")
    assert task.submission("def double(x): ...") == f"{prefix}def double(x): ..."
    code = f"'''{mark}'''\nfrom __future__ import annotations\ndef double(x: Any): ..."
    assert task.submission(code) == code.replace("annotations\n", f"annotations\n{prefix}")


def test_nested_definition_is_not_entry_point() -> None:
    code = "class A:\n    def double(self): ...\ndef other():\n    def double(x): ..."
    assert make(entry_point="double", prefix=PREFIX).submission(code) == PREFIX + code


def test_submission_without_prefix_is_unchanged() -> None:
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
def test_malformed_submission_never_raises(code: str) -> None:
    assert make(entry_point="double", prefix=PREFIX).submission(code).endswith(code)


def test_submissions_emit_no_warnings() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        program = make(entry_point="double", prefix=PREFIX).submission(r"def double(x): return '\d', 1if x else 2")
    assert program.startswith("import math")


def test_prefix_without_entry_point_is_prepended() -> None:
    assert (
        make(entry_point="double", prefix="import math\n").submission("def double(x): ...") == "import math\ndef double(x): ..."
    )
    assert make(entry_point="double", prefix="def (\n").submission("def double(x): ...") == "def double(x): ..."
