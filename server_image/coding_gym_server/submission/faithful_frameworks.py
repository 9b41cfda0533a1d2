"""Runs one test of a module that shares its namespace with the submission, as ``unittest``, ``pytest`` or a plain call does."""

from __future__ import annotations

import asyncio
import inspect
import types
import unittest
from collections.abc import Iterable, Iterator

from coding_gym_server.submission.faithful_messages import CollectedTest, Framework, RunOutcome

__all__ = ["collect", "run"]


def collect(module: types.ModuleType, framework: Framework) -> list[CollectedTest]:
    """Return the tests of an executed module, in the order in which its framework runs them."""
    match framework:
        case Framework.UNITTEST:
            cases = _cases(unittest.defaultTestLoader.loadTestsFromModule(module))
            found = [_id_of(case) for case in cases]
        case Framework.PYTEST:
            # Imported where it is used: few tests need it.
            from coding_gym_server.submission.faithful_pytest import collect_functions

            found = collect_functions(module)
        case _:
            functions = (name for name, value in vars(module).items() if isinstance(value, types.FunctionType))
            found = [CollectedTest("", name) for name in functions if name.startswith("test")]
    return list(dict.fromkeys(found))


def run(module: types.ModuleType, framework: Framework, test: CollectedTest) -> RunOutcome:
    """Run a test of an executed module."""
    match framework:
        case Framework.UNITTEST:
            return _run_unittest(module, test)
        case Framework.PYTEST:
            from coding_gym_server.submission.faithful_pytest import run_function

            return run_function(module, test)
        case _:
            return _run_function(getattr(module, test.function))


def _run_function(function: types.FunctionType) -> RunOutcome:
    try:
        result = function()
        if inspect.iscoroutine(result):
            asyncio.run(result)
    except unittest.SkipTest:
        return RunOutcome.SKIPPED
    except AssertionError:
        return RunOutcome.FAILED
    return RunOutcome.PASSED


def _run_unittest(module: types.ModuleType, test: CollectedTest) -> RunOutcome:
    cases = [case for case in _cases(unittest.defaultTestLoader.loadTestsFromModule(module)) if _id_of(case) == test]
    result = unittest.TestResult()
    # The suite also runs the fixtures of the class and of the module.
    unittest.TestSuite(cases).run(result)
    if result.errors or not cases:
        return RunOutcome.ERROR
    if not result.wasSuccessful():
        return RunOutcome.FAILED
    return RunOutcome.SKIPPED if result.skipped else RunOutcome.PASSED


def _cases(suite: Iterable[unittest.TestCase | unittest.TestSuite]) -> Iterator[unittest.TestCase]:
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from _cases(item)
        else:
            yield item


def _id_of(case: unittest.TestCase) -> CollectedTest:
    return CollectedTest(type(case).__name__, case._testMethodName)
