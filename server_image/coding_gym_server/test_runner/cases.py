"""Execution of tests, in a process that does not hold the submission."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import functools
import inspect
import io
import linecache
import sys
import time
import traceback
import types
import unittest
from collections.abc import Callable
from typing import Any

from coding_gym_server.ipc.text import source_lines
from coding_gym_server.protocol.grading import SUBMISSION_MODULE, Asserts, CaseOutcome, CaseResult, UnitTests
from coding_gym_server.remote_objects.exchange import PeerConnection, PeerGoneError
from coding_gym_server.test_runner import assertions
from coding_gym_server.test_runner.namespace import Namespace
from coding_gym_server.test_runner.policy import ORIGIN, TESTS_MODULE
from coding_gym_server.test_runner.shared_imports import shared_imports

__all__ = ["compile_ahead", "run_cases"]

_FILE = "<tests>"
_PREAMBLE = "<test preamble>"
_FILE_OF_CASE = "<test {}>"
_FILES = "<test"
_MAX_SOURCES = 1024
_MAX_AHEAD_CHARS = 1 << 20
_MAX_MESSAGE_CHARS = 2000
_Case = Callable[[], None]


def compile_ahead(tests: Asserts | UnitTests) -> None:
    """Compile tests, which executes nothing, for processes that are forked later.

    Args:
        tests: The tests. Those that cannot be compiled, or whose size makes it expensive to keep them, are left to the process
            that runs them.
    """
    if isinstance(tests, Asserts):
        sources = [(tests.setup, _FILE), *((case, _FILE_OF_CASE.format(number)) for number, case in enumerate(tests.cases))]
    else:
        sources = [(tests.source, _FILE)]
    sources.append((tests.preamble, _PREAMBLE))
    if sum(len(source) for source, _ in sources) > _MAX_AHEAD_CHARS:
        return
    shared_imports(tests)
    for source, file in sources:
        with contextlib.suppress(SyntaxError, ValueError, OverflowError, RecursionError, MemoryError):
            _compile(source, file)


def run_cases(tests: Asserts | UnitTests, namespace: Namespace, connection: PeerConnection) -> list[CaseResult]:
    """Run tests in order, regardless of their individual outcomes, until the submission is gone.

    Args:
        tests: The tests.
        namespace: Their global variables.
        connection: Connection with the submission. Results after it breaks do not count.
    """
    assertions.take()
    name_of_submission = tests.module if isinstance(tests, UnitTests) else SUBMISSION_MODULE
    sys.modules[name_of_submission] = namespace.solution
    names: list[str] = []
    results: list[CaseResult] = []
    try:
        names, cases = _asserts(tests, namespace) if isinstance(tests, Asserts) else _unit_tests(tests, namespace)
        for name, case in zip(names, cases, strict=True):
            results.append(_run(name, case, connection))
            if connection.is_broken:
                break
    except _SetupError as failed:
        names, error = failed.args
        results.append(_case_result(names[0], error, 0.0, connection))
    finally:
        del sys.modules[name_of_submission]
    return results + [CaseResult(name=name, outcome=CaseOutcome.NOT_RUN) for name in names[len(results) :]]


class _SetupError(Exception):
    """The setup before the first test failed; with the names of the tests that would have been run, and what was raised."""


def _asserts(tests: Asserts, namespace: Namespace) -> tuple[list[str], list[_Case]]:
    names = [str(number) for number in range(len(tests.cases))]
    try:
        for source, file in ((tests.preamble, _PREAMBLE), (tests.setup, _FILE)):
            if source:
                _execute(source, namespace, file)
    except BaseException as error:
        raise _SetupError(names, error) from error
    cases = zip(tests.cases, map(_FILE_OF_CASE.format, names), strict=True)
    return names, [functools.partial(_execute, source, namespace, file) for source, file in cases]


def _unit_tests(tests: UnitTests, namespace: Namespace) -> tuple[list[str], list[_Case]]:
    names = [TESTS_MODULE]
    found: list[tuple[str, _Case]] = []
    try:
        tree = ast.parse(tests.source)
        names = _names_in_source(tree) or names
        if tests.preamble:
            _execute(tests.preamble, namespace, _PREAMBLE)
        namespace.bind_free_names(tests.source)
        _execute(tests.source, namespace)
        if "setUpModule" in namespace:
            namespace["setUpModule"]()
        for name, value in list(namespace.items()):
            if getattr(value, "__module__", None) != TESTS_MODULE:
                continue
            if isinstance(value, type) and issubclass(value, unittest.TestCase):
                found += _methods(value)
            elif isinstance(value, types.FunctionType) and name.startswith("test"):
                found.append((name, functools.partial(_run_function, value)))
    except BaseException as error:
        raise _SetupError(names, error) from error
    if not found:
        raise _SetupError(names, ValueError("there is no test in the module of tests"))
    cases = [case for _, case in found]
    cases[-1] = functools.partial(_run_last, cases[-1], namespace)
    return [name for name, _ in found], cases


def _run_last(case: _Case, namespace: Namespace) -> None:
    """Run the last test of a module, and tear the module down."""
    with contextlib.ExitStack() as stack:
        stack.callback(unittest.doModuleCleanups)
        if "tearDownModule" in namespace:
            stack.callback(namespace["tearDownModule"])
        case()


def _names_in_source(tree: ast.Module) -> list[str]:
    """Return the probable names of the tests of a module, for one that cannot be run."""
    found = []
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            methods = [method.name for method in node.body if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef)]
            found += [f"{node.name}.{name}" for name in methods if name.startswith("test")]
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test"):
            found.append(node.name)
    return found


def _methods(kind: type[unittest.TestCase]) -> list[tuple[str, _Case]]:
    """Return the tests of a class; the first one sets the class up, the last one tears it down."""
    if getattr(kind, "__unittest_skip__", False):
        return []
    names = [
        name
        for name in unittest.defaultTestLoader.getTestCaseNames(kind)
        if not getattr(getattr(kind, name), "__unittest_skip__", False)
    ]
    ready = False

    def run(name: str) -> None:
        nonlocal ready
        if not ready:
            kind.setUpClass()
            ready = True
        try:
            _run_method(kind(name))
        finally:
            if name == names[-1]:
                kind.tearDownClass()
                kind.doClassCleanups()

    return [(f"{kind.__name__}.{name}", functools.partial(run, name)) for name in names]


def _run_method(case: unittest.TestCase) -> None:
    result = _Result()
    case.run(result)
    if result.error is not None:
        raise result.error


class _Result(unittest.TestResult):
    """Test result that keeps the first exception."""

    def __init__(self) -> None:
        super().__init__()
        self.error: BaseException | None = None

    def _record(self, error: Any) -> None:
        self.error = self.error or error[1]

    def addError(self, test: unittest.TestCase, err: Any) -> None:
        self._record(err)

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        self._record(err)

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: Any) -> None:
        if err is not None:
            self._record(err)

    def addExpectedFailure(self, test: unittest.TestCase, err: Any) -> None:
        assertions.forgive(err[1])

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        # Unconditionally skipped tests have been excluded: this skip depends on the submission.
        self.error = AssertionError(f"skipped: {reason}")

    def addUnexpectedSuccess(self, test: unittest.TestCase) -> None:
        self.error = AssertionError("it was expected to fail")


def _run_function(function: types.FunctionType) -> None:
    result = function()
    if inspect.iscoroutine(result):
        asyncio.run(result)


def _execute(source: str, namespace: Namespace, file: str = _FILE) -> None:
    linecache.cache[file] = (len(source), None, source_lines(source), file)
    code, blocks = _compile(source, file)
    assertions.set_blocks(file, blocks)
    assertions.watch_frameworks(source)
    exec(code, namespace)


@functools.lru_cache(_MAX_SOURCES)
def _compile(source: str, file: str) -> tuple[types.CodeType, assertions.Blocks]:
    """Compile tests; cached, since the same tests often grade many submissions."""
    return assertions.compile_tests(source, file)


def _run(name: str, case: _Case, connection: PeerConnection) -> CaseResult:
    began = time.perf_counter()
    error: BaseException | None = None
    streams = sys.stdin, sys.stdout, sys.stderr
    try:
        case()
    except BaseException as raised:  # noqa: BLE001 - including the submission's SystemExit
        error = raised
    finally:
        sys.stdin, sys.stdout, sys.stderr = streams
    error = assertions.take() or error
    return _case_result(name, error, time.perf_counter() - began, connection)


def _case_result(name: str, error: BaseException | None, seconds: float, connection: PeerConnection) -> CaseResult:
    if connection.is_broken or isinstance(error, PeerGoneError):
        return CaseResult(name=name, outcome=CaseOutcome.KILLED, message="the submission ended", seconds=seconds)
    if error is None:
        return CaseResult(name=name, outcome=CaseOutcome.PASSED, seconds=seconds)
    outcome = CaseOutcome.FAILED if isinstance(error, AssertionError) else CaseOutcome.ERROR
    return CaseResult(name=name, outcome=outcome, message=_describe(error), seconds=seconds)


def _describe(error: BaseException) -> str:
    """Return the line of the test that failed, and the reason."""
    output = io.StringIO()
    # The lines of this package's own files would have to be read.
    frames = traceback.StackSummary.extract(traceback.walk_tb(error.__traceback__), lookup_lines=False)
    lines = (frame.line for frame in reversed(frames) if frame.filename.startswith(_FILES))
    if line := next(filter(None, lines), None):
        output.write(f"{line}\n")
    try:
        # Formatting a syntax error of a submission could be expensive: it may point at column 1,000,000,000.
        plain = isinstance(error, SyntaxError)
        output.write(f"{type(error).__name__}: {error}\n" if plain else "".join(traceback.format_exception_only(error)))
        output.write(getattr(error, ORIGIN, ""))
    except BaseException:  # noqa: BLE001 - the submission's exceptions may fail in __str__
        output.write(type(error).__name__)
    return output.getvalue().strip()[:_MAX_MESSAGE_CHARS].encode("utf-8", "replace").decode()
