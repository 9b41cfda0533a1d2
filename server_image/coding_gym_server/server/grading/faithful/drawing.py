"""Draws the options of questions: which values a submission chooses from, and in which order."""

from __future__ import annotations

import hashlib
import hmac
import random

__all__ = ["Dice"]

_MAX_OPTIONS = 8
_TRIES = 60


class Dice:
    """Random numbers that are the same whenever a task is asked about with the same key.

    Who sees the options of several draws sees what recurs in them: so each question has one draw.

    Args:
        key: The secret.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key

    def of(self, *purpose: object) -> random.Random:
        """Return the random numbers for a purpose."""
        return random.Random(hmac.digest(self._key, repr(purpose).encode(), hashlib.sha256))  # noqa: S311 - of a secret

    def options(self, values: list[bytes], distances: list[list[float]]) -> list[bytes]:
        """Draw options of which the first value is one, such that its place among them tells nothing.

        The rank of the first value by its distance from the other options is uniform: it is in their center as rarely as at
        their edge. All options are different, so with a few values, there may be only two options.

        The same options are always in the same order, whichever of them is right: True and False in one, and False and True in
        another would tell which of them is.

        Args:
            values: The values.
            distances: How different they are: a row for each.

        Returns:
            The options in random order; empty if the first value has no alternative.
        """
        rng = self.of(values[0])
        for size in range(min(_MAX_OPTIONS, len(distances)), 1, -1):
            by_rank = _by_rank(distances, size, rng)
            # Two have the same distance from each other.
            if len(by_rank) == size or (size == 2 and by_rank):
                chosen = sorted(values[index] for index in by_rank[rng.choice(sorted(by_rank))])
                return self.of("order", chosen).sample(chosen, len(chosen))
        return []


def _by_rank(distances: list[list[float]], size: int, rng: random.Random) -> dict[int, list[int]]:
    """Return one choice of values for each rank that the first one can have among them."""
    found: dict[int, list[int]] = {}
    for _ in range(_TRIES if size > 2 else 1):
        chosen = [0, *rng.sample(range(1, len(distances)), size - 1)]
        totals = [sum(distances[one][other] for other in chosen) for one in chosen]
        ties = totals.count(totals[0])
        found.setdefault(sum(total < totals[0] for total in totals) + rng.randrange(ties), chosen)
    return found
