"""The tests of a row: which of its columns hold tests, and what is in them."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from coding_gym.tasks.loaders.calls import (
    call_of_texts,
    call_of_values,
    call_tests,
    callable_of,
    method_of,
    parameters_of,
    results,
)
from coding_gym.tasks.loaders.combined_tests import combined
from coding_gym.tasks.loaders.programs import paired, program_tests
from coding_gym.tasks.loaders.rows import EntryPoint, RowError, TaskRow, is_list, known_language
from coding_gym.tasks.loaders.split_tests import tests_of_list, tests_of_source
from coding_gym.tasks.task import Task
from coding_gym_server.languages import PYTHON
from coding_gym_server.protocol.grading import Asserts, OutputRule, Programs, UnitTests

__all__ = ["PAIRS", "SETUPS", "TESTS", "RowTests", "case_tests", "row_setup", "row_tests", "with_other_tests"]

TESTS = ("test", "test_code", "tests", "test_list", "unit_tests", "test_cases", "challenge_test_list", "verification_info")
"""Columns of tests, besides those with other names of tests: source code, a list of asserts, or cases."""
PAIRS = ("inputs", "outputs")
"""Two columns of equal length, which are cases together."""
SETUPS = ("test_imports", "test_setup_code", "test_setup", "setup")
"""Columns of code that runs before the tests."""
_CALLS = ("function_call", "functional")
_FUNCTIONS = ("fn_name", "func_name", "function_name")
_INPUTS = ("input", "stdin")
_OUTPUTS = ("output", "stdout", "expected_output", "expected")

_WORD_BREAK = re.compile(r"(?<=[a-z])(?=[A-Z])|[\W_]+")
_TEST_WORD = re.compile(r"(?:unit|doc|py)?tests?", re.IGNORECASE)


@dataclass(frozen=True)
class RowTests:
    """Tests of a column.

    Attributes:
        column: Name of the column.
        tests: The tests.
        target: The function that they call, if the column says which.
    """

    column: str
    tests: Asserts | UnitTests | Programs
    target: EntryPoint | None = None

    @property
    def sources(self) -> tuple[str, ...]:
        """The source code of the tests; none of programs."""
        match self.tests:
            case UnitTests(source=source):
                return (source,)
            case Asserts(cases=cases):
                return cases
        return ()


def row_tests(row: TaskRow, *, entry_point: EntryPoint | None, skip: Collection[str] = ()) -> list[RowTests]:
    """Return the tests of all columns that hold some.

    Args:
        row: The row.
        entry_point: What a ``check(candidate)`` checks.
        skip: Names of columns to leave out.

    Raises:
        RowError: If a column that seems to hold tests, by its name, is not in a known format.
    """
    names = [name for name in row.fields if name not in (*skip, *SETUPS) and _holds_tests(row, name)]
    found = []
    if all(name in row and name not in skip for name in PAIRS):
        pairs = {name: row.decoded(name) for name in (*PAIRS, *_FUNCTIONS) if name in row}
        found.append(case_tests(row, "inputs", pairs))
    return [*found, *(_tests_of_column(row, name, entry_point) for name in names)]


def with_other_tests(task: Task, row: TaskRow, *, read: Collection[str]) -> Task:
    """Return a task with the tests of all columns of its row.

    Args:
        task: The task, with the tests of some columns.
        row: Its row.
        read: Names of the columns of tests that the task has already.

    Raises:
        RowError: If another column of tests is in no known format, or cannot be combined with them.
    """
    others = row_tests(row, entry_point=row.entry_point or _entry_point(task), skip=(*read, *PAIRS))
    setup = row_setup(row, skip=read)
    if not others and not setup:
        return task
    if not isinstance(task.tests, Asserts | UnitTests | Programs):
        message = f"its tests cannot be combined with the columns {', '.join(part.column for part in others) or SETUPS[0]}"
        raise RowError(message)
    own = next(iter(read), "its format")
    return replace(task, tests=combined([(own, task.tests), *((part.column, part.tests) for part in others)], setup=setup))


def row_setup(row: TaskRow, *, skip: Collection[str] = ()) -> str:
    """Return the code of a row that runs before its tests."""
    return "\n".join(line for name in SETUPS if name not in skip for line in row.texts(name)).strip("\n")


def _entry_point(task: Task) -> EntryPoint | None:
    return EntryPoint(task.entry_point) if task.entry_point is not None else None


def _holds_tests(row: TaskRow, name: str) -> bool:
    """Return whether a column seems to hold tests, by its name and its value: not a number, nor a mere name."""
    if name not in TESTS and not any(_TEST_WORD.match(word) for word in _WORD_BREAK.split(name)):
        return False
    value = row.decoded(name)
    if isinstance(value, str):
        return bool(value.strip()) and not value.strip().isidentifier()
    return (is_list(value) and bool(list(value))) or (isinstance(value, Mapping) and bool(value))


def _tests_of_column(row: TaskRow, name: str, entry_point: EntryPoint | None) -> RowTests:
    value = row.decoded(name)
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        value = _python_literal(value)
    expression = entry_point.expression if entry_point is not None else None
    try:
        if isinstance(value, str):
            return RowTests(name, tests_of_source(value, entry_point=expression, setup="", preamble=""))
        if is_list(value) and all(isinstance(entry, str) for entry in value):
            return RowTests(name, tests_of_list(list(value), entry_point=expression))
        return case_tests(row, name, value)
    except RowError as error:
        message = f"the column {name} seems to hold tests, and is not understood: {error}. Rename it if it has no tests"
        raise RowError(message) from error


def _python_literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text


@dataclass(frozen=True)
class _Case:
    """An input and an output, of a call of a function, or of a run of a program if there is no function."""

    given: Any
    wanted: Any
    function: str | None


def case_tests(row: TaskRow, column: str, value: Any, rule: OutputRule = OutputRule.LINES) -> RowTests:
    """Return tests of cases: a list of objects with ``input`` and ``output``, or an object with ``inputs`` and ``outputs``.

    Args:
        row: The row.
        column: The column that they are from.
        value: The cases.
        rule: Which outputs match, if they are runs of a program.

    Raises:
        RowError: If the value is neither, or has both calls and runs of a program.
    """
    cases = list(_cases(row, column, value))
    functions = {case.function for case in cases}
    if functions <= {None}:
        pairs = [(case.given, case.wanted) for case in cases]
        return RowTests(column, program_tests(pairs, row.options, rule))
    if None in functions:
        message = f"the column {column} has both calls of functions and runs of a program"
        raise RowError(message)
    if row.options.language is not None and known_language(row.options.language) != PYTHON:
        message = f"the tests in {column} call a function of Python, and language={row.options.language!r} is for programs"
        raise RowError(message)
    sources = [row.text("starter_code", default=""), row.solution or "", row.text("prompt", default="")]
    targets = {case.function: _target(row, str(case.function), *sources) for case in cases}
    calls = [_call(targets[case.function], case, *sources) for case in cases]
    return RowTests(column, call_tests(calls), targets[cases[0].function])


def _cases(row: TaskRow, column: str, value: Any) -> Iterator[_Case]:
    if isinstance(value, Mapping) and "test_cases" in value:
        yield from _cases(row, column, value["test_cases"])
    elif isinstance(value, Mapping) and value.keys() >= {*PAIRS}:
        inputs, outputs = paired(value["inputs"], value["outputs"], column)
        function = _function_of(row, column, value)
        yield from (_Case(given, wanted, function) for given, wanted in zip(inputs, outputs, strict=True))
    elif is_list(value):
        for case in value:
            given, wanted = _first(case, column, *_INPUTS), _first(case, column, *_OUTPUTS)
            yield _Case(given, wanted, _function_of(row, column, case))
    else:
        expected = "source code, a list of asserts, or cases with input and output each"
        message = f"expected {column} to be {expected}, got {str(value)[:100]!r}"
        raise RowError(message)


def _function_of(row: TaskRow, column: str, case: Mapping[str, Any]) -> str | None:
    """Return the name of the function that a case calls; None if it runs a program."""
    kind = str(case.get("type") or case.get("testtype") or "")
    if kind.startswith("std"):
        return None
    for fields in (case, case.get("metadata"), row.fields, row.decoded("metadata")):
        if isinstance(fields, Mapping):
            for name in _FUNCTIONS:
                if fields.get(name):
                    return str(fields[name])
    function = row.entry_point.function if row.entry_point is not None else None
    if function is None and kind in _CALLS and (function := method_of(row.text("starter_code", default=""))) is None:
        message = f"the tests in {column} call a function, which is not named by {' or '.join(_FUNCTIONS)}, nor by starter_code"
        raise RowError(message)
    return function


def _target(row: TaskRow, function: str, *sources: str) -> EntryPoint:
    named = row.entry_point
    if named is not None and named.function == function != named.expression:
        return named
    return callable_of(function, *sources)


def _call(target: EntryPoint, case: _Case, *sources: str) -> str:
    if isinstance(case.given, str) and isinstance(case.wanted, str):
        return call_of_texts(target, case.given, case.wanted)
    parameters = next((found for source in sources if (found := parameters_of(target, source)) is not None), None)
    return call_of_values(target, case.given, results(case.wanted), parameters)


def _first(case: Any, column: str, *names: str) -> Any:
    for name in names:
        if isinstance(case, Mapping) and name in case:
            return case[name]
    message = f"expected each of {column} to have {' or '.join(names)}, got {str(case)[:100]!r}"
    raise RowError(message)
