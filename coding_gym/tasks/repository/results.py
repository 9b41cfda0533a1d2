"""Parsers of test results: what test runners print, or write to a file."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any
from xml.etree import ElementTree

from coding_gym_server.protocol.grading import CaseOutcome

__all__ = ["PARSERS", "Results", "parse_junit", "parse_reward"]

Results = dict[str, CaseOutcome]
"""Outcome of each test by its name."""

_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_PYTEST = {
    "PASSED": CaseOutcome.PASSED,
    "FAILED": CaseOutcome.FAILED,
    "ERROR": CaseOutcome.ERROR,
    "SKIPPED": CaseOutcome.NOT_RUN,
    # A test that is expected to fail and does is as good as one that passes.
    "XFAIL": CaseOutcome.PASSED,
    "XPASS": CaseOutcome.PASSED,
}
_PYTEST_LINE = re.compile(rf"({'|'.join(_PYTEST)})\s+(\S.*)")
_PYTEST_VERBOSE_LINE = re.compile(rf"(\S+::.*?)\s+({'|'.join(_PYTEST)})(?:\s+\[\s*\d+%\])?(?:\s+\(.*\))?")
_PYTEST_SUBTEST_LINE = re.compile(r"SUBFAIL(?:ED)?(?:\[.*?\])?(?:\(.*?\))?\s+(\S.*)")
_PYTEST_SUMMARY = re.compile(r"short test summary info")
_PYTEST_SUMMARY_LINE = re.compile(rf"({'|'.join(_PYTEST)}):?\s+(\S.*)")
_UNITTEST = {
    "ok": CaseOutcome.PASSED,
    "expected failure": CaseOutcome.PASSED,
    "FAIL": CaseOutcome.FAILED,
    "unexpected success": CaseOutcome.FAILED,
    "ERROR": CaseOutcome.ERROR,
    "skipped": CaseOutcome.NOT_RUN,
}
_UNITTEST_LINE = re.compile(rf"(.+?) \.\.\. (?:.*?)?({'|'.join(_UNITTEST)})(?: .*)?")
_UNITTEST_NAME = re.compile(r"\w+ \([\w.]+(?: \[.*\])?\)")
_SYMPY = {
    "ok": CaseOutcome.PASSED,
    "f": CaseOutcome.PASSED,
    "F": CaseOutcome.FAILED,
    "X": CaseOutcome.FAILED,
    "E": CaseOutcome.ERROR,
    "s": CaseOutcome.NOT_RUN,
    "w": CaseOutcome.NOT_RUN,
    "T": CaseOutcome.FAILED,
}
_SYMPY_LINE = re.compile(rf"(test_\w+) ({'|'.join(_SYMPY)})(?: .*)?")
_ORDER = (CaseOutcome.ERROR, CaseOutcome.FAILED, CaseOutcome.NOT_RUN, CaseOutcome.PASSED)
"""Of several outcomes of one name, the first in this order counts: tests may have several parts, and print what they like."""


def parse_pytest(output: str) -> Results:
    """Return the results in pytest's output: its summary (``-rA``), and its lines with ``-v``."""
    results: Results = {}
    for line in _lines(output):
        if match := _PYTEST_LINE.fullmatch(line):
            status, name = match.groups()
            if status not in ("PASSED", "XPASS"):
                # Behind it, there is why it has not passed.
                name = name.split(" - ")[0]
            _add(results, name.strip(), _PYTEST[status])
        elif match := _PYTEST_VERBOSE_LINE.fullmatch(line):
            name, status = match.groups()
            _add(results, name, _PYTEST[status])
        elif match := _PYTEST_SUBTEST_LINE.fullmatch(line):
            # The test itself may pass.
            _add(results, match[1].split(" - ")[0].strip(), CaseOutcome.FAILED)
    return results


