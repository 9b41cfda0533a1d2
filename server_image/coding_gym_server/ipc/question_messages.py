"""Messages between the server and a process that answers questions: a submission with tests whose assertions ask."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from coding_gym_server.ipc.plain_messages import PlainReport, RunPlain

__all__ = [
    "MAX_QUESTION_REPORT_BYTES",
    "AskQuestions",
    "Candidates",
    "Observation",
    "Options",
    "Purpose",
    "QuestionReport",
    "Turn",
    "question_reports",
]

MAX_QUESTION_REPORT_BYTES = 8 << 20
"""Maximum size of a ``QuestionReport`` in bytes."""


class Purpose(StrEnum):
    """What assertions do instead of failing."""

    OBSERVE = "observe"
    """Report what they compare."""
    SIFT = "sift"
    """Find which values could be mistaken for the expected one."""
    LOOK = "look"
    """Find which expected values the variables of the tests do not hold."""
    ASK = "ask"
    """Report which values, or which predicates, hold."""


class Turn(msgspec.Struct, array_like=True, frozen=True):
    """One time at which an assertion is reached.

    Attributes:
        test: Name of the test.
        run: How often a test of this name had begun before: with other parameters, or for a subclass.
        site: Number of the assertion in the source code.
        visit: How often this run had reached the assertion before.
    """

    test: str
    run: int
    site: int
    visit: int


class Options(msgspec.Struct, array_like=True, frozen=True):
    """Values to compare a computed one with.

    Attributes:
        turn: When it is computed.
        values: The pickled values.
    """

    turn: Turn
    values: list[bytes]


class AskQuestions(msgspec.Struct, array_like=True, tag=20, frozen=True):
    """Run a submission together with tests whose assertions ask; answered with ``QuestionReport``.

    Attributes:
        run: The submission and the tests.
        purpose: What the assertions do.
        options: To sift, the expected values, each before others; to look, these alone; to ask, what to compare with, in the
            order of the answers.
        seed: Seed of random numbers; None for that of any submission.
    """

    run: RunPlain
    purpose: Purpose = Purpose.ASK
    options: list[Options] = []
    seed: int | None = None


class Observation(msgspec.Struct, array_like=True, frozen=True):
    """What an assertion has been reached with.

    Attributes:
        turn: When.
        values: The pickled values that it compares; None for what cannot be compared in another process.
        holds: Which of its predicates hold.
    """

    turn: Turn
    values: list[bytes | None]
    holds: list[bool]


class Candidates(msgspec.Struct, array_like=True, frozen=True):
    """An expected value and others that look like it.

    Attributes:
        turn: When the assertion is reached.
        values: The pickled values; the expected one is the first.
        distances: How different they are: a row for each.
    """

    turn: Turn
    values: list[bytes]
    distances: list[list[float]]


class QuestionReport(msgspec.Struct, array_like=True, tag=21, frozen=True):
    """What a process claims about tests that it has run: the submission in there can make it claim anything.

    Attributes:
        plain: How the tests ended, apart from their assertions.
        observations: What they have compared, if it was to observe.
        candidates: What is left of the options, if it was to sift or to look.
        answers: Which options hold, if it was to ask.
    """

    plain: PlainReport
    observations: list[Observation] = []
    candidates: list[Candidates] = []
    answers: list[tuple[Turn, list[bool]]] = []


question_reports = msgspec.msgpack.Decoder(QuestionReport)
