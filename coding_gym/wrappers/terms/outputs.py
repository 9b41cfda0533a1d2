"""Terms that look at what a step printed."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Callable, Sequence
from typing import Literal

from coding_gym.errors import ConfigurationError
from coding_gym.wrappers.terms.base import RewardTerm, Step

__all__ = ["Novelty", "OutputMatch"]

_STREAMS = ("stdout", "stderr")

_MOST_CHARACTER_PAIRS = 1_000_000
"""Longer texts are compared line by line: the time goes with the square of their length, 0.3 s for so many."""


class Novelty(RewardTerm):
    """1 for output that the episode has not seen yet, 0 for a repetition and for none.

    Args:
        streams: What is looked at, together: ``stdout``, ``stderr`` or both. Tracebacks are easily made new ones.

    Raises:
        ConfigurationError: There is no such stream.

    Example:
        >>> term = Novelty()
        >>> [term(Step(action="", observation={"stdout": text}, info={})) for text in ("1", "2", "1", "")]
        [1.0, 1.0, 0.0, 0.0]
    """

    name = "novelty"

    def __init__(self, *, streams: Sequence[str] = ("stdout",)) -> None:
        for stream in streams:
            _check_stream("streams", stream)
        self._streams = tuple(streams)
        # Hashes: an episode may print a lot.
        self._seen: set[bytes] = set()

    def reset(self) -> None:
        self._seen = set()

    def __call__(self, step: Step) -> float:
        outputs = [getattr(step, stream) for stream in self._streams]
        if not any(outputs):
            return 0.0
        digest = hashlib.sha256("\0".join(outputs).encode()).digest()
        is_new = digest not in self._seen
        self._seen.add(digest)
        return float(is_new)


class OutputMatch(RewardTerm):
    r"""How well the output of a step matches the expected one, 0 to 1.

    Args:
        expected: What should be printed.
        metric: ``exact`` (1 if equal, else 0), ``normalised`` (the same after trailing white space of each line, and empty
            lines at the end, have been taken off), or ``similarity``: ``2 * M / T``, where T is the length of both normalised
            texts together and M that of the blocks that match (``difflib.SequenceMatcher``). It counts characters, or whole
            lines if the product of the lengths is over a million.
        stream: ``stdout`` or ``stderr``.

    Raises:
        ConfigurationError: There is no such metric or stream.

    Example:
        >>> printed = Step(action="", observation={"stdout": "hallo \n"}, info={})
        >>> OutputMatch("hallo\n")(printed), OutputMatch("hallo", metric="normalised")(printed)
        (0.0, 1.0)
        >>> OutputMatch("hello", metric="similarity")(printed)
        0.8
    """

    name = "output"

    def __init__(
        self,
        expected: str,
        *,
        metric: Literal["exact", "normalised", "similarity"] = "exact",
        stream: Literal["stdout", "stderr"] = "stdout",
    ) -> None:
        if metric not in _METRICS:
            message = f"Expected metric= to be one of {', '.join(_METRICS)}, got {metric!r}"
            raise ConfigurationError(message)
        _check_stream("stream", stream)
        self._expected = expected
        self._metric = metric
        self._stream = stream

    def __call__(self, step: Step) -> float:
        return _METRICS[self._metric](getattr(step, self._stream), self._expected)


def _exact(text: str, expected: str) -> float:
    return float(text == expected)


def _normalised(text: str, expected: str) -> float:
    return float(_normalise(text) == _normalise(expected))


def _similarity(text: str, expected: str) -> float:
    text, expected = _normalise(text), _normalise(expected)
    if len(text) * len(expected) <= _MOST_CHARACTER_PAIRS:
        # Without autojunk, which takes every frequent character of a text of 200 and more for noise.
        return difflib.SequenceMatcher(None, text, expected, autojunk=False).ratio()
    return difflib.SequenceMatcher(None, text.split("\n"), expected.split("\n")).ratio()


def _normalise(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.splitlines()).rstrip("\n")


def _check_stream(option: str, stream: object) -> None:
    if stream not in _STREAMS:
        message = f"Expected {option}= to be of {', '.join(_STREAMS)}, got {stream!r}"
        raise ConfigurationError(message)


_METRICS: dict[str, Callable[[str, str], float]] = {"exact": _exact, "normalised": _normalised, "similarity": _similarity}
