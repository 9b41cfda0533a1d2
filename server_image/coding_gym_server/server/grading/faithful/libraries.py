"""The modules that tests and a reference import, which processes have imported before a submission arrives."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from coding_gym_server.protocol.grading import Asserts, Submission, UnitTests
from coding_gym_server.server.grading.faithful.splitting import UNPARSABLE, parse
from coding_gym_server.submission.faithful_messages import Framework

__all__ = ["libraries_of"]

_SUBMISSION = "solution"


def libraries_of(submission: Submission) -> frozenset[str]:
    """Return the names of the modules that the tests and the reference of a submission import, installed or not."""
    assert isinstance(submission.tests, Asserts | UnitTests)
    tests = submission.tests.setup if isinstance(submission.tests, Asserts) else submission.tests.source
    names = {name for source in (tests, submission.reference or "") for name in _imported(source)}
    if isinstance(submission.tests, UnitTests) and _is_for_pytest(submission.tests):
        names.add("pytest")
    return frozenset(name for name in names if name.partition(".")[0] != _SUBMISSION)


def _is_for_pytest(tests: UnitTests) -> bool:
    try:
        return parse(tests)[1] is Framework.PYTEST
    except UNPARSABLE:
        return False


def _imported(source: str) -> Iterator[str]:
    try:
        tree = ast.parse(source)
    except UNPARSABLE:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            # They may be modules, too.
            yield from (f"{node.module}.{alias.name}" for alias in node.names if alias.name != "*")
