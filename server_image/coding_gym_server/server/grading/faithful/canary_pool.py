"""The tests of a task with their canaries, and the draw of those that a submission must face."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain

from coding_gym_server.submission.faithful_messages import CollectedTest, Framework

__all__ = ["Canary", "CanaryPool", "Draw", "GuardedTest", "canaries_per_test"]

_MIN_PER_TEST = 2
_MIN_IN_ALL = 8
"""A program that can decide all tests but one, and guesses that one, must not win often: few tests have more canaries each."""

_MIN_STRONG = 4
"""With fewer in the pool, a program that recognizes canaries is too likely to recognize all of them."""


def canaries_per_test(tests: int) -> int:
    """Return how many canaries of each test a submission faces, if there are enough."""
    return max(_MIN_PER_TEST, -(-_MIN_IN_ALL // max(tests, 1)))


@dataclass
class Canary:
    """A test that the reference does not pass.

    Attributes:
        source: The source code of its module.
        is_strong: Whether it looks like a test that people write.
        is_confirmed: Whether the reference has failed it so often that the result does not depend on chance.
    """

    source: str
    is_strong: bool
    is_confirmed: bool = False


@dataclass
class GuardedTest:
    """A test with its canaries.

    Attributes:
        id: The test; None if the module itself is the test.
        name: Its name in results.
        framework: What runs it.
        source: The source code of its module.
        earlier: Tests that run before it, because the reference does not pass it alone.
        is_skipped: Whether it is skipped for the reference.
        canaries: Its canaries.
    """

    id: CollectedTest | None
    name: str
    framework: Framework
    source: str
    earlier: tuple[CollectedTest, ...] = ()
    is_skipped: bool = False
    canaries: list[Canary] = field(default_factory=list)


@dataclass(frozen=True)
class Draw:
    """A test, or a canary of one, that a submission faces.

    Attributes:
        number: Index of the test.
        source: The source code of its module.
        canary: The canary, None for the test itself.
    """

    number: int
    source: str
    canary: Canary | None = None

    @property
    def is_canary(self) -> bool:
        """Whether it must fail."""
        return self.canary is not None


@dataclass(frozen=True)
class CanaryPool:
    """The tests of a task with their canaries.

    Attributes:
        tests: The tests.
    """

    tests: Sequence[GuardedTest]

    @property
    def is_weak(self) -> bool:
        """Whether there are too few canaries to detect forged results reliably."""
        strong = sum(canary.is_strong for guarded in self.tests for canary in guarded.canaries)
        guarded = [guarded for guarded in self.tests if not guarded.is_skipped]
        return strong < _MIN_STRONG or not all(item.canaries for item in guarded)

    def draw(self, rng: random.Random) -> list[Draw]:
        """Return all tests and some of their canaries, in random order."""
        count = canaries_per_test(len(self.tests))
        drawn = chain.from_iterable(self._draw_of(number, count, rng) for number in range(len(self.tests)))
        return rng.sample(items := list(drawn), len(items))

    def _draw_of(self, number: int, count: int, rng: random.Random) -> list[Draw]:
        guarded = self.tests[number]
        strong = [canary for canary in guarded.canaries if canary.is_strong]
        filler = [canary for canary in guarded.canaries if not canary.is_strong]
        chosen = rng.sample(strong, min(count, len(strong)))
        chosen += rng.sample(filler, min(count - len(chosen), len(filler)))
        return [Draw(number, guarded.source), *(Draw(number, canary.source, canary) for canary in chosen)]
