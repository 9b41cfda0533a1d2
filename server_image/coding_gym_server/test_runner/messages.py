"""Messages between the server and the test runner."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from coding_gym_server.ipc.messages import Failed
from coding_gym_server.protocol.grading import Asserts, CaseResult, UnitTests

__all__ = [
    "BorrowFiles",
    "FilesBorrowed",
    "FromTestRunner",
    "RunTests",
    "TestsRun",
    "ToTestRunner",
    "test_runner_messages",
    "test_runner_requests",
]


class BorrowFiles(msgspec.Struct, tag=True):
    """First request to a test runner of submissions with a file system of their own: give it access to their files.

    Passes a descriptor of their mount namespace.

    Attributes:
        user: Id of their user; the server's if there are no others.
    """

    DESCRIPTORS: ClassVar[int] = 1

    user: int


class FilesBorrowed(msgspec.Struct, tag=True):
    """Response to ``BorrowFiles``."""


class RunTests(msgspec.Struct, tag=True, kw_only=True):
    """Request to a test runner to test a submission, with the descriptor of the connection with it.

    Attributes:
        code: The source code of the submission.
        entry_point: The name that it must define; None if there is none.
        tests: The tests.
    """

    DESCRIPTORS: ClassVar[int] = 1

    code: str
    entry_point: str | None
    tests: Asserts | UnitTests


class TestsRun(msgspec.Struct, tag=True, kw_only=True):
    """Response to ``RunTests``.

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


ToTestRunner = BorrowFiles | RunTests
FromTestRunner = FilesBorrowed | TestsRun | Failed

test_runner_requests = msgspec.msgpack.Decoder(ToTestRunner)
test_runner_messages = msgspec.msgpack.Decoder(FromTestRunner)