def parse_pytest_summary(output: str) -> Results:
    """Return the results in pytest's short test summary, as Terminal-Bench and R2E-Gym have them.

    A test is named ``Class.test``, without its file. Of several with a name, the last counts. Tests that are skipped pass, and
    those that are expected to fail must.
    """
    results: Results = {}
    for line in _lines(_PYTEST_SUMMARY.split(output, maxsplit=1)[1]) if _PYTEST_SUMMARY.search(output) else ():
        if match := _PYTEST_SUMMARY_LINE.fullmatch(line):
            status, name = match.groups()
            if status in ("FAILED", "ERROR"):
                # Behind it, there is why it has not passed.
                name = name.split(" - ")[0]
            outcome = {"SKIPPED": CaseOutcome.PASSED, "XPASS": CaseOutcome.FAILED}.get(status, _PYTEST[status])
            results[(name.partition("::")[2] or name).replace("::", ".").strip()] = outcome
    return results


def parse_unittest(output: str) -> Results:
    """Return the results in the output of ``unittest`` with ``-v``, or of Django's runner with ``-v 2``.

    A test is named as in the line of its result, such as ``test_a (module.Class)``; one with a docstring has two lines, and
    both are its names.
    """
    results: Results = {}
    before = ""
    for line in _lines(output):
        if match := _UNITTEST_LINE.fullmatch(line):
            name, status = match.groups()
            _add(results, name, _UNITTEST[status])
            if _UNITTEST_NAME.fullmatch(before):
                _add(results, before, _UNITTEST[status])
            before = ""
        else:
            before = line
    return results


def parse_sympy(output: str) -> Results:
    """Return the results in the output of sympy's runner with ``--verbose``; a test is named by its function."""
    results: Results = {}
    for line in _lines(output):
        if match := _SYMPY_LINE.fullmatch(line):
            name, status = match.groups()
            _add(results, name, _SYMPY[status])
    return results


def parse_junit(document: bytes) -> Results:
    """Return the results in a file of JUnit's format; a test is named ``classname::name``.

    Raises:
        ValueError: If it is no such file.
    """
    try:
        root = ElementTree.fromstring(document)  # noqa: S314 - expat refuses to expand entities without end
    except ElementTree.ParseError as error:
        message = f"not a JUnit file: {error}"
        raise ValueError(message) from error
    results: Results = {}
    for case in root.iter("testcase"):
        kinds = {child.tag for child in case}
        outcome = CaseOutcome.PASSED
        for kind, other in (("skipped", CaseOutcome.NOT_RUN), ("failure", CaseOutcome.FAILED), ("error", CaseOutcome.ERROR)):
            outcome = other if kind in kinds else outcome
        names = (case.get("classname", ""), case.get("name", ""))
        _add(results, "::".join(filter(None, names)), outcome)
    return results


def parse_reward(content: bytes) -> float:
    """Return the reward in a file: a number, or a JSON object with one, or with several of which one is named ``reward``.

    Raises:
        ValueError: If it is not a number from 0 to 1.
    """
    text = content.decode(errors="replace").strip()
    try:
        value: Any = json.loads(text) if text.startswith("{") else text
    except (ValueError, RecursionError):
        value = text
    if isinstance(value, dict):
        value = next(iter(value.values())) if len(value) == 1 else value.get("reward")
    try:
        reward = float(value)
    except (TypeError, ValueError):
        reward = -1.0
    if not 0 <= reward <= 1:
        message = f"expected the reward to be a number from 0 to 1, got {text[:50]!r}"
        raise ValueError(message)
    return reward


def _lines(output: str) -> list[str]:
    return [_ANSI.sub("", line).strip() for line in output.splitlines()]


def _add(results: Results, name: str, outcome: CaseOutcome) -> None:
    if name not in results or _ORDER.index(outcome) < _ORDER.index(results[name]):
        results[name] = outcome


PARSERS: Mapping[str, Callable[[str], Results]] = MappingProxyType(
    {"pytest": parse_pytest, "pytest summary": parse_pytest_summary, "unittest": parse_unittest, "sympy": parse_sympy}
)
"""Parsers of output by the name of the test runner."""
