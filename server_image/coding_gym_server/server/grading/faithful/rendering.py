"""The tests of a task, rewritten so that their assertions ask."""

from __future__ import annotations

import ast
from collections.abc import Callable

import msgspec

from coding_gym_server.protocol.grading import Asserts, UnitTests
from coding_gym_server.server.grading.faithful.neutral import Names, forget_unused, strip
from coding_gym_server.server.grading.faithful.statements import Assertion, Form, begin, replace_assertions

__all__ = ["UNPARSABLE", "AskingTests"]

UNPARSABLE = (SyntaxError, ValueError, RecursionError)
"""Exceptions of the parser, and of writing a syntax tree as source code."""


class AskingTests:
    """Tests whose assertions ask, under neutral names.

    Args:
        tests: The tests.

    Attributes:
        names: The names.
        assertions: The assertions, by number.

    Raises:
        UNPARSABLE: If they are not valid Python.
    """

    def __init__(self, tests: Asserts | UnitTests) -> None:
        self.names = Names(_parse(tests))
        self.assertions: list[Assertion] = []
        self._tests = tests

        def add(_: int, assertion: Assertion) -> Form:
            self.assertions.append(assertion)
            return assertion.form

        self.source(add)

    def source(self, choose: Callable[[int, Assertion], Form]) -> Asserts | UnitTests:
        """Return the tests with what takes the place of their assertions, and without what they then do not need.

        Args:
            choose: Returns what takes the place of an assertion with a number.
        """
        modules = _parse(self._tests)
        site = 0
        for module in modules:
            strip(module)
            self.names.neutralize(module)
            site = replace_assertions(module, site, choose)
        forget_unused(modules)
        if isinstance(self._tests, Asserts):
            setup, *cases = modules
            for number, case in enumerate(cases):
                case.body.insert(0, begin(str(number)))
            return Asserts(setup=_unparse(setup), cases=tuple(map(_unparse, cases)))
        return msgspec.structs.replace(self._tests, source=_unparse(modules[0]))


def _parse(tests: Asserts | UnitTests) -> list[ast.Module]:
    sources = (tests.setup, *tests.cases) if isinstance(tests, Asserts) else (tests.source,)
    return [ast.parse(source) for source in sources]


def _unparse(module: ast.Module) -> str:
    return ast.unparse(ast.fix_missing_locations(module))
