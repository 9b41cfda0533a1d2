"""Wire format of submissions, tests and grading results.

Like the rest of ``protocol``, this module depends on msgspec only.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec

__all__ = [
    "Asserts",
    "CaseOutcome",
    "CaseResult",
    "FileContent",
    "Graded",
    "GradingLimits",
    "GradingMode",
    "ProgramCase",
    "Programs",
    "Submission",
    "TestSource",
    "UnitTests",
    "VerdictOutcome",
]

Seconds = Annotated[float, msgspec.Meta(gt=0)]


class FileContent(msgspec.Struct, forbid_unknown_fields=True):
    """Content of a binary file.

    Attributes:
        base64: The bytes; in JSON, Base64.
    """

    base64: bytes


class Asserts(msgspec.Struct, tag="asserts", tag_field="type", forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Python snippets that pass if they raise no exception, such as ``assert add(1, 2) == 3``.

    They run in order in one namespace, in a process that does not hold the submission. Names missing from the namespace resolve
    to the submission's.

    Attributes:
        setup: Code that runs before the tests: imports, helpers, data. Its definitions shadow the submission's.
        cases: The tests, one snippet each.
    """

    setup: str = ""
    cases: tuple[str, ...]


class UnitTests(msgspec.Struct, tag="unittest", tag_field="type", forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A module of ``unittest.TestCase`` classes, or of functions whose names begin with ``test``; each method is a test.

    Attributes:
        source: The module. ``import solution`` and ``from solution import name`` import the submission; names that the module
            does not define resolve to the submission's, too.
    """

    source: str


class ProgramCase(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A run of the submission as a program; passes if it exits with 0 and prints the expected output.

    Attributes:
        stdin: Standard input.
        stdout: Expected output. Trailing whitespace on lines and trailing empty lines are ignored.
    """

    stdin: str = ""
    stdout: str


class Programs(msgspec.Struct, tag="programs", tag_field="type", forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Runs of the submission as a program, each in a dedicated process.

    Attributes:
        cases: The tests.
        tolerance: Absolute and relative tolerance for numbers, whichever is larger; None compares text exactly.
    """

    cases: tuple[ProgramCase, ...]
    tolerance: float | None = None


TestSource = Asserts | UnitTests | Programs


class GradingMode(StrEnum):
    """Where the tests of a submission run."""

    ISOLATED = "isolated"
    """In another process than the submission, which values and calls cross: tamper-resistant."""
    FAITHFUL = "faithful"
    """In the process of the submission, as test frameworks run them. Canaries, tests that must fail, detect forged results."""


class GradingLimits(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Resource limits of a submission. CPU time, which does not depend on other load on the machine, is the decisive limit.

    Attributes:
        cpu_timeout: CPU time of a submission with all its tests, over all its processes, in seconds; for programs, per run.
        wall_timeout: Wall-clock time of a submission with all its tests, in seconds; for programs, per run.
        max_output_chars: Maximum number of code points kept of stdout, and of stderr.
    """

    cpu_timeout: Seconds = 10.0
    wall_timeout: Seconds = 60.0
    max_output_chars: Annotated[int, msgspec.Meta(ge=0)] = 2000


class Submission(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A submission: code, and the tests to grade it with.

    Attributes:
        code: The source code.
        tests: The tests.
        entry_point: The function or class that the code must define; None for a program.
        files: Initial content of the working directory: workspace paths to contents.
        limits: Resource limits.
        mode: Where the tests run.
        reference: A program that passes the tests; the faithful mode requires it, to validate canaries.
    """

    code: str
    tests: TestSource
    entry_point: str | None = None
    files: dict[str, str | FileContent] = {}
    limits: GradingLimits = GradingLimits()
    mode: GradingMode = GradingMode.ISOLATED
    reference: str | None = None


class CaseOutcome(StrEnum):
    """Outcome of a test."""

    PASSED = "passed"
    FAILED = "failed"
    """An assertion failed, or the output differed."""
    ERROR = "error"
    """An exception other than an assertion failure, or a nonzero exit code."""
    TIMEOUT = "timeout"
    MEMORY = "memory"
    KILLED = "killed"
    """The submission's process died during the test."""
    NOT_RUN = "not_run"
    """The run ended before this test."""


class VerdictOutcome(StrEnum):
    """Outcome of a submission: the first member that applies."""

    INFRASTRUCTURE = "infrastructure"
    """An infrastructure error; says nothing about the submission."""
    FORGED = "forged"
    """It passed all tests, and a canary, which no solution passes. Faithful mode only."""
    PASSED = "passed"
    """All tests passed."""
    TIMEOUT = "timeout"
    MEMORY = "memory"
    KILLED = "killed"
    """Its process died: a crash, ``os._exit``, a signal."""
    ERROR = "error"
    """It could not be loaded: a syntax error, an exception, no entry point."""
    FAILED = "failed"
    """A test failed."""


class CaseResult(msgspec.Struct, kw_only=True, omit_defaults=True, frozen=True):
    """Result of a test.

    Attributes:
        name: Name of the test: the index of a case from 0, or the name of a test method.
        outcome: Outcome of the test.
        message: Why it did not pass; empty if it did. May quote the test.
        seconds: Wall-clock time, in seconds.
    """

    name: str
    outcome: CaseOutcome
    message: str = ""
    seconds: float = 0.0


class Graded(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Result of grading a submission.

    Attributes:
        outcome: Outcome of the submission.
        cases: Result of each test, in order.
        message: Why the submission could not be loaded, or the infrastructure error; empty otherwise.
        stdout: Its stdout, truncated in the middle; for a program, of the first run that did not pass.
        stderr: Its stderr, truncated in the middle; for a program, of the first run that did not pass.
        load_seconds: Wall-clock time until the submission was loaded, in seconds.
        seconds: Total wall-clock time, in seconds.
        cpu_seconds: CPU time used by the submission, in seconds.
        mode: Where the tests ran.
        is_weak: Whether the tests ran in the faithful mode with too few canaries to detect forged results reliably.
    """

    outcome: VerdictOutcome
    cases: tuple[CaseResult, ...] = ()
    message: str = ""
    stdout: str = ""
    stderr: str = ""
    load_seconds: float = 0.0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    mode: GradingMode = GradingMode.ISOLATED
    is_weak: bool = False
