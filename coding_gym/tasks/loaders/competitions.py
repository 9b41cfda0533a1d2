"""Problems of programming competitions: APPS, TACO, LiveCodeBench, CodeContests. Programs, and functions called with JSON."""

from __future__ import annotations

import base64
import binascii
import json
import pickletools
import re
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

from coding_gym.tasks.loaders.fields import Row, RowError, is_list, literal
from coding_gym.tasks.task import Task
from coding_gym_server.grading.messages import Asserts, ProgramCase, Programs

__all__ = ["apps_task", "code_contests_task", "live_code_bench_task", "pairs_task", "programs"]

_MOST_BYTES = 1 << 30
"""The most that compressed test cases may unfold to."""

_PICKLED_TEXT = {"SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "UNICODE"}
_PICKLE_FRAMING = {"PROTO", "FRAME", "MEMOIZE", "BINPUT", "LONG_BINPUT", "PUT", "STOP"}

_DECIMAL_FRACTION = re.compile(r"(?<![\w.])-?\d+\.\d+(?![\w.])")
_TOLERANCE = 1e-6

_MATCHES = """\
def _plain(value):
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    return value
def _matches(got, *wanted):
    return any(_plain(got) == _plain(value) for value in wanted)
"""
"""Tuples count as lists, for JSON has no others."""

_STARRED = ("bisect", "collections", "copy", "functools", "heapq", "itertools", "math", "operator", "re", "string", "typing")
_IMPORTS = (
    # What the sites have imported, and their evaluators import: all names, of which builtins keep theirs, and then the modules.
    "".join(f"from {module} import *\n" for module in (*_STARRED, "builtins"))
    + f"import datetime, json, random, sys, {', '.join(_STARRED)}\n"
)

_METHOD = re.compile(r"class\s+Solution\b.*?def\s+(?P<method>(?!__)\w+)", re.DOTALL)


def apps_task(row: Row) -> Task:
    """Return the task of a row of APPS or TACO: ``question``, and ``input_output`` with ``inputs`` and ``outputs``.

    With ``fn_name`` it is a function that is called; if the starter code has a ``class Solution``, a method of that.

    Raises:
        RowError: It is none.
    """
    data = row.decoded("input_output")
    if not isinstance(data, Mapping) or not {"inputs", "outputs"} <= data.keys():
        message = f"expected input_output to be JSON with inputs and outputs, got {str(data)[:100]!r}"
        raise RowError(message)
    inputs, outputs = _as_many(data["inputs"], data["outputs"], "input_output")
    starter, prompt = row.text("starter_code", default=""), row.text("question", "problem", "prompt", "description")
    if function := data.get("fn_name"):
        cases = [
            _call(str(function), starter, arguments if is_list(arguments) else [arguments], _expected(output))
            for arguments, output in zip(inputs, outputs, strict=True)
        ]
        return _function_task(row, prompt, str(function), starter, cases, source="APPS")
    return _program_task(row, prompt, zip(inputs, outputs, strict=True), source="APPS")


def live_code_bench_task(row: Row) -> Task:
    """Return the task of a row of LiveCodeBench, with ``public_test_cases`` and ``private_test_cases``.

    Raises:
        RowError: It is none.
    """
    tests = [*_test_cases(row, "public_test_cases"), *_test_cases(row, "private_test_cases")]
    starter, prompt = row.text("starter_code", default=""), row.text("question_content", "question", "prompt")
    if any(test.get("testtype") == "functional" for test in tests):
        metadata = row.decoded("metadata")
        named = metadata.get("func_name") if isinstance(metadata, Mapping) else None
        found = _METHOD.search(starter)
        function = named or (found["method"] if found else None)
        if function is None:
            message = "its tests call a function, which neither func_name in metadata nor starter_code names"
            raise RowError(message)
        cases = [_call(function, starter, _json_lines(test["input"]), [_json(test["output"])]) for test in tests]
        return _function_task(row, prompt, function, starter, cases, source="LiveCodeBench")
    return _program_task(row, prompt, [(test["input"], test["output"]) for test in tests], source="LiveCodeBench")


def code_contests_task(row: Row) -> Task:
    """Return the task of a row of CodeContests: ``public_tests``, ``private_tests`` and ``generated_tests``.

    Raises:
        RowError: It is none.
    """
    pairs: list[tuple[Any, Any]] = []
    for name in ("public_tests", "private_tests", "generated_tests"):
        tests = row.decoded(name) or {}
        if not isinstance(tests, Mapping):
            message = f"expected {name} to have input and output, got {str(tests)[:100]!r}"
            raise RowError(message)
        pairs += zip(*_as_many(tests.get("input", []), tests.get("output", []), name), strict=True)
    return _program_task(row, row.text("description", "prompt"), pairs, source="CodeContests")


def pairs_task(row: Row) -> Task:
    """Return the task of a row that has pairs of input and output: two lists, or a list of objects with ``input``, ``output``.

    Raises:
        RowError: It is none.
    """
    if "inputs" in row and "outputs" in row:
        pairs = [*zip(*_as_many(row.decoded("inputs"), row.decoded("outputs"), "inputs"), strict=True)]
    else:
        tests = row.decoded("tests" if "tests" in row else "test_cases")
        pairs = [(_first(test, "input", "stdin"), _first(test, "output", "stdout", "expected_output")) for test in tests]
    return _program_task(row, row.text("prompt", "question", "problem", "description", "text"), pairs, source="pairs")


def programs(pairs: Iterable[tuple[Any, Any]], *, tolerance: float | None) -> Programs:
    """Return tests that give programs the first of each pair, and want the second, which may be lists of lines."""
    cases = tuple(ProgramCase(stdin=_lines(given), stdout=_lines(wanted)) for given, wanted in pairs)
    if tolerance is None and any(_DECIMAL_FRACTION.search(case.stdout) for case in cases):
        tolerance = _TOLERANCE
    return Programs(cases=cases, tolerance=tolerance)


def _program_task(row: Row, prompt: str, pairs: Iterable[tuple[Any, Any]], *, source: str) -> Task:
    tests = programs(pairs, tolerance=row.options.tolerance)
    if not tests.cases:
        message = f"there are no test cases; {row.describe()}"
        raise RowError(message)
    return Task(
        id=row.id, prompt=prompt, tests=tests, reference=_solution(row), limits=row.options.limits, metadata=_known(row, source)
    )


def _function_task(row: Row, prompt: str, function: str, starter: str, cases: list[str], *, source: str) -> Task:
    return Task(
        id=row.id,
        prompt=f"{prompt}\n\n{starter}" if starter else prompt,
        entry_point="Solution" if _METHOD.search(starter) else function,
        prefix=_IMPORTS,
        tests=Asserts(setup=_MATCHES, cases=tuple(cases)),
        reference=_solution(row),
        limits=row.options.limits,
        metadata=_known(row, source),
    )


def _known(row: Row, source: str) -> dict[str, Any]:
    return row.metadata("difficulty", "url", "platform", "contest_id", "contest_date", "question_title", "name", source=source)


def _solution(row: Row) -> str | None:
    """Return a solution in Python, if there is one."""
    solutions = row.decoded("solutions")
    if isinstance(solutions, list) and solutions and isinstance(solutions[0], str):
        return str(solutions[0])
    return None


def _call(function: str, starter: str, arguments: Iterable[Any], expected: Iterable[Any]) -> str:
    callee = f"Solution().{function}" if _METHOD.search(starter) else function
    values = ", ".join(literal(value) for value in arguments)
    return f"assert _matches({callee}({values}), {', '.join(literal(value) for value in expected)})"


def _expected(output: Any) -> list[Any]:
    """Return what a function may return: APPS has some results as they are, and some in a list."""
    return [output, next(iter(output))] if is_list(output) and len(list(output)) == 1 else [output]


def _test_cases(row: Row, name: str) -> list[Mapping[str, Any]]:
    value: Any = row.fields.get(name)
    if value is None:
        return []
    if isinstance(value, str):
        value = _json(value if value.lstrip()[:1] == "[" else _unpacked(value, name))
    tests = list(value) if is_list(value) else [value]
    if not all(isinstance(test, Mapping) and isinstance(test.get("input"), str) and "output" in test for test in tests):
        message = f"expected {name} to be a list of objects with input and output, got {str(value)[:100]!r}"
        raise RowError(message)
    return tests


def _unpacked(text: str, name: str) -> str:
    """Return JSON that was pickled, compressed by zlib and written in Base64."""
    try:
        unfolding = zlib.decompressobj()
        pickled = unfolding.decompress(base64.b64decode(text, validate=True), _MOST_BYTES)
        if not unfolding.eof:
            message = f"{name} is cut off, or unfolds to more than {_MOST_BYTES >> 20} MiB"
            raise RowError(message)
        return _pickled_text(pickled)
    except (binascii.Error, zlib.error, ValueError) as error:
        if isinstance(error, RowError):
            raise
        message = f"expected {name} to be JSON, or a text that is pickled, compressed and in Base64: {error}"
        raise RowError(message) from error


def _pickled_text(pickled: bytes) -> str:
    """Return the text in a pickle that holds nothing else. Nothing is unpickled: that would run whatever the data says.

    Raises:
        ValueError: There is something else in it.
    """
    texts = []
    for opcode, argument, _ in pickletools.genops(pickled):
        if opcode.name in _PICKLED_TEXT:
            texts.append(argument)
        elif opcode.name not in _PICKLE_FRAMING:
            message = f"the pickle holds more than a text ({opcode.name}), and is not trusted"
            raise ValueError(message)
    if len(texts) != 1:
        message = f"the pickle holds {len(texts)} texts rather than one"
        raise ValueError(message)
    return str(texts[0])


def _as_many(inputs: Any, outputs: Any, name: str) -> tuple[list[Any], list[Any]]:
    """Return two lists of the same length."""
    if is_list(inputs) and is_list(outputs):
        given, wanted = list(inputs), list(outputs)
        if len(given) == len(wanted):
            return given, wanted
    message = f"expected {name} to have as many outputs as inputs"
    raise RowError(message)


def _lines(value: Any) -> str:
    return "\n".join(str(line) for line in value) if is_list(value) else str(value)


def _json(text: Any) -> Any:
    try:
        return json.loads(text) if isinstance(text, str) else text
    except ValueError as error:
        message = f"expected JSON, got {str(text)[:100]!r}: {error}"
        raise RowError(message) from error


def _json_lines(text: str) -> list[Any]:
    return [_json(line) for line in text.splitlines() if line.strip()]


def _first(test: Any, *names: str) -> Any:
    for name in names:
        if isinstance(test, Mapping) and name in test:
            return test[name]
    message = f"expected a test to have {' or '.join(names)}, got {str(test)[:100]!r}"
    raise RowError(message)
