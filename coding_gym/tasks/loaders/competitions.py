"""Competitive programming data sets: APPS, TACO, LiveCodeBench, CodeContests. Programs, and functions called with JSON."""

from __future__ import annotations

import base64
import binascii
import pickletools
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

from coding_gym.tasks.loaders.calls import json_value, site_imports
from coding_gym.tasks.loaders.checkers import checker_in_cpp
from coding_gym.tasks.loaders.programs import paired, pairs_of, program_tests
from coding_gym.tasks.loaders.row_tests import RowTests, case_tests
from coding_gym.tasks.loaders.rows import RowError, TaskRow, is_language, is_list
from coding_gym.tasks.loaders.site_limits import memory_bytes, seconds_of, site_limits
from coding_gym.tasks.loaders.statements import in_language
from coding_gym.tasks.task import Task
from coding_gym_server.languages import PYTHON
from coding_gym_server.protocol.grading import OutputRule, Programs

__all__ = [
    "apps_task",
    "code_contests_plus_task",
    "code_contests_task",
    "contest_task",
    "live_code_bench_task",
]

_MAX_UNPACKED_BYTES = 1 << 30
"""Maximum size of decompressed test cases."""

_LANGUAGES = {
    2: "cpp",
    3: PYTHON,
    4: "java",
    "CPP": "cpp",
    "PYTHON3": PYTHON,
    "JAVA": "java",
    "cpp": "cpp",
    "py3": PYTHON,
    "java": "java",
}
"""Languages of solutions: as CodeContests has them, numbers or names of its enumeration, and as CodeContests+ has them."""

_METADATA = (
    *("difficulty", "url", "platform", "contest_id", "contest_date", "question_title", "name", "title", "rating", "tags"),
    *("official_tests_complete", "generated_tests", "true_positive_rate", "true_negative_rate"),
)

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
    tests = program_tests(
        pairs,
        row.options,
        OutputRule.TOKENS,
        input_file=row.text("input_file", default=""),
        output_file=row.text("output_file", default=""),
    )
    found = RowTests("private_tests", tests)
    sample = str(pairs[0][0]) if public else None
    prompt = row.text("description", "prompt")
    return contest_task(row, prompt, found, source="CodeContests", has_imports=False, sample_input=sample)


def code_contests_plus_task(row: TaskRow) -> Task:
    """Return the task of a row of CodeContests+: ``test_cases``, and the ``checker`` of those with several right outputs.

    Raises:
        RowError: If the row is not in this format: the configuration ``default`` of the data set has no test cases.
    """
    cases = row.decoded("test_cases")
    if not is_list(cases) or not list(cases):
        message = "it has no test cases, which the configurations 1x to 5x of the data set have: pass config='1x'"
        raise RowError(message)
    code = row.text("checker", default="")
    checker = checker_in_cpp(code, row.options) if code.strip() else None
    tests = program_tests(pairs_of(cases, "test_cases"), row.options, OutputRule.TOKENS, checker=checker)
    found = RowTests("test_cases", tests)
    return contest_task(row, row.text("description"), found, source="CodeContests+", has_imports=False)


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
    language = found.tests.language if isinstance(found.tests, Programs) else PYTHON
    has_prefix = language == PYTHON and (target is not None or has_imports)
    memory = memory_bytes(row.fields.get("memory_limit_bytes") or row.fields.get("memory_limit"))
    return Task(
        id=row.id,
        prompt=in_language(f"{prompt}\n\n{starter}" if starter and target else prompt, language),
        entry_point=target.name if target else None,
        prefix=site_imports(target) if has_prefix else "",
        tests=found.tests,
        reference=_reference(row, language),
        limits=site_limits(row.options, seconds=seconds_of(row.fields.get("time_limit")), memory=memory),
        metadata=_known(row, source),
        sample_input=None if target else sample_input,
    )


def _known(row: TaskRow, source: str) -> dict[str, Any]:
    return row.metadata(*_METADATA, source=source)


def _reference(row: TaskRow, language: str) -> str | None:
    """Return a solution in a language: those of most data sets are in Python, and others say in which language each is."""
    solutions = row.decoded("solutions")
    pairs: Iterable[tuple[Any, Any]]
    if isinstance(solutions, Mapping):
        pairs = zip(solutions.get("language", []), solutions.get("solution", []), strict=False)
    elif is_list(submissions := row.decoded("correct_submissions")):
        pairs = ((entry.get("language"), entry.get("code")) for entry in submissions if isinstance(entry, Mapping))
    else:
        return row.solution if language == PYTHON else None
    return next((str(code) for name, code in pairs if is_language(_LANGUAGES.get(name, ""), language)), None)


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
