"""Collects and runs test functions with ``pytest``, in a module that has been executed already."""

from __future__ import annotations

import contextlib
import io
import tempfile
import types
from pathlib import Path

import pytest

from coding_gym_server.submission.faithful_messages import CollectedTest, RunOutcome

__all__ = ["collect_functions", "run_function", "warm_up"]

# Modules that have been executed cannot be rewritten.
_OPTIONS = ("-q", "-p", "no:cacheprovider", "--import-mode=importlib", "--assert=plain")


def collect_functions(module: types.ModuleType) -> list[CollectedTest]:
    """Return the test functions of a module. Those with parameters are one test each."""
    plugin = _Plugin(module)
    _pytest(plugin, "--collect-only")
    return plugin.collected


def run_function(module: types.ModuleType, test: CollectedTest) -> RunOutcome:
    """Run a test function of a module, with all its parameters."""
    plugin = _Plugin(module, test)
    exit_code = _pytest(plugin)
    if exit_code not in {pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED}:
        return RunOutcome.ERROR
    if plugin.failed_calls or plugin.other_failures:
        return RunOutcome.ERROR if plugin.other_failures else RunOutcome.FAILED
    return RunOutcome.PASSED if plugin.passed_calls else RunOutcome.SKIPPED


def warm_up() -> None:
    """Run a test, so that processes that are forked later have imported what ``pytest`` and its plugins import."""
    module = types.ModuleType("warm_up")
    exec("def test(): pass", vars(module))
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "warm_up.py")
        path.touch()
        module.__file__ = str(path)
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            run_function(module, CollectedTest("", "test"))
    # It depends on the environment of the process that uses it.
    tempfile.tempdir = None


def _pytest(plugin: _Plugin, *options: str) -> int:
    path = Path(str(plugin.module.__file__))
    # The directories above it may not be readable.
    return pytest.main([*_OPTIONS, *options, f"--rootdir={path.parent}", str(path)], plugins=[plugin])


class _Plugin:
    """Plugin that replaces the import of a module by the module, and selects a test.

    Args:
        module: The module.
        test: The test to run; None for all.

    Attributes:
        module: The module.
        collected: The tests of the module.
        passed_calls: Number of calls that passed.
        failed_calls: Number of calls that raised an ``AssertionError``.
        other_failures: Number of calls that raised something else, and of failed fixtures.
    """

    def __init__(self, module: types.ModuleType, test: CollectedTest | None = None) -> None:
        self.collected: list[CollectedTest] = []
        self.passed_calls = 0
        self.failed_calls = 0
        self.other_failures = 0
        self.module = module
        self._test = test

    @pytest.hookimpl
    def pytest_pycollect_makemodule(self, module_path: Path, parent: pytest.Collector) -> pytest.Module:
        node: _ExecutedModule = _ExecutedModule.from_parent(parent, path=module_path)
        node.executed = self.module
        return node

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        self.collected = list(dict.fromkeys(map(_id_of, items)))
        if self._test is not None:
            items[:] = [item for item in items if _id_of(item) == self._test]

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        # An expected failure is reported as skipped.
        self.passed_calls += report.when == "call" and (report.passed or hasattr(report, "wasxfail"))

    @pytest.hookimpl
    def pytest_exception_interact(self, call: pytest.CallInfo[None]) -> None:
        is_assertion = call.when == "call" and isinstance(_raised(call), AssertionError | pytest.fail.Exception)
        self.failed_calls += is_assertion
        self.other_failures += not is_assertion


class _ExecutedModule(pytest.Module):
    """Module node whose module has been executed already."""

    executed: types.ModuleType

    def _getobj(self) -> types.ModuleType:
        return self.executed


def _raised(call: pytest.CallInfo[None]) -> BaseException | None:
    return None if call.excinfo is None else call.excinfo.value


def _id_of(item: pytest.Item) -> CollectedTest:
    kind = getattr(item, "cls", None)
    return CollectedTest("" if kind is None else kind.__name__, getattr(item, "originalname", None) or item.name)
