"""Record of the assertions of tests that have failed.

A submission may catch an exception that passes through it: its ``__exit__`` returns True, or it calls a function of the tests
in a ``try`` statement. A failed assertion therefore counts when it is raised, unless the tests catch it.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import sys
import types
import unittest
import unittest.case
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["NAME", "compile_tests", "forgive", "is_failure", "leave_block", "record", "set_blocks", "take", "watch_frameworks"]

NAME = "@assertions"
"""Global variable of tests that refers to this module; no identifier, so that tests do not use it."""

Blocks = list[tuple[int, int]]
"""The ``with`` blocks that contain assertions: the first line of each, and the last one of an assertion in it."""

_failed: list[BaseException] = []
_blocks: dict[str, Blocks] = {}
"""For each file of tests, its ``with`` blocks."""


def record(error: BaseException) -> None:
    """Record a failure."""
    if not any(known is error for known in _failed):
        _failed.append(error)


def forgive(error: BaseException | None) -> None:
    """Remove a failure that the tests have caught."""
    _failed[:] = [known for known in _failed if known is not error]


def take() -> BaseException | None:
    """Return the first recorded failure, and clear the record; None if there is none."""
    first = _failed[0] if _failed else None
    _failed.clear()
    return first


def is_failure(error: BaseException) -> bool:
    """Return whether an exception is a failed assertion."""
    outcomes = sys.modules.get("_pytest.outcomes")
    return isinstance(error, (AssertionError, outcomes.Failed) if outcomes else AssertionError)


def leave_block(error: BaseException, trace: types.TracebackType | None, *, is_received: bool) -> None:
    """Record the exception with which a ``with`` block of a submission's object is left, if an assertion is not reached."""
    skips = trace is not None and any(
        first <= trace.tb_lineno <= last for first, last in _blocks.get(trace.tb_frame.f_code.co_filename, ())
    )
    if skips or (is_failure(error) and not is_received):
        record(error)


# Called by compiled tests.


def failed(*message: Any) -> AssertionError:
    """Return a recorded failure of an ``assert`` statement."""
    error = AssertionError(*message)
    record(error)
    return error


def raised(error: Any) -> Any:
    """Record an exception that a ``raise`` statement of the tests raises, if it is a failure."""
    if isinstance(error, type) and issubclass(error, AssertionError):
        error = error()
    if isinstance(error, BaseException) and is_failure(error):
        record(error)
    return error


def raised_again() -> None:
    """Record the exception that a ``raise`` statement without operand raises, if it is a failure."""
    raised(sys.exception())


def caught() -> None:
    """Forgive the exception that a handler of the tests has caught."""
    error = sys.exception()
    forgive(error)
    if isinstance(error, BaseExceptionGroup):
        for part in error.exceptions:
            forgive(part)


class _Failure(AssertionError):
    """Failure of an assertion method."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        record(self)


_Failure.__name__ = _Failure.__qualname__ = "AssertionError"
_Failure.__module__ = "builtins"


def watch_frameworks(source: str) -> None:
    """Record what assertion methods raise, and forgive what ``assertRaises`` and similar contexts accept.

    An interrupt that a submission raises is recorded as well, and ends one part of a test, after which its cleanup runs.

    Args:
        source: Source of the tests, which may use pytest.
    """
    unittest.TestCase.failureException = _Failure
    outcome: Any = vars(unittest.case)["_Outcome"]
    if not _is_own(outcome.testPartExecutor):
        outcome.testPartExecutor = _interruptible(outcome.testPartExecutor)
    _watch(unittest.case._AssertRaisesContext)
    _watch(contextlib.suppress)
    if "pytest" in source:
        with contextlib.suppress(ImportError):
            _watch(type(importlib.import_module("pytest").raises(Exception)))


def _watch(context: Any) -> None:
    leave: Callable[..., Any] = context.__exit__
    if _is_own(leave):
        return

    def __exit__(self: Any, kind: Any, error: Any, trace: Any) -> Any:
        accepted = leave(self, kind, error, trace)
        if accepted:
            forgive(error)
        return accepted

    context.__exit__ = __exit__


def _is_own(function: Callable[..., Any]) -> bool:
    return getattr(function, "__module__", None) == __name__


def _interruptible(execute: Callable[..., Any]) -> Callable[..., Any]:
    """Return a context in which an interrupt is an error like others, for one in which it ends the run."""

    @contextlib.contextmanager
    def execute_part(*arguments: Any, **options: Any) -> Iterator[None]:
        with execute(*arguments, **options):
            try:
                yield
            except KeyboardInterrupt as interrupt:
                record(interrupt)
                message = "the test was interrupted"
                raise RuntimeError(message) from interrupt

    return execute_part


class _Recording(ast.NodeTransformer):
    """Makes ``assert``, ``raise`` and ``except`` use this module."""

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        self.generic_visit(node)
        error = _call("failed", *([node.msg] if node.msg else []))
        return ast.If(test=ast.UnaryOp(ast.Not(), node.test), body=[ast.copy_location(ast.Raise(error), node)], orelse=[])

    def visit_Raise(self, node: ast.Raise) -> Any:
        self.generic_visit(node)
        if node.exc is not None:
            node.exc = _call("raised", node.exc)
            return node
        return [ast.copy_location(ast.Expr(_call("raised_again")), node), node]

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.AST:
        self.generic_visit(node)
        node.body.insert(0, ast.copy_location(ast.Expr(_call("caught")), node.body[0]))
        return node


def _call(name: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(ast.Attribute(ast.Name(NAME, ast.Load()), name, ast.Load()), list(arguments), [])


def compile_tests(source: str, file: str) -> tuple[types.CodeType, Blocks]:
    """Compile the source of tests so that their failures are recorded.

    Args:
        source: The source code.
        file: Name of the file in tracebacks.
    """
    tree = ast.parse(source, file)
    blocks = [block for node in ast.walk(tree) if (block := _block(node)) is not None]
    recording = ast.fix_missing_locations(_Recording().visit(tree))
    return compile(recording, file, "exec", dont_inherit=True), blocks


def set_blocks(file: str, blocks: Blocks) -> None:
    """Set the ``with`` blocks of a file that is about to be executed."""
    _blocks[file] = blocks


def _block(node: ast.AST) -> tuple[int, int] | None:
    if not isinstance(node, ast.With | ast.AsyncWith):
        return None
    lines = [getattr(inner, "end_lineno", 0) for part in node.body for inner in ast.walk(part) if _is_assertion(inner)]
    return (node.lineno, max(lines)) if lines else None


def _is_assertion(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        return name.startswith("assert") or name in ("AssertionError", "fail")
    return isinstance(node, ast.Assert) or (isinstance(node, ast.Name) and node.id == "AssertionError")
