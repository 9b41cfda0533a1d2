"""Messages between the server and a process that runs a submission together with its tests."""

from __future__ import annotations

import msgspec

from coding_gym_server.protocol.grading import Asserts, CaseOutcome, UnitTests

__all__ = ["MAX_REPORT_BYTES", "PlainReport", "RunPlain", "plain_reports"]

MAX_REPORT_BYTES = 1 << 20
"""Maximum size of a ``PlainReport`` in bytes."""


class RunPlain(msgspec.Struct, array_like=True, tag=18, frozen=True):
    """Run a submission together with its tests; answered with ``PlainReport``.

    Attributes:
        code: The source code of the submission.
        entry_point: The name that it must define; None if there is none.
        tests: The tests.
    """

    code: str
    entry_point: str | None
    tests: Asserts | UnitTests


class PlainReport(msgspec.Struct, array_like=True, tag=19, frozen=True):
    """What a process claims about the tests that it has run: the submission in there can make it claim anything.

    Attributes:
        error: Why the submission or the module of tests could not be executed, or that there are no tests; empty otherwise.
        outcomes: Outcomes by name of the test, in order; of a skipped one, ``passed``.
    """

    error: str = ""
    outcomes: dict[str, CaseOutcome] = {}


plain_reports = msgspec.msgpack.Decoder(PlainReport)
