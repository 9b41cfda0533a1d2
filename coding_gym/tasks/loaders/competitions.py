"""Competitive programming data sets: APPS, TACO, LiveCodeBench, CodeContests. Programs, and functions called with JSON."""

from __future__ import annotations

import base64
import binascii
import json
import pickletools
import re
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

from coding_gym.tasks.loaders.rows import RowError, TaskRow, is_list, literal
from coding_gym.tasks.task import Task
from coding_gym_server.protocol.grading import Asserts, ProgramCase, Programs

__all__ = [
    "apps_task",
    "calls_task",
    "code_contests_task",
    "live_code_bench_task",
    "paired",
    "pairs_task",
    "programs",
    "results",
]

_MAX_UNPACKED_BYTES = 1 << 30
"""Maximum size of decompressed test cases."""

_PICKLED_TEXT = {"SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "UNICODE"}
_PICKLE_FRAMING = {"PROTO", "FRAME", "MEMOIZE", "BINPUT", "LONG_BINPUT", "PUT", "STOP"}

_DECIMAL_FRACTION = re.compile(r"(?<![\w.])-?\d+\.\d+(?![\w.])")
_TOLERANCE = 1e-6

_MATCHES = """\
def _plain(value):
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    return value
def _matches(got, *expected):
    return any(_plain(got) == _plain(value) for value in expected)
"""
"""Tuples compare equal to lists, because JSON has no tuples."""

_STARRED = ("bisect", "collections", "copy", "functools", "heapq", "itertools", "math", "operator", "re", "string", "typing")
_IMPORTS = (
    # The imports of the sites' evaluators: star imports first, builtins restored after them, and then the modules.
    "".join(f"from {module} import *\n" for module in (*_STARRED, "builtins"))
    + f"import datetime, json, random, sys, {', '.join(_STARRED)}\n"
)

_METHOD = re.compile(r"class\s+Solution\b.*?def\s+(?P<method>(?!__)\w+)", re.DOTALL)


def apps_task(row: TaskRow) -> Task:
    """Return the task of a row of APPS or TACO: ``question``, and ``input_output`` with ``inputs`` and ``outputs``.

    With ``fn_name``, the tests call a function, or a method if the starter code has a ``class Solution``.

    Raises:
        RowError: If the row is not in this format.
    """
    data = row.decoded("input_output")
    if not isinstance(data, Mapping) or not {"inputs", "outputs"} <= data.keys():
        message = f"expected input_output to be JSON with inputs and outputs, got {str(data)[:100]!r}"
        raise RowError(message)
    inputs, outputs = paired(data["inputs"], data["outputs"], "input_output")
    starter, prompt = row.text("starter_code", default=""), row.text("question", "problem", "prompt", "description")
    if function := data.get("fn_name"):
        calls = [
            (arguments if is_list(arguments) else [arguments], results(output))
            for arguments, output in zip(inputs, outputs, strict=True)
        ]
        return calls_task(row, prompt, str(function), starter, calls, source="APPS")
    return _program_task(row, prompt, zip(inputs, outputs, strict=True), source="APPS")


def live_code_bench_task(row: TaskRow) -> Task:
    """Return the task of a row of LiveCodeBench, with ``public_test_cases`` and ``private_test_cases``.

    Raises:
        RowError: If the row is not in this format.
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
        calls = [(_json_lines(test["input"]), [_json(test["output"])]) for test in tests]
        return calls_task(row, prompt, function, starter, calls, source="LiveCodeBench")
    return _program_task(row, prompt, [(test["input"], test["output"]) for test in tests], source="LiveCodeBench")


def code_contests_task(row: TaskRow) -> Task:
    """Return the task of a row of CodeContests: ``public_tests``, ``private_tests`` and ``generated_tests``.

    Raises:
        RowError: If the row is not in this format.
    """
    pairs: list[tuple[Any, Any]] = []
    for name in ("public_tests", "private_tests", "generated_tests"):
        tests = row.decoded(name) or {}
        if not isinstance(tests, Mapping):
            message = f"expected {name} to have input and output, got {str(tests)[:100]!r}"
            raise RowError(message)
        pairs += zip(*paired(tests.get("input", []), tests.get("output", []), name), strict=True)
    return _program_task(row, row.text("description", "prompt"), pairs, source="CodeContests")


def pairs_task(row: TaskRow) -> Task:
    """Return the task of a row of input/output pairs: two lists, or a list of objects with ``input`` and ``output``.

    Raises:
        RowError: If the row is not in this format.
    """
    if "inputs" in row and "outputs" in row:
        pairs = [*zip(*paired(row.decoded("inputs"), row.decoded("outputs"), "inputs"), strict=True)]
    else:
        tests = row.decoded("tests" if "tests" in row else "test_cases")
        pairs = [(_first(test, "input", "stdin"), _first(test, "output", "stdout", "expected_output")) for test in tests]
    return _program_task(row, row.text("prompt", "question", "problem", "description", "text"), pairs, source="pairs")


def programs(pairs: Iterable[tuple[Any, Any]], *, tolerance: float | None) -> Programs:
    """Return tests from pairs of stdin and expected stdout, each a text or a list of lines."""
    cases = tuple(ProgramCase(stdin=_lines(case_inputs), stdout=_lines(case_outputs)) for case_inputs, case_outputs in pairs)
    if tolerance is None and any(_DECIMAL_FRACTION.search(case.stdout) for case in cases):
        tolerance = _TOLERANCE
    return Programs(cases=cases, tolerance=tolerance)


def _program_task(row: TaskRow, prompt: str, pairs: Iterable[tuple[Any, Any]], *, source: str) -> Task:
    tests = programs(pairs, tolerance=row.options.tolerance)
    if not tests.cases:
        message = f"there are no test cases; {row.describe()}"
        raise RowError(message)
    return Task(
        id=row.id, prompt=prompt, tests=tests, reference=_solution(row), limits=row.options.limits, metadata=_known(row, source)
    )


def calls_task(
    row: TaskRow,
    prompt: str,
    function: str,
    starter: str,
    calls: Iterable[tuple[Iterable[Any], Iterable[Any]]],
    *,
    source: str,
) -> Task:
    """Return a task whose tests call a function.

    Args:
        row: The row.
        prompt: The prompt, without the starter code.
        function: Name of the function.
        starter: Starter code; with a ``class Solution``, the function is a method of it.
        calls: Arguments of the calls, and the accepted results of each.
        source: Name of the row's format.
    """
    cases = [_call(function, starter, arguments, accepted) for arguments, accepted in calls]
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


def _known(row: TaskRow, source: str) -> dict[str, Any]:
    return row.metadata("difficulty", "url", "platform", "contest_id", "contest_date", "question_title", "name", source=source)


def _solution(row: TaskRow) -> str | None:
    """Return the first solution of the row as the reference solution; None if there is none."""
    solutions = row.decoded("solutions")
    if isinstance(solutions, list) and solutions and isinstance(solutions[0], str):
        return str(solutions[0])
    return None


def _call(function: str, starter: str, arguments: Iterable[Any], expected: Iterable[Any]) -> str:
    callee = f"Solution().{function}" if _METHOD.search(starter) else function
    values = ", ".join(literal(value) for value in arguments)
    return f"assert _matches({callee}({values}), {', '.join(literal(value) for value in expected)})"


def results(output: Any) -> list[Any]:
    """Return the accepted return values of a function: APPS has some results as they are, and some wrapped in a list."""
    return [output, next(iter(output))] if is_list(output) and len(list(output)) == 1 else [output]


def _test_cases(row: TaskRow, name: str) -> list[Mapping[str, Any]]:
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
    """Decode JSON text that was pickled, compressed with zlib and encoded in Base64."""
    try:
        decompressor = zlib.decompressobj()
        pickled = decompressor.decompress(base64.b64decode(text, validate=True), _MAX_UNPACKED_BYTES)
        if not decompressor.eof:
            message = f"{name} is truncated, or decompresses to more than {_MAX_UNPACKED_BYTES >> 20} MiB"
            raise RowError(message)
        return _pickled_text(pickled)
    except (binascii.Error, zlib.error, ValueError) as error:
        if isinstance(error, RowError):
            raise
        message = f"expected {name} to be JSON, or a text that is pickled, compressed and in Base64: {error}"
        raise RowError(message) from error


def _pickled_text(pickled: bytes) -> str:
    """Return the string in a pickle that contains nothing else. Never unpickles, which could execute arbitrary code.

    Raises:
        ValueError: If the pickle contains anything else.
    """
    texts = []
    for opcode, argument, _ in pickletools.genops(pickled):
        if opcode.name in _PICKLED_TEXT:
            texts.append(argument)
        elif opcode.name not in _PICKLE_FRAMING:
            message = f"the pickle holds more than a string ({opcode.name}) and is not trusted"
            raise ValueError(message)
    if len(texts) != 1:
        message = f"expected a pickle of one string, got {len(texts)}"
        raise ValueError(message)
    return str(texts[0])


def paired(inputs: Any, outputs: Any, name: str) -> tuple[list[Any], list[Any]]:
    """Return inputs and outputs as two lists of the same length.

    Raises:
        RowError: If they are not lists, or their lengths differ.
    """
    if is_list(inputs) and is_list(outputs):
        case_inputs, case_outputs = list(inputs), list(outputs)
        if len(case_inputs) == len(case_outputs):
            return case_inputs, case_outputs
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
    # JSON texts may contain U+2028 and U+0085, which str.splitlines would split at.
    return [_json(line) for line in text.split("\n") if line.strip()]


def _first(test: Any, *names: str) -> Any:
    for name in names:
        if isinstance(test, Mapping) and name in test:
            return test[name]
    message = f"expected a test to have {' or '.join(names)}, got {str(test)[:100]!r}"
    raise RowError(message)
