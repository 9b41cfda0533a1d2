"""The libraries that the processes of a grading worker have imported before a submission arrives."""

from __future__ import annotations

import sys

from coding_gym_server.protocol.grading import Asserts, Submission, UnitTests

__all__ = ["are_light", "libraries_in", "mentioned_libraries"]

_LIGHT = sys.stdlib_module_names | {"pytest"}
_FRAMEWORKS = ("pytest", "unittest")
_HEAVY = ("numpy", "pandas", "scipy", "sklearn", "matplotlib")
"""Libraries whose import takes longer than most tests."""


def are_light(libraries: frozenset[str]) -> bool:
    """Return whether modules use little memory, so that a process that has not imported others forks faster."""
    return all(name.partition(".")[0] in _LIGHT for name in libraries)


def mentioned_libraries(submission: Submission) -> frozenset[str]:
    """Return the names of the heavy libraries that a submission or its tests mention, which few do without importing them.

    With them come the frameworks that the tests mention, for submissions that are run together with their tests.
    """
    found = libraries_in(submission.code, submission.reference or "")
    match submission.tests:
        case Asserts(setup=setup, cases=cases):
            return found | libraries_in(setup, *cases)
        case UnitTests(source=source):
            return found | libraries_in(source) | {name for name in _FRAMEWORKS if name in source}
    # The tests of programs are data.
    return found


def libraries_in(*sources: str) -> frozenset[str]:
    """Return the names of the heavy libraries that source code mentions."""
    return frozenset(name for name in _HEAVY if any(name in source for source in sources))
