"""Runs the tests of a module as ``unittest`` or plain calls do."""

from __future__ import annotations

import ast
import asyncio
import inspect
import types
import unittest
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from coding_gym_server.protocol.grading import CaseOutcome

__all__ = ["needs_pytest", "outcome_of", "run_module"]

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_FIXTURES = {"setup_module", "teardown_module", "setup_function", "teardown_function"}


def needs_pytest(tree: ast.Module) -> bool:
    """Return whether a module of tests is for ``pytest``: imports it, or has classes or functions that only that can run."""
    if any(name.partition(".")[0] == "pytest" for node in ast.walk(tree) for name in _imported_names(node)):
        return True
    return not any(map(_is_test_case, tree.body)) and any(map(_is_for_pytest, tree.body))


def run_module(module: types.ModuleType, *, without: Mapping[str, Any]) -> dict[str, CaseOutcome]:
    """Run the tests of an executed module, in order.

    Args:
        module: The module.
        without: Names and values of the submission, whose classes and functions are no tests.

    Returns:
        Outcomes by name: a class and a method, or a function. A skipped test has passed.
    """
    # A dead object may have the id of a new one.
    own = {id(value): value for value in without.values()}
    cases = [case for case in _cases(unittest.defaultTestLoader.loadTestsFromModule(module)) if id(type(case)) not in own]
    result = _Result()
    # A suite also runs the fixtures of classes and of the module.
    unittest.TestSuite(cases).run(result)
    for name, value in list(vars(module).items()):
        if isinstance(value, types.FunctionType) and name.startswith("test") and id(value) not in own:
            result.outcomes[name] = outcome_of(_run_function, value)
    return result.outcomes


def outcome_of(test: Callable[[Any], None], argument: Any) -> CaseOutcome:
    """Return the outcome of a test that is a call."""
    try:
        test(argument)
    except unittest.SkipTest:
        return CaseOutcome.PASSED
    except BaseException as error:  # noqa: BLE001 - tests and submissions raise anything
        return _outcome(error)
    return CaseOutcome.PASSED


def _outcome(error: BaseException | None) -> CaseOutcome:
    return CaseOutcome.FAILED if isinstance(error, AssertionError) else CaseOutcome.ERROR


def _run_function(function: types.FunctionType) -> None:
    result = function()
    if inspect.iscoroutine(result):
        asyncio.run(result)


class _Result(unittest.TestResult):
    """Outcomes by name of the test."""

    def __init__(self) -> None:
        super().__init__()
        self.outcomes: dict[str, CaseOutcome] = {}

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self.outcomes[_name(test)] = CaseOutcome.PASSED

    def addError(self, test: unittest.TestCase, err: Any) -> None:
        # The test is a placeholder if a fixture of a class or of the module has failed.
        self.outcomes[_name(test)] = CaseOutcome.ERROR

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        self.outcomes[_name(test)] = CaseOutcome.FAILED

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: Any) -> None:
        if err is not None:
            self.outcomes[_name(test)] = _outcome(err[1])

    def addUnexpectedSuccess(self, test: unittest.TestCase) -> None:
        self.outcomes[_name(test)] = CaseOutcome.FAILED


def _name(test: unittest.TestCase) -> str:
    method = getattr(test, "_testMethodName", None)
    return str(test) if method is None else f"{type(test).__name__}.{method}"


def _cases(suite: Iterable[unittest.TestCase | unittest.TestSuite]) -> Iterator[unittest.TestCase]:
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from _cases(item)
        else:
            yield item


def _imported_names(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module or ""] if isinstance(node, ast.ImportFrom) else []


def _is_test_case(node: ast.stmt) -> bool:
    return isinstance(node, ast.ClassDef) and any("TestCase" in ast.unparse(base) for base in node.bases)


def _is_for_pytest(node: ast.stmt) -> bool:
    """Return whether a statement is a class of tests, or a fixture or a test function with parameters."""
    if isinstance(node, ast.ClassDef):
        has_tests = any(isinstance(item, _FUNCTIONS) and item.name.startswith("test") for item in node.body)
        return has_tests and node.name.startswith("Test")
    if not isinstance(node, _FUNCTIONS):
        return False
    arguments = node.args
    has_required = len(arguments.posonlyargs) + len(arguments.args) > len(arguments.defaults) or None in arguments.kw_defaults
    return node.name in _FIXTURES or (node.name.startswith("test") and has_required)
