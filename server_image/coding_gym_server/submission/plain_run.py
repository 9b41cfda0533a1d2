"""Runs a submission together with its tests in this process, as plain Python and the framework of the tests do.

Tests that import the submission are a module beside it. All others are the end of the submission's own file, as data sets with
a program and its tests are meant to be concatenated.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import importlib.util
import linecache
import os
import random
import sys
import traceback
import types
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from coding_gym_server.ipc.plain_messages import PlainReport, RunPlain
from coding_gym_server.ipc.streams import flush_streams
from coding_gym_server.ipc.text import source_lines
from coding_gym_server.packages.importing import imports_module
from coding_gym_server.protocol.grading import SUBMISSION_MODULE, Asserts, CaseOutcome, UnitTests
from coding_gym_server.submission import frameworks
from coding_gym_server.workspace.test_access import WorkspaceFiles

__all__ = ["run_plain"]

_TESTS_MODULE = "tests"
_MAX_MESSAGE_CHARS = 2000

_written: set[str] = set()
"""Names of the files that have been written here."""


class _LoadError(Exception):
    """The submission, or the module of its tests, cannot be executed."""


def run_plain(request: RunPlain, tell: Callable[[PlainReport], None]) -> NoReturn:
    """Run a submission together with its tests, and end the process, which may have run it before.

    Args:
        request: The submission and the tests.
        tell: Sends the server the report, of which errors are a part.
    """
    sys.path.insert(0, "")
    sys.dont_write_bytecode = True
    random.seed(0)
    # Modules of tests are imported from their files, so that this is the place where all of them find it.
    builtins.workspace = WorkspaceFiles(_written)  # type: ignore[attr-defined]
    try:
        if isinstance(request.tests, Asserts):
            outcomes = _run_asserts(_PlainModule.load(SUBMISSION_MODULE, request), request.tests)
        else:
            outcomes = _run_unit_tests(request, request.tests)
    except _LoadError as error:
        tell(PlainReport(str(error)))
    else:
        tell(PlainReport(outcomes=outcomes))
    finally:
        flush_streams()
        os._exit(0)


def _run_asserts(module: _PlainModule, tests: Asserts) -> dict[str, CaseOutcome]:
    names = [str(number) for number in range(len(tests.cases))]
    if tests.whole:
        return dict.fromkeys(names, frameworks.outcome_of(module.execute, tests.whole))
    module.extend(tests.setup)
    return {name: frameworks.outcome_of(module.execute, case) for name, case in zip(names, tests.cases, strict=True)}


def _run_unit_tests(request: RunPlain, tests: UnitTests) -> dict[str, CaseOutcome]:
    try:
        tree = ast.parse(tests.source)
    except (SyntaxError, ValueError, RecursionError) as error:
        raise _LoadError(_describe(error)) from error
    is_beside = imports_module(tree, tests.module)
    needs_pytest = frameworks.needs_pytest(tree)
    if needs_pytest and not is_beside:
        # pytest imports the file itself. What the submission's own lines contain are no tests.
        path = _write(tests.module, f"{request.code}\n{tests.source}")
        return _by_pytest(path, submission=path, lines=len(source_lines(f"{request.code}\n")))
    module = _PlainModule.load(tests.module, request)
    if not is_beside:
        own = dict(vars(module.module))
        module.extend(tests.source)
        return frameworks.run_module(module.module, without=own)
    name = _free_name(_TESTS_MODULE)
    path = _write(name, tests.source)
    if needs_pytest:
        return _by_pytest(path, submission=module.path)
    # Those that the tests have imported from the submission are none, either.
    return frameworks.run_module(_imported(name), without=vars(module.module))


def _by_pytest(path: Path, *, submission: Path, lines: int | None = None) -> dict[str, CaseOutcome]:
    # Few tests need it.
    from coding_gym_server.submission.pytest_framework import run_file

    return run_file(path, submission=submission, lines=lines)


class _PlainModule:
    """Module of a submission, whose file its tests may continue.

    Args:
        module: The module.
        path: Its file.
        code: The source code in there.

    Attributes:
        module: The module.
        path: Its file.
    """

    def __init__(self, module: types.ModuleType, path: Path, code: str) -> None:
        self.module = module
        self.path = path
        self._code = code

    @classmethod
    def load(cls, name: str, request: RunPlain) -> _PlainModule:
        """Import a submission from its file.

        Args:
            name: Name of its module.
            request: The request.

        Raises:
            _LoadError: If it cannot be executed, or does not define its entry point.
        """
        path = _write(name, request.code)
        module = _imported(name, is_main=True)
        if request.entry_point is not None and not hasattr(module, request.entry_point):
            message = f"the submission does not define {request.entry_point!r}"
            raise _LoadError(message)
        return cls(module, path, request.code)

    def extend(self, source: str) -> None:
        """Execute source code as the next lines of the file.

        Raises:
            _LoadError: If that fails.
        """
        path, lines = str(self.path), source_lines(f"{self._code}\n")
        linecache.cache[path] = (len(self._code) + len(source), None, lines + source_lines(source), path)
        try:
            exec(compile("\n" * len(lines) + source, path, "exec", dont_inherit=True), vars(self.module))
        except BaseException as error:
            raise _LoadError(_describe(error)) from error

    def execute(self, source: str) -> None:
        """Execute source code in the module; raise what it raises."""
        exec(compile(source, "<test>", "exec", dont_inherit=True), vars(self.module))


def _write(name: str, source: str) -> Path:
    """Write the file of a module; return its absolute path."""
    path = Path(f"{name.replace('.', '/')}.py").absolute()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source, encoding="utf-8", errors="surrogatepass")
    _written.add(path.name)
    return path


def _imported(name: str, *, is_main: bool = False) -> types.ModuleType:
    """Import a module from its file, even if another one has this name.

    Args:
        name: Name of the module.
        is_main: Whether it is the main module, too, as in a program that it is the begin of: mocks look names up there.

    Raises:
        _LoadError: If that fails.
    """
    importlib.invalidate_caches()
    sys.modules.pop(name, None)
    try:
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        if is_main:
            sys.modules["__main__"] = module
        spec.loader.exec_module(module)
    except BaseException as error:
        raise _LoadError(_describe(error)) from error
    # A module may have replaced itself.
    return sys.modules.get(name, module)


def _free_name(name: str) -> str:
    """Return a name of a module that none of the files here has."""
    while os.path.exists(f"{name}.py") or os.path.isdir(name):
        name += "_"
    return name


def _describe(error: BaseException) -> str:
    try:
        text = "".join(traceback.format_exception_only(error)).strip()
    except BaseException:  # noqa: BLE001 - the submission's exceptions may fail in __str__
        text = type(error).__name__
    return text[:_MAX_MESSAGE_CHARS].encode("utf-8", "replace").decode()
