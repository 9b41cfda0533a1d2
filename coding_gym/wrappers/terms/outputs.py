"""Terms for the output of a step."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Callable, Sequence
from typing import Literal

from coding_gym._validation import check_one_of
from coding_gym.errors import ConfigurationError
from coding_gym.wrappers.terms.base import RewardTerm, Step

__all__ = ["Novelty", "OutputMatch"]

_STREAMS = ("stdout", "stderr")

_MAX_CHARACTER_PAIRS = 1_000_000
"""Longer texts are compared line by line: the time is quadratic in their length, 0.3 s at this limit."""


class Novelty(RewardTerm):
    """Returns 1 for output that is new in the episode, 0 for repeated or empty output.

    Args:
        streams: Streams to compare, jointly: ``stdout``, ``stderr`` or both. With ``stderr``, trivial changes of a traceback
            count as new output.

    Raises:
        ConfigurationError: If a stream is unknown.

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
        # Hashes, since an episode may print a lot.
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
    r"""Compares the output of a step with the expected output, 0 to 1.

    Args:
        expected: Expected output.
        metric: ``exact`` (1 if equal, else 0), ``normalised`` (the same, but ignoring trailing white space of lines and empty
            lines at the end), or ``similarity``: ``2 * M / T``, where T is the total length of both normalised texts and M that
            of the matching blocks (``difflib.SequenceMatcher``), in characters, or in lines if the product of the lengths
            exceeds a million.
        stream: ``stdout`` or ``stderr``.

    Raises:
        ConfigurationError: If the metric or the stream is unknown.

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
        check_one_of("metric", metric, _METRICS)
        _check_stream("stream", stream)
        self._expected = expected
        self._metric = metric
        self._stream = stream

    def __call__(self, step: Step) -> float:
        return _METRICS[self._metric](getattr(step, self._stream), self._expected)


def _exact(text: str, expected: str) -> float:
    return float(text == expected)


def _normalized(text: str, expected: str) -> float:
    return float(_normalize(text) == _normalize(expected))


def _similarity(text: str, expected: str) -> float:
    text, expected = _normalize(text), _normalize(expected)
    if len(text) * len(expected) <= _MAX_CHARACTER_PAIRS:
        # Without autojunk, which ignores frequent characters in texts of 200 and more.
        return difflib.SequenceMatcher(None, text, expected, autojunk=False).ratio()
    return difflib.SequenceMatcher(None, text.split("\n"), expected.split("\n")).ratio()


def _normalize(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.splitlines()).rstrip("\n")


def _check_stream(option: str, stream: object) -> None:
    if stream not in _STREAMS:
        message = f"Expected {option}= to be of {', '.join(_STREAMS)}, got {stream!r}"
        raise ConfigurationError(message)


_METRICS: dict[str, Callable[[str, str], float]] = {"exact": _exact, "normalised": _normalized, "similarity": _similarity}
