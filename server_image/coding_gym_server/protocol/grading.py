"""Wire format of submissions, tests and grading results.

Like the rest of ``protocol``, this module depends on msgspec and the table of languages only.
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Annotated

import msgspec

from coding_gym_server.languages import PYTHON, find_language

__all__ = [
    "SUBMISSION_MODULE",
    "Asserts",
    "CaseGroup",
    "CaseOutcome",
    "CaseResult",
    "Checker",
    "CheckerProtocol",
    "FileContent",
    "Graded",
    "GradingLimits",
    "GradingMode",
    "OutputRule",
    "ProgramCase",
    "Programs",
    "Submission",
    "TaskCheck",
    "TestSource",
    "Tolerance",
    "UnitTests",
    "VerdictOutcome",
]

Seconds = Annotated[float, msgspec.Meta(gt=0)]

SUBMISSION_MODULE = "solution"
"""Name of the module that a submission runs as, unless it is a program, or its tests import it by another name."""

_MAX_WALL_FACTOR = 10


class FileContent(msgspec.Struct, forbid_unknown_fields=True):
    """Content of a binary file.

    Attributes:
        base64: The bytes; in JSON, Base64.
        is_executable: Whether it can be executed.
    """

    base64: bytes
    is_executable: bool = False


class Asserts(msgspec.Struct, tag="asserts", tag_field="type", forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Python snippets that pass if they raise no exception, such as ``assert add(1, 2) == 3``.

    They run in order in one namespace: that of the submission, which they continue, or, in a process that does not hold the
    submission, one whose missing names resolve to the submission's.

    Attributes:
        preamble: What the submission begins with, as far as the tests may use it: a process that does not hold the submission
            executes it first.
        setup: Code that runs before the tests: imports, helpers, data. Its definitions shadow the submission's.
        cases: The tests, one snippet each.
        whole: The tests as they were written, if the setup and the cases are parts of something else, such as the body of a
            function: the process of the submission executes this instead. Empty if they are not.
    """

    preamble: str = ""
    setup: str = ""
    cases: tuple[str, ...]
    whole: str = ""


