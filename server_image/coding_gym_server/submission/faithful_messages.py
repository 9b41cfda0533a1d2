"""Messages between the server and a process that holds a submission together with one test.

The server sends ``LoadSubmission``, then either ``CollectTests`` or ``RunTest``. It never sends a test before it knows that the
submission has been loaded, and it accepts a result only together with the token of that test.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

__all__ = [
    "CollectTests",
    "CollectedTest",
    "Framework",
    "FromFaithfulProcess",
    "LoadFailed",
    "LoadSubmission",
    "Loaded",
    "RunOutcome",
    "RunTest",
    "TestRan",
    "TestsCollected",
    "ToFaithfulProcess",
    "from_faithful_process",
    "to_faithful_process",
]


class Framework(StrEnum):
    """Framework that runs a module of tests."""

    STATEMENTS = "statements"
    """Execution of the module is the test."""
    FUNCTIONS = "functions"
    """Plain calls of its functions."""
    UNITTEST = "unittest"
    PYTEST = "pytest"


class RunOutcome(StrEnum):
    """How a test ended."""

    PASSED = "passed"
    SKIPPED = "skipped"
    FAILED = "failed"
    """An assertion failed."""
    ERROR = "error"
    """It raised another exception, or could not be run."""


class LoadSubmission(msgspec.Struct, tag=True):
    """Request to execute a submission.

    Attributes:
        code: Its source code.
        entry_point: The name that it must define; None if there is none.
    """

    code: str
    entry_point: str | None


class CollectTests(msgspec.Struct, tag=True):
    """Request to find the tests of a module, as its framework does.

    Attributes:
        source: The module.
        framework: Its framework, not ``STATEMENTS``.
    """

    source: str
    framework: Framework


class CollectedTest(msgspec.Struct, frozen=True):
    """A test of a module.

    Attributes:
        class_name: Its class; empty if it is a function.
        function: The function or method.
    """

    class_name: str
    function: str

    @property
    def name(self) -> str:
        """Name in results."""
        return f"{self.class_name}.{self.function}" if self.class_name else self.function


class RunTest(msgspec.Struct, tag=True, kw_only=True):
    """Request to run one test.

    Attributes:
        source: A module with this test.
        framework: Its framework.
        test: The test; None if the module itself is the test.
        earlier: Tests to run before it, whose outcomes do not matter.
        token: Secret of this test, which its result repeats.
    """

    source: str
    framework: Framework
    test: CollectedTest | None
    earlier: tuple[CollectedTest, ...] = ()
    token: str


class Loaded(msgspec.Struct, tag=True):
    """Response to ``LoadSubmission``."""


class LoadFailed(msgspec.Struct, tag=True):
    """Response to ``LoadSubmission``.

    Attributes:
        message: Why it could not be loaded.
    """

    message: str


class TestsCollected(msgspec.Struct, tag=True):
    """Response to ``CollectTests``.

    Attributes:
        tests: The tests, in the order in which the framework runs them; None if the module could not be executed.
    """

    tests: list[CollectedTest] | None


class TestRan(msgspec.Struct, tag=True):
    """Response to ``RunTest``.

    Attributes:
        token: The token of the request.
        outcome: How the test ended.
    """

    token: str
    outcome: RunOutcome


ToFaithfulProcess = LoadSubmission | CollectTests | RunTest
FromFaithfulProcess = Loaded | LoadFailed | TestsCollected | TestRan

to_faithful_process = msgspec.msgpack.Decoder(ToFaithfulProcess)
from_faithful_process = msgspec.msgpack.Decoder(FromFaithfulProcess)
