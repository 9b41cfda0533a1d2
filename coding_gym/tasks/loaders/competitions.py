"""Competitive programming data sets: APPS, TACO, LiveCodeBench, CodeContests. Programs, and functions called with JSON."""

from __future__ import annotations

import base64
import binascii
import pickletools
import zlib
from collections.abc import Mapping
from typing import Any

from coding_gym.tasks.loaders.calls import json_value, site_imports
from coding_gym.tasks.loaders.programs import paired, program_tests
from coding_gym.tasks.loaders.row_tests import RowTests, case_tests
from coding_gym.tasks.loaders.rows import RowError, TaskRow, is_list
from coding_gym.tasks.task import Task
from coding_gym_server.protocol.grading import OutputRule

__all__ = ["apps_task", "code_contests_task", "contest_task", "live_code_bench_task"]

_MAX_UNPACKED_BYTES = 1 << 30
"""Maximum size of decompressed test cases."""

_PICKLED_TEXT = {"SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "UNICODE"}
_PICKLE_FRAMING = {"PROTO", "FRAME", "MEMOIZE", "BINPUT", "LONG_BINPUT", "PUT", "STOP"}


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
    prompt = row.text("question", "problem", "prompt", "description")
    return contest_task(row, prompt, case_tests(row, "input_output", data, OutputRule.TOKENS), source="APPS")


def live_code_bench_task(row: TaskRow) -> Task:
    """Return the task of a row of LiveCodeBench, with ``public_test_cases`` and ``private_test_cases``.

    Raises:
        RowError: If the row is not in this format.
    """
    public = _test_cases(row, "public_test_cases")
    cases = [*public, *_test_cases(row, "private_test_cases")]
    prompt = row.text("question_content", "question", "prompt")
    found = case_tests(row, "private_test_cases", cases, OutputRule.LIVE_CODE_BENCH)
    sample = public[0]["input"] if public else None
    return contest_task(row, prompt, found, source="LiveCodeBench", sample_input=sample)


def code_contests_task(row: TaskRow) -> Task:
    """Return the task of a row of CodeContests: ``public_tests``, ``private_tests`` and ``generated_tests``.

    Raises:
        RowError: If the row is not in this format.
    """
    pairs: list[tuple[Any, Any]] = []
    public = 0
    for name in ("public_tests", "private_tests", "generated_tests"):
        tests = row.decoded(name) or {}
        if not isinstance(tests, Mapping):
            message = f"expected {name} to have input and output, got {str(tests)[:100]!r}"
            raise RowError(message)
        pairs += zip(*paired(tests.get("input", []), tests.get("output", []), name), strict=True)
        public = len(pairs) if name == "public_tests" else public
    found = RowTests("private_tests", program_tests(pairs, row.options, OutputRule.TOKENS))
    sample = str(pairs[0][0]) if public else None
    prompt = row.text("description", "prompt")
    return contest_task(row, prompt, found, source="CodeContests", has_imports=False, sample_input=sample)


def contest_task(
    row: TaskRow, prompt: str, found: RowTests, *, source: str, has_imports: bool = True, sample_input: str | None = None
) -> Task:
    """Return the task of a row of a contest.

    Args:
        row: The row.
        prompt: The prompt, without the starter code.
        found: Its tests.
        source: Name of the row's format.
        has_imports: Whether its evaluator puts imports before programs.
        sample_input: Input of a public test.
    """
    starter, target = row.text("starter_code", default=""), found.target
    return Task(
        id=row.id,
        prompt=f"{prompt}\n\n{starter}" if starter and target else prompt,
        entry_point=target.name if target else None,
        prefix=site_imports(target) if target or has_imports else "",
        tests=found.tests,
        reference=row.solution,
        limits=row.options.limits,
        metadata=_known(row, source),
        sample_input=None if target else sample_input,
    )


def _known(row: TaskRow, source: str) -> dict[str, Any]:
    return row.metadata("difficulty", "url", "platform", "contest_id", "contest_date", "question_title", "name", source=source)


def _test_cases(row: TaskRow, name: str) -> list[Mapping[str, Any]]:
    value: Any = row.fields.get(name, [])
    if isinstance(value, str) and not value.strip():
        return []
    if isinstance(value, str):
        value = json_value(value if value.lstrip()[:1] == "[" else _unpacked(value, name))
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