class UnitTests(msgspec.Struct, tag="unittest", tag_field="type", forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A module of ``unittest.TestCase`` classes, or of functions whose names begin with ``test``; each method is a test.

    Attributes:
        preamble: As in ``Asserts``.
        source: The module. If it imports the submission, both are files, as ``solution.py`` and ``tests.py``. Otherwise it is
            the end of the submission's own file, and names that it does not define are the submission's.
        module: Name by which it imports the submission.
    """

    preamble: str = ""
    source: str
    module: str = SUBMISSION_MODULE


class OutputRule(StrEnum):
    """Which outputs of a program match the expected one."""

    LINES = "lines"
    """The same lines, but for trailing whitespace and trailing empty lines. With a tolerance, amounts of whitespace in a line
    do not matter, integers are compared by value, and decimal fractions of the expected output may differ by the tolerance."""
    TOKENS = "tokens"
    """The same words, whatever the whitespace between them, as the checkers of contests compare; integers by value, and
    decimal fractions with the tolerance."""
    LIVE_CODE_BENCH = "livecodebench"
    """As LiveCodeBench's evaluator: the same lines without whitespace at their ends, or lines of the same decimal numbers."""
    ANY = "any"
    """Any output: only the exit code counts, such as that of tests in the program."""
    EXACT = "exact"
    """The same characters."""
    CASE_INSENSITIVE = "case-insensitive"
    """As ``TOKENS``, whatever the case of letters."""
    UNORDERED_LINES = "unordered-lines"
    """As ``TOKENS``, line by line without empty ones, after both outputs have been sorted: numbers by value, before words."""


class Tolerance(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """By how much decimal fractions may differ from the expected ones: the larger of both.

    Attributes:
        absolute: Maximum difference.
        relative: Maximum difference, as a part of the expected number.
    """

    absolute: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    relative: Annotated[float, msgspec.Meta(ge=0)] = 0.0


class ProgramCase(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A run of the submission as a program; passes if it exits with 0 and prints the expected output.

    Attributes:
        stdin: Standard input.
        stdout: Expected output.
    """

    stdin: str = ""
    stdout: str


class CaseGroup(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Cases that are worth points together, as a subtask of an olympiad is: as many as the worst of them.

    Attributes:
        points: Points of the group.
        cases: Numbers of its cases, from 0. A case can be in several groups, such as one and those that depend on it.

    Raises:
        ValueError: If it has no cases, or no points.
    """

    points: float
    cases: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.cases or not 0 < self.points < math.inf:
            message = f"expected a group of at least one case with a positive number of points, got {self!r:.200}"
            raise ValueError(message)


class GradingLimits(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Resource limits of a submission, which do not depend on other load on the machine. CPU time is the decisive one.

    Attributes:
        cpu_timeout: CPU time of a submission with all its tests, over all its processes, in seconds; for programs, per run.
        wall_timeout: Wall-clock time of a submission with all its tests, in seconds; for programs, per run. Time in which a
            process waits for a processor does not count, as far as the kernel reports it.
        max_output_chars: Maximum number of code points kept of stdout, and of stderr.
        max_memory_bytes: Memory that a process of a program may have in use at a time, beside that of its language; None for
            no other limit than that of the sandbox. That of other submissions is not limited by this.
    """

    cpu_timeout: Seconds = 10.0
    wall_timeout: Seconds = 60.0
    max_output_chars: Annotated[int, msgspec.Meta(ge=0)] = 2000
    max_memory_bytes: Annotated[int, msgspec.Meta(ge=1 << 20)] | None = None

    @property
    def max_seconds(self) -> float:
        """Wall-clock time after which a submission or a run is ended even if its processes were waiting for a processor."""
        return _MAX_WALL_FACTOR * self.wall_timeout


class CheckerProtocol(StrEnum):
    """How a checker or an interactor is told about a case, and tells its decision."""

    TESTLIB = "testlib"
    """Its arguments are the names of three files: the input, the output and the expected output of a case. It exits with 0 for
    a right output, 1, 2 or 8 for a wrong one, or 7 for one that gets the points with which its message begins, such as
    ``points 0.5``. An interactor may write an output for a checker."""
    KATTIS = "kattis"
    """Its arguments are the names of the input and the expected output, and a directory with a slash at the end; it reads the
    output from stdin. It exits with 42 for a right output, and 43 for a wrong one, and may write ``judgemessage.txt`` and, for
    points, ``score.txt`` into the directory. See the output validators of the Problem Package Format."""
    PRINTED = "printed"
    """Its arguments are the names of the input, the expected output and the output. It exits with 0, and the last word that it
    prints are the points: a number, or ``True`` or ``False``. So do the generated checkers of ``open-r1/codeforces``."""


class Checker(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A program that decides whether an output is right.

    Any end other than those of its protocol is a failure of the checker, which says nothing about the submission; so is an
    exception of one in Python.

    Attributes:
        code: The source code.
        language: Its language, as in ``Programs``.
        protocol: A member of ``CheckerProtocol``, or its value.
        arguments: Further arguments.
        files: Files beside it, such as ``testlib.h``: paths to contents.
        limits: Resource limits of a run.
        max_points: Points of a right output.
    """

    code: str
    language: str = PYTHON
    protocol: CheckerProtocol = CheckerProtocol.TESTLIB
    arguments: tuple[str, ...] = ()
    files: dict[str, str | FileContent] = {}
    limits: GradingLimits = GradingLimits()
    max_points: Annotated[float, msgspec.Meta(gt=0)] = 1.0

    def __post_init__(self) -> None:
        if self.language != PYTHON:
            find_language(self.language)
        _check_member("protocol", self.protocol, CheckerProtocol)


class Programs(msgspec.Struct, tag="programs", tag_field="type", forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Runs of the submission as a program, each in a dedicated process.

    Attributes:
        language: Language of the program, such as ``cpp``: a name or an alias of ``coding_gym_server.languages``. Its compiler
            runs once; time limits do not count the time that an empty program of the language takes.
        cases: The tests.
        groups: Groups of cases that are worth points together. The reward of a verdict is then its share of all points, and a
            case whose groups have all been lost is not run. Without groups, all cases are worth the same.
        tolerance: Tolerance for decimal fractions of the expected output; a number is the absolute and the relative one.
            Integers and words have none. None compares fractions as text.
        compare: Which outputs match, a member of ``OutputRule`` or its value.
        checker: Decides which outputs match, instead of ``compare`` and ``tolerance``.
        interactor: Talks with the program: each reads what the other one prints. Its decision counts; if it accepts and there
            is a checker, that one decides about the output that it has written.
        prefix: Source code that a submission continues, such as the beginning of a function. A submission that repeats its last
            line, as whole functions do, continues after that.
        suffix: Source code after the submission, such as tests that call its function. A submission can end the program before
            them, with exit code 0, and passes: its verdict has the mode ``faithful`` and is weak.
        stop: Texts that end a submission: it is cut at the first one, as completions of a model are.
        input_file: File of the working directory that has the input; if empty, it is standard input.
        output_file: File to which the output is written; if empty, it is standard output.
        random_seed: Seed of Python's ``random`` in each run, so that a verdict can be reproduced; None draws one from the
            operating system each time, as plain Python does.

    Raises:
        ValueError: If the rule or the language is unknown, a group has a case that does not exist, or the interactor's protocol
            is ``printed``.
    """

    cases: tuple[ProgramCase, ...]
    tolerance: float | Tolerance | None = None
    compare: OutputRule = OutputRule.LINES
    random_seed: int | None = 0
    language: str = PYTHON
    checker: Checker | None = None
    interactor: Checker | None = None
    prefix: str = ""
    suffix: str = ""
    stop: tuple[str, ...] = ()
    input_file: str = ""
    output_file: str = ""
    groups: tuple[CaseGroup, ...] = ()

    def __post_init__(self) -> None:
        if self.language != PYTHON:
            find_language(self.language)
        if unknown := {number for group in self.groups for number in group.cases} - {*range(len(self.cases))}:
            message = f"expected groups of the {len(self.cases)} cases, which begin with 0, got {sorted(unknown)[:5]}"
            raise ValueError(message)
        _check_member("compare", self.compare, OutputRule)
        if self.interactor is not None and self.interactor.protocol == CheckerProtocol.PRINTED:
            message = f"expected an interactor that exits with its decision, as testlib's do, got {CheckerProtocol.PRINTED!r}"
            raise ValueError(message)

    def program(self, code: str) -> str:
        """Return the source code that is run for a submission: with the prefix and the suffix, without what follows a stop."""
        last = self.prefix.rstrip().rpartition("\n")[2].strip()
        if last and last in code:
            code = code.partition(last)[2].removeprefix("\n")
        ends = [place for stop in self.stop if stop and (place := code.find(stop)) >= 0]
        return self.prefix + (code[: min(ends)] if ends else code) + self.suffix


def _check_member(name: str, value: str, members: type[StrEnum]) -> None:
    if value not in list(members):
        message = f"expected {name} to be one of {', '.join(members)}, got {value!r:.100}"
        raise ValueError(message)


TestSource = Asserts | UnitTests | Programs


class GradingMode(StrEnum):
    """Where the tests of a submission run."""

    AGREEMENT = "agreement"
    """In another process than the submission, and if it passes, in its own, as test frameworks run them; both must pass."""
    ISOLATED = "isolated"
    """In another process than the submission, which values and calls cross."""
    FAITHFUL = "faithful"
    """In the process of the submission, as test frameworks run them, if it answers questions about their values before."""
    COPY = "copy"
    """Together with the submission, a change to a repository, in a new session, which has nothing but that change."""
    LAYER = "layer"
    """In a new session with all changes of the submission's, but none of its processes."""
    SESSION = "session"
    """In the session of the submission, at its end, with its processes."""


class Submission(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A submission: code, and the tests to grade it with.

    Attributes:
        code: The source code.
        tests: The tests.
        entry_point: The function or class that the code must define; None for a program.
        files: Initial content of the working directory: workspace paths to contents.
        limits: Resource limits.
        mode: Where the tests run.
        reference: A program that passes the tests; the faithful mode requires it, to make questions. So does agreement, for
            tests that execute what the submission returns.
        secret: Secret from which the faithful mode draws its questions, the same whenever it is the same; None for one of the
            server.
    """

    code: str
    tests: TestSource
    entry_point: str | None = None
    files: dict[str, str | FileContent] = {}
    limits: GradingLimits = GradingLimits()
    mode: GradingMode = GradingMode.ISOLATED
    reference: str | None = None
    secret: str | None = None

    def __post_init__(self) -> None:
        if self.mode is GradingMode.FAITHFUL and (self.reference is None or isinstance(self.tests, Programs)):
            message = "the faithful mode requires a reference, and tests that are asserts or a module of tests"
            raise ValueError(message)


class CaseOutcome(StrEnum):
    """Outcome of a test."""

    PASSED = "passed"
    FAILED = "failed"
    """An assertion failed, or the output differed."""
    ERROR = "error"
    """An exception other than an assertion failure, or a nonzero exit code."""
    TIMEOUT = "timeout"
    MEMORY = "memory"
    OUTPUT = "output"
    """A program printed 4 MiB more than the expected output."""
    KILLED = "killed"
    """The submission's process died during the test."""
    NOT_RUN = "not_run"
    """The run ended before this test."""


class VerdictOutcome(StrEnum):
    """Outcome of a submission: the first member that applies."""

    INFRASTRUCTURE = "infrastructure"
    """An infrastructure error; says nothing about the submission."""
    PASSED = "passed"
    """All tests passed."""
    TIMEOUT = "timeout"
    MEMORY = "memory"
    OUTPUT = "output"
    """It printed 4 MiB more than the expected output."""
    KILLED = "killed"
    """Its process died: a crash, ``os._exit``, a signal."""
    ERROR = "error"
    """It could not be loaded or compiled: a syntax error, an exception, no entry point."""
    FAILED = "failed"
    """A test failed."""


class CaseResult(msgspec.Struct, kw_only=True, omit_defaults=True, frozen=True):
    """Result of a test.

    Attributes:
        name: Name of the test: the index of a case from 0, or the name of a test method.
        outcome: Outcome of the test.
        message: Why it did not pass; empty if it did. May quote the test.
        seconds: Wall-clock time, in seconds.
        score: Part of the test that passed, 0 to 1, if a checker has given points; else None.
        memory_bytes: The most memory that a process of a program had in use; None if that is not known.
    """

    name: str
    outcome: CaseOutcome
    message: str = ""
    seconds: float = 0.0
    score: float | None = None
    memory_bytes: int | None = None


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
        disagreement: Why a submission that passed apart from its tests failed with them in one process; empty if it did not.
        is_weak: Whether the tests ran in the faithful mode with too few questions to keep programs from guessing the answers.
        executed: Audit event by which isolated tests executed what the submission may have chosen, such as
            ``pickle.find_class``; empty if they did not. After it, the submission could claim any result.
        reward: Reward that the tests have written, or the share of the points of groups, 0 to 1; None if there is none.
        checker_failed: Whether the infrastructure error is that a checker did not decide: it would not again.
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
    disagreement: str = ""
    is_weak: bool = False
    executed: str = ""
    reward: float | None = None
    checker_failed: bool = False


class TaskCheck(msgspec.Struct, kw_only=True, omit_defaults=True, frozen=True):
    """Which mode a task permits, found out by grading its reference.

    Attributes:
        mode: The mode. For a reference that fails, the one in which its submissions are graded nevertheless.
        broken: Why the reference fails its tests, so that no submission can pass; empty if it passes them.
        is_weak: Whether the mode is faithful, with too few questions to keep programs from guessing the answers.
    """

    mode: GradingMode
    broken: str = ""
    is_weak: bool = False
