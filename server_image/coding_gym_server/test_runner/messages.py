"""Messages between the server, the root of test runners and the test runners.

The root receives what leads to a test runner over one channel; each test runner has its own channel, which ends with it.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from coding_gym_server.ipc.library_messages import ImportLibraries, LibrariesImported
from coding_gym_server.ipc.messages import Failed
from coding_gym_server.protocol.grading import Asserts, CaseOutcome, CaseResult, UnitTests

__all__ = [
    "MAX_REPORT_BYTES",
    "BorrowFiles",
    "EndTests",
    "Executing",
    "FilesBorrowed",
    "FromTestRunner",
    "FromTestRunnerRoot",
    "RunTests",
    "TestSubmission",
    "TestsEnded",
    "TestsRun",
    "ToTestRunnerRoot",
    "test_runner_messages",
    "test_runner_requests",
    "test_runner_root_messages",
    "test_runner_root_requests",
]

MAX_REPORT_BYTES = 8 << 20
"""Maximum size of a ``TestsRun`` in bytes."""


class BorrowFiles(msgspec.Struct, tag=True):
    """First request to a root whose submissions have their own file system: give it access to their files.

    Passes a descriptor of their mount namespace.

    Attributes:
        user: Id of their user; the server's if there are no others.
    """

    DESCRIPTORS: ClassVar[int] = 1

    user: int


class FilesBorrowed(msgspec.Struct, tag=True):
    """Response to ``BorrowFiles``."""


class RunTests(msgspec.Struct, tag=True):
    """Request to the root: fork a test runner. Passes its connection with the submission, and its channel. Not answered.

    Attributes:
        tests: The tests.
    """

    DESCRIPTORS: ClassVar[int] = 2

    tests: Asserts | UnitTests


class EndTests(msgspec.Struct, tag=True):
    """Request to the root: kill the test runner with all its processes. The response is sent once all are reaped."""


class TestsEnded(msgspec.Struct, tag=True):
    """Response to ``EndTests``.

    Attributes:
        failure: Why no test runner was forked; empty if it was.
    """

    failure: str


class TestSubmission(msgspec.Struct, tag=True):
    """Request to a test runner: run its tests.

    Attributes:
        code: The source code of the submission.
        entry_point: The name that it must define; None if there is none.
    """

    code: str
    entry_point: str | None


class Executing(msgspec.Struct, tag=True):
    """Report of a test runner, before it executes for the first time what its submission may have chosen. Not answered.

    Attributes:
        event: Name of the audit event.
    """

    event: str


class TestsRun(msgspec.Struct, tag=True, kw_only=True):
    """Response to ``TestSubmission``.

    Attributes:
        is_loaded: Whether the submission could be executed, and defines its entry point.
        is_lost: Whether its process ended before its tests did.
        message: Why it could not be loaded.
        load_seconds: Wall-clock time until it was loaded, in seconds.
        cases: Result of each test.
    """

    is_loaded: bool
    is_lost: bool
    message: str = ""
    load_seconds: float = 0.0
    cases: list[CaseResult] = []

    @property
    def has_passed(self) -> bool:
        """Whether all tests have passed."""
        return self.is_loaded and bool(self.cases) and all(case.outcome is CaseOutcome.PASSED for case in self.cases)


ToTestRunnerRoot = BorrowFiles | ImportLibraries | RunTests | EndTests
FromTestRunner = Executing | TestsRun
FromTestRunnerRoot = FilesBorrowed | LibrariesImported | TestsEnded | Failed

test_runner_root_requests = msgspec.msgpack.Decoder(ToTestRunnerRoot)
test_runner_root_messages = msgspec.msgpack.Decoder(FromTestRunnerRoot)
test_runner_requests = msgspec.msgpack.Decoder(TestSubmission)
test_runner_messages = msgspec.msgpack.Decoder(FromTestRunner)
