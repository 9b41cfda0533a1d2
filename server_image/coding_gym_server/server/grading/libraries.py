"""The libraries that the processes of a grading worker have imported before a submission arrives."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from coding_gym_server.protocol.grading import Asserts, Programs, Submission

__all__ = ["are_light", "libraries_in", "mentioned_libraries"]

_LIGHT = sys.stdlib_module_names | {"pytest"}
_HEAVY = ("numpy", "pandas", "scipy", "sklearn", "matplotlib")
"""Libraries whose import takes longer than most tests."""


def are_light(libraries: frozenset[str]) -> bool:
    """Return whether modules use little memory, so that a process that has not imported others forks faster."""
    return all(name.partition(".")[0] in _LIGHT for name in libraries)


def mentioned_libraries(submission: Submission) -> frozenset[str]:
    """Return the names of the heavy libraries that a submission or its tests mention, which few do without importing them."""
    return libraries_in(*_sources(submission))


def libraries_in(*sources: str) -> frozenset[str]:
    """Return the names of the heavy libraries that source code mentions."""
    return frozenset(name for name in _HEAVY if any(name in source for source in sources))


def _sources(submission: Submission) -> Iterator[str]:
    yield submission.code
    match submission.tests:
        case Asserts(setup=setup, cases=cases):
            yield setup
            yield from cases
        case Programs():
            # Their tests are data.
            return
        case tests:
            yield tests.source
