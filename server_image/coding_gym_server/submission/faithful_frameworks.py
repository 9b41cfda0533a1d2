"""Runs one test of a module that shares its namespace with the submission, as ``unittest``, ``pytest`` or a plain call does."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import types
import unittest
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

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


def run(
    module: types.ModuleType, framework: Framework, test: CollectedTest, earlier: Sequence[CollectedTest] = ()
) -> RunOutcome:
    """Run a test of an executed module, after earlier ones whose outcomes do not matter."""
    match framework:
        case Framework.UNITTEST:
            return _run_unittest(module, test, earlier)
        case Framework.PYTEST:
            from coding_gym_server.submission.faithful_pytest import run_function

            for other in earlier:
                run_function(module, other)
            return run_function(module, test)
        case _:
            for other in earlier:
                with contextlib.suppress(Exception):
                    _run_function(getattr(module, other.function))
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


def _run_unittest(module: types.ModuleType, test: CollectedTest, earlier: Sequence[CollectedTest]) -> RunOutcome:
    found = {_id_of(case): case for case in _cases(unittest.defaultTestLoader.loadTestsFromModule(module))}
    if test not in found:
        return RunOutcome.ERROR
    result = unittest.TestResult()
    # The suite also runs the fixtures of classes and of the module.
    unittest.TestSuite(found[item] for item in (*earlier, test) if item in found).run(result)
    others = {found[item] for item in earlier if item in found}

    def concerns_test(reports: Iterable[tuple[Any, str]]) -> bool:
        # A report about a subtest has its test; one about a fixture has none.
        return any(getattr(case, "test_case", case) not in others for case, _ in reports)

    if concerns_test(result.errors):
        return RunOutcome.ERROR
    if concerns_test(result.failures) or any(case not in others for case in result.unexpectedSuccesses):
        return RunOutcome.FAILED
    return RunOutcome.SKIPPED if concerns_test(result.skipped) else RunOutcome.PASSED


def _cases(suite: Iterable[unittest.TestCase | unittest.TestSuite]) -> Iterator[unittest.TestCase]:
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from _cases(item)
        else:
            yield item


def _id_of(case: unittest.TestCase) -> CollectedTest:
    return CollectedTest(type(case).__name__, case._testMethodName)
