"""What assertions become in the process of a submission: questions about values that are computed once.

Tests call an asker where they had an assertion. None of its calls ends a test: what follows finds the state that it would find
if all assertions had held. In the process of a submission, whatever an asker reports is a claim.
"""

from __future__ import annotations

import builtins
import contextlib
import itertools
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

from coding_gym_server.ipc.question_messages import (
    AskQuestions,
    Candidates,
    Observation,
    Purpose,
    QuestionReport,
    Turn,
)
from coding_gym_server.submission.comparing import Pickling, alike, between, canonical, distances, is_in_sight, unpickled
from coding_gym_server.submission.plain_run import run_plain

__all__ = ["run_questions"]

_ASKER = "__ask__"
"""The name by which tests call the asker."""

_MAX_VISITS = 64
"""How often one run of a test is asked by the same assertion."""

Predicate = Callable[..., Any]


def run_questions(request: AskQuestions, tell: Callable[[QuestionReport], None]) -> NoReturn:
    """Run a submission together with tests whose assertions ask, and end the process.

    Args:
        request: The submission and the tests.
        tell: Sends the server the report, of which errors are a part.
    """
    if request.seed is not None:
        random.seed(request.seed)
        if (numpy := sys.modules.get("numpy")) is not None:
            numpy.random.seed(request.seed)
    asker = _Asker(request)
    setattr(builtins, _ASKER, asker)
    run_plain(request.run, lambda plain: tell(QuestionReport(plain, asker.observations, asker.candidates, asker.answers)))


class _Asker:
    """Takes the place of assertions.

    Args:
        request: What they do instead.

    Attributes:
        observations: What they have compared.
        candidates: Values that could be mistaken for expected ones.
        answers: Which options hold.
    """

    def __init__(self, request: AskQuestions) -> None:
        self.observations: list[Observation] = []
        self.candidates: list[Candidates] = []
        self.answers: list[tuple[Turn, list[bool]]] = []
        purposes = {
            Purpose.OBSERVE: self._observe,
            Purpose.SIFT: self._sift,
            Purpose.LOOK: self._look,
            Purpose.ASK: self._answer,
        }
        self._take = purposes[request.purpose]
        self._options = {item.turn: item.values for item in request.options}
        self._pickling = Pickling()
        self._run = ("", 0)
        self._runs: Counter[str] = Counter()
        self._visits: Counter[int] = Counter()

    def begin(self, test: str) -> None:
        """Begin a test, which the assertions that follow belong to."""
        self._run = (test, self._runs[test])
        self._runs[test] += 1
        self._visits.clear()

    def __call__(self, site: int, values: Sequence[Any], *predicates: Predicate) -> None:
        """Take the place of an assertion.

        Args:
            site: Its number.
            values: The values that it compares.
            predicates: The assertion, alone or among its contraries.
        """
        visit = self._visits[site]
        self._visits[site] += 1
        if visit < _MAX_VISITS:
            self._take(Turn(*self._run, site, visit), values, predicates)

    @contextlib.contextmanager
    def raises(self, site: int, *predicates: Predicate) -> Iterator[None]:
        """Take the place of a context manager that expects an exception, and continue after it."""
        ended: BaseException | None = None
        try:
            yield
        except BaseException as error:
            ended = error
            if not isinstance(error, Exception):
                raise
        finally:
            self(site, (ended,), *predicates)

    def _observe(self, turn: Turn, values: Sequence[Any], predicates: Sequence[Predicate]) -> None:
        # First: a comparison may change them.
        pickled = [self._pickling.dumps(value) for value in values]
        self.observations.append(Observation(turn, pickled, [_holds(predicate, *values) for predicate in predicates]))

    def _sift(self, turn: Turn, values: Sequence[Any], predicates: Sequence[Predicate]) -> None:
        options = [unpickled(data) for data in self._options.get(turn, ())]
        if not options:
            return
        kept = [options[0]]
        for other in alike(options[1:], options[0]):
            middle = between(options[0], other)
            # A right solution may return any value that the assertion accepts, not just what the reference returns.
            is_close = middle is not None and all(_holds(predicates[0], middle, one) for one in (options[0], other))
            if not is_close and not _holds(predicates[0], values[0], other):
                kept.append(other)
        rebuilt = map(canonical, kept)
        pickled = {data: value for value in rebuilt if (data := self._pickling.dumps(value)) is not None}
        self.candidates.append(Candidates(turn, list(pickled), distances(list(pickled.values()))))

    def _look(self, turn: Turn, values: Sequence[Any], predicates: Sequence[Predicate]) -> None:
        options = self._options.get(turn, [])
        if options and not is_in_sight(unpickled(options[0]), sys._getframe(2)):
            self.candidates.append(Candidates(turn, options, []))

    def _answer(self, turn: Turn, values: Sequence[Any], predicates: Sequence[Predicate]) -> None:
        if turn in self._options:
            options = list(map(unpickled, self._options[turn]))
            copies = zip(*(_copies(value, len(options)) for value in values), strict=True)
            answer = [_holds(predicates[0], *copy, option) for copy, option in zip(copies, options, strict=True)]
            self.answers.append((turn, answer))
        elif len(predicates) > 1:
            copies = zip(*(_copies(value, len(predicates)) for value in values), strict=True)
            self.answers.append((turn, [_holds(predicate, *copy) for predicate, copy in zip(predicates, copies, strict=True)]))


def _copies(value: Any, count: int) -> Sequence[Any]:
    """Return a value several times, of which an iterator is read by each comparison from its beginning."""
    return itertools.tee(value, count) if isinstance(value, Iterator) else [value] * count


def _holds(predicate: Predicate, *values: Any) -> bool:
    """Return whether a predicate holds. One that returns nothing raises an exception if it does not."""
    try:
        result = predicate(*values)
        return result is None or bool(result)
    except Exception:  # noqa: BLE001 - objects of a submission raise anything
        return False
