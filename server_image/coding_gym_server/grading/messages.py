"""What is graded and what comes of it, as it travels between a client and the server.

This module depends on msgspec alone, as ``protocol`` does, of which it is a part.
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
    "ProgramCase",
    "Programs",
    "Submission",
    "TestSource",
    "UnitTests",
    "VerdictOutcome",
]

Seconds = Annotated[float, msgspec.Meta(gt=0)]


class FileContent(msgspec.Struct, forbid_unknown_fields=True):
    """The content of a file that is no text.

    Attributes:
        base64: The bytes; as JSON, in base64.
    """

    base64: bytes


class Asserts(msgspec.Struct, tag="asserts", tag_field="type", forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Pieces of Python that pass if they raise nothing, such as ``assert add(1, 2) == 3``.

    They run one after the other in one namespace, in a process that does not hold the submission. A name that the namespace
    does not have is the submission's.

    Attributes:
        setup: What runs before them: imports, helpers, data. Its definitions go before the submission's.
        cases: The tests, one piece each.
    """

    setup: str = ""
    cases: tuple[str, ...]


class UnitTests(msgspec.Struct, tag="unittest", tag_field="type", forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A module of ``unittest.TestCase`` classes, or of functions whose names begin with ``test``; each method is a test.

    Attributes:
        source: The module. ``import solution`` and ``from solution import name`` give it the submission, and so does a name
            that the module does not have.
    """

    source: str


class ProgramCase(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A run of the submission as a program, which passes if it exits with 0 and prints what it should.

    Attributes:
        stdin: What it reads.
        stdout: What it should print. Blanks at the ends of lines, and empty lines at the end, do not count.
    """

    stdin: str = ""
    stdout: str


class Programs(msgspec.Struct, tag="programs", tag_field="type", forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Runs of the submission as a program, each in a process of its own.

    Attributes:
        cases: The tests.
        tolerance: How far numbers may be off, absolutely or relatively, whichever allows more; None compares text.
    """

    cases: tuple[ProgramCase, ...]
    tolerance: float | None = None


TestSource = Asserts | UnitTests | Programs


class GradingLimits(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """What a submission may use. The CPU time decides verdicts, for it does not depend on what else the machine does.

    Attributes:
        cpu_timeout: CPU time of a submission with all its tests, in seconds, over all its processes; of each run of a program.
        wall_timeout: Wall-clock time of the same, in seconds.
        max_output_chars: The most code points of its stdout, and of its stderr, that are kept.
    """

    cpu_timeout: Seconds = 10.0
    wall_timeout: Seconds = 60.0
    max_output_chars: Annotated[int, msgspec.Meta(ge=0)] = 2000


class Submission(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Code, and what it is to be graded by.

    Attributes:
        code: The source text.
        tests: The tests.
        entry_point: The function or class that it must define; None for a program.
        files: What its working directory holds: paths, as they are in a workspace, to contents.
        limits: What it may use.
    """

    code: str
    tests: TestSource
    entry_point: str | None = None
    files: dict[str, str | FileContent] = {}
    limits: GradingLimits = GradingLimits()


class CaseOutcome(StrEnum):
    """What became of one test."""

    PASSED = "passed"
    FAILED = "failed"
    """An assertion failed, or the output was another."""
    ERROR = "error"
    """An exception that no assertion is about, or an exit code other than 0."""
    TIMEOUT = "timeout"
    MEMORY = "memory"
    KILLED = "killed"
    """The submission's process died in it."""
    NOT_RUN = "not_run"
    """Something ended the run before."""


class VerdictOutcome(StrEnum):
    """What became of a submission: the first of these that is true of it."""

    INFRASTRUCTURE = "infrastructure"
    """A fault of ours; says nothing about the submission."""
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
    """What became of one test.

    Attributes:
        name: What it is called: the number of a case from 0 on, or the name of a test method.
        outcome: What became of it.
        message: Why it did not pass; empty if it did. It may quote the test.
        seconds: How long it took, wall clock.
    """

    name: str
    outcome: CaseOutcome
    message: str = ""
    seconds: float = 0.0


class Graded(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What came of grading.

    Attributes:
        outcome: What became of the submission.
        cases: What became of each test, in their order.
        message: Why it could not be loaded, or what failed of ours; empty otherwise.
        stdout: What it printed, cut in the middle; of a program, in the first run that did not pass.
        stderr: Likewise.
        load_seconds: How long it took until the submission was loaded, wall clock.
        seconds: How long all took, wall clock.
        cpu_seconds: The CPU time that the submission used.
    """

    outcome: VerdictOutcome
    cases: tuple[CaseResult, ...] = ()
    message: str = ""
    stdout: str = ""
    stderr: str = ""
    load_seconds: float = 0.0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
