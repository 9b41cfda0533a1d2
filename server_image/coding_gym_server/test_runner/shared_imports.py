"""Imports of tests that the submission has, too: in plain Python, both are one file unless the tests import the submission."""

from __future__ import annotations

import ast
import functools

from coding_gym_server.packages.importing import imports_module
from coding_gym_server.protocol.grading import Asserts, UnitTests

__all__ = ["shared_imports"]

_MAX_TESTS = 256
_UNPARSABLE = (SyntaxError, ValueError, OverflowError, RecursionError, MemoryError)


@functools.lru_cache(_MAX_TESTS)
def shared_imports(tests: Asserts | UnitTests) -> tuple[str, ...]:
    """Return the import statements of tests that end up in the module of the submission, where its functions find the names."""
    if isinstance(tests, Asserts):
        sources = [tests.whole] if tests.whole else [tests.setup, *tests.cases]
    else:
        sources = [tests.source]
    found = []
    for source in sources:
        if "import" not in source:
            continue
        try:
            tree = ast.parse(source)
        except _UNPARSABLE:
            return ()
        if isinstance(tests, UnitTests) and imports_module(tree, tests.module):
            return ()
        found += [ast.unparse(node) for node in tree.body if _is_shared(node)]
    return tuple(dict.fromkeys(found))


def _is_shared(node: ast.stmt) -> bool:
    if isinstance(node, ast.ImportFrom):
        return not node.level and node.module != "__future__"
    return isinstance(node, ast.Import)
