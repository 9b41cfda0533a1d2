"""Summaries of episodes, as columns."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any, BinaryIO

import msgspec
import zstandard

from coding_gym.datasets.episode_log import Record
from coding_gym_server.protocol.errors import DECODING_ERRORS

__all__ = ["ENDINGS", "RESULTS", "Summaries", "Summary", "summary_of"]

ENDINGS = ("terminated", "truncated", "empty", "damaged")
"""How episodes end: ``empty`` are those without actions, ``damaged`` those that cannot be read."""

RESULTS = ("unknown", "solved", "unsolved")
"""Whether episodes were solved; ``unknown`` if no step says so."""


class Summary(msgspec.Struct):
    """Summary of an episode.

    Attributes:
        steps: Number of actions.
        reward: Sum of the rewards.
        outcome: ``info["outcome"]`` of the last step; empty if there is none.
        ending: Position in ``ENDINGS``.
        result: Position in ``RESULTS``.
        task: Id of the task; empty if there is none.
        tests_passed: The largest number of tests that a submission passed.
        tests_total: The number of tests of that submission; 0 if none was graded.
    """

    steps: int = 0
    reward: float = 0.0
    outcome: str = ""
    ending: int = ENDINGS.index("damaged")
    result: int = 0
    task: str = ""
    tests_passed: int = 0
    tests_total: int = 0


_PLAIN_COLUMNS = {
    "steps": attrgetter("steps"),
    "reward": attrgetter("reward"),
    "ending": attrgetter("ending"),
    "result": attrgetter("result"),
    "passed": attrgetter("tests_passed"),
    "tests": attrgetter("tests_total"),
}


class Summaries:
    """Table of summaries, whose columns are sent to the page.

    Attributes:
        offsets: Offset of each encoded episode in bytes.
        lengths: Length of each encoded episode in bytes.
        seconds: Wall-clock time of each episode in seconds, NaN if it is not known.
        outcomes: Outcomes, to which a column refers by position.
        tasks: Tasks, likewise.
    """

    def __init__(self) -> None:
        self.offsets = array("Q")
        self.lengths = array("Q")
        self.seconds = array("d")
        self.outcomes: list[str] = []
        self.tasks: list[str] = []
        self._outcome_codes: dict[str, int] = {}
        self._task_codes: dict[str, int] = {}
        self._columns: dict[str, array[Any]] = {
            "episode": array("Q"),
            "steps": array("L"),
            "reward": array("d"),
            "outcome": array("L"),
            "ending": array("B"),
            "result": array("B"),
            "task": array("L"),
            "passed": array("L"),
            "tests": array("L"),
        }

    def __len__(self) -> int:
        return len(self.seconds)

    def extend(self, records: Sequence[Record], summaries: Sequence[Summary]) -> int:
        """Add the summaries of records, and return the row of the first."""
        start = len(self)
        columns = self._columns
        columns["episode"].extend([record.episode for record in records])
        for name, field in _PLAIN_COLUMNS.items():
            columns[name].extend(map(field, summaries))
        columns["outcome"].extend([_code(summary.outcome, self.outcomes, self._outcome_codes) for summary in summaries])
        columns["task"].extend([_code(summary.task, self.tasks, self._task_codes) for summary in summaries])
        self.offsets.extend([record.offset for record in records])
        self.lengths.extend([record.length for record in records])
        self.seconds.extend([math.nan] * len(records))
        return start

    def dump(self) -> list[tuple[str, str, bytes]]:
        """Return all columns, for the cache: name, type code and items."""
        return [(name, column.typecode, column.tobytes()) for name, column in self._all().items()]

    def restore(self, columns: Mapping[str, array[Any]], outcomes: list[str], tasks: list[str]) -> None:
        """Replace all columns with those from the cache."""
        for name, column in self._all().items():
            column[:] = columns[name]
        self.outcomes, self.tasks = outcomes, tasks
        self._outcome_codes = {outcome: code for code, outcome in enumerate(outcomes)}
        self._task_codes = {task: code for code, task in enumerate(tasks)}

    def episodes(self) -> array[Any]:
        """Return the indices of the episodes."""
        return self._columns["episode"]

    def _all(self) -> dict[str, array[Any]]:
        return {**self._columns, "offsets": self.offsets, "lengths": self.lengths, "seconds": self.seconds}

    def is_intact(self, row: int) -> bool:
        """Return whether an episode can be read."""
        return ENDINGS[self._columns["ending"][row]] != "damaged"

    def columns(self, start: int, stop: int) -> dict[str, list[Any]]:
        """Return the columns of some rows."""
        return {name: column[start:stop].tolist() for name, column in self._columns.items()}


class _Info(msgspec.Struct):
    outcome: str | None = None
    solved: bool | None = None
    tests_passed: int | None = None
    tests_total: int | None = None


class _Step(msgspec.Struct):
    reward: float = 0.0
    terminated: bool = False
    info: _Info = msgspec.field(default_factory=_Info)


class _Options(msgspec.Struct):
    task_id: str | None = None


class _Episode(msgspec.Struct):
    steps: list[_Step]
    options: _Options = msgspec.field(default_factory=_Options)


class _PlainStep(msgspec.Struct):
    reward: float = 0.0
    terminated: bool = False
    info: Any = None


class _PlainEpisode(msgspec.Struct):
    steps: list[_PlainStep]
    options: Any = None


_decompressor = zstandard.ZstdDecompressor()
_decoder = msgspec.msgpack.Decoder(_Episode)
_plain_decoder = msgspec.msgpack.Decoder(_PlainEpisode, ext_hook=lambda code, data: None)


def summary_of(record: Record, log: BinaryIO) -> Summary:
    """Return the summary of an episode; that of a damaged one if it cannot be decoded.

    Not thread-safe.

    Args:
        record: Its record.
        log: The file.
    """
    if not record.is_intact:
        return Summary()
    try:
        log.seek(record.offset)
        encoded = _decompressor.decompress(log.read(record.length))
        try:
            episode: Any = _decoder.decode(encoded)
        except msgspec.ValidationError:
            # The info of an environment of another package, whose keys have other types.
            episode = _plain(_plain_decoder.decode(encoded))
        return _summarize(episode)
    except (*DECODING_ERRORS, zstandard.ZstdError, ValueError, MemoryError):
        # Text that is not UTF-8, keys that are arrays, data nested too deeply, or a frame that claims to be huge.
        return Summary()


def _summarize(episode: _Episode) -> Summary:
    steps = episode.steps
    reward = 0.0
    solved: bool | None = None
    passed = tests = 0
    for step in steps:
        reward += step.reward
        info = step.info
        if info.solved is not None:
            solved = solved or info.solved
        if info.tests_total and (info.tests_passed or 0) >= passed:
            passed, tests = info.tests_passed or 0, info.tests_total
    last = steps[-1] if steps else _Step()
    return Summary(
        steps=max(len(steps) - 1, 0),
        reward=reward,
        outcome=last.info.outcome or "",
        ending=2 if len(steps) <= 1 else 0 if last.terminated else 1,
        result=0 if solved is None else 1 if solved else 2,
        task=episode.options.task_id or "",
        tests_passed=max(passed, 0),
        tests_total=max(tests, 0),
    )


def _plain(episode: _PlainEpisode) -> _Episode:
    """Return an episode without the keys that have other types than this package's."""
    options = episode.options if isinstance(episode.options, dict) else {}
    task = options.get("task_id")
    return _Episode(
        steps=[_Step(step.reward, step.terminated, _info(step.info)) for step in episode.steps],
        options=_Options(None if task is None else str(task)),
    )


def _info(info: Any) -> _Info:
    given = info if isinstance(info, dict) else {}
    outcome, solved = given.get("outcome"), given.get("solved")
    return _Info(
        outcome=outcome if isinstance(outcome, str) else None,
        solved=bool(solved) if "solved" in given else None,
    )


def _code(value: str, values: list[str], codes: dict[str, int]) -> int:
    code = codes.get(value)
    if code is None:
        code = codes[value] = len(values)
        values.append(value)
    return code
