"""Points of groups of cases, while the cases are run."""

from __future__ import annotations

from collections.abc import Sequence

from coding_gym_server.protocol.grading import CaseGroup

__all__ = ["GroupPoints"]


class GroupPoints:
    """The points of groups, each of which has those of its worst case.

    Args:
        groups: The groups.
    """

    def __init__(self, groups: Sequence[CaseGroup]) -> None:
        self._groups = groups
        self._scores = [1.0] * len(groups)

    def are_lost(self, number: int) -> bool:
        """Return whether a case is in groups, and none of them can get points any more."""
        scores = [score for group, score in zip(self._groups, self._scores, strict=True) if number in group.cases]
        return bool(scores) and not any(scores)

    def add(self, number: int, score: float) -> None:
        """Add the score of a case, 0 to 1."""
        self._scores = [
            min(before, score) if number in group.cases else before
            for group, before in zip(self._groups, self._scores, strict=True)
        ]

    @property
    def share(self) -> float | None:
        """Fraction of all points that the submission has earned, from 0 to 1; None if there are no groups."""
        if not self._groups:
            return None
        points = sum(group.points * score for group, score in zip(self._groups, self._scores, strict=True))
        return points / sum(group.points for group in self._groups)
