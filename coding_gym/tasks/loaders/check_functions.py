"""Tests as data sets have them, a source text, taken apart into cases."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

from coding_gym.tasks.completion import defined_names, parse
from coding_gym.tasks.loaders.fields import RowError
from coding_gym_server.grading.messages import Asserts, UnitTests

__all__ = ["definitions", "split_check", "tests_of_source", "uses"]

_CHECK = "check"
_WHOLE = (ast.Return, ast.Yield, ast.YieldFrom, ast.Nonlocal, ast.Global, ast.Await)
"""What a function's body may have and a module may not, or means something else there."""


def tests_of_source(source: str, *, entry_point: str | None, setup: str) -> Asserts | UnitTests:
    """Return the tests that a source text has: a ``check(candidate)``, ``unittest`` classes, or asserts.

    Args:
        source: The text.
        entry_point: What ``candidate`` is.
        setup: What goes before it.

    Raises:
        RowError: It is no Python, or has no tests.
    """
    module = _parsed(source)
    if any(_is_check(node) for node in module.body):
        if entry_point is None:
            message = "there is a check(candidate), but no entry_point to check"
            raise RowError(message)
        return split_check(source, entry_point=entry_point, setup=setup)
    if any(_is_test(node) for node in module.body):
        return UnitTests(source=_joined(setup, source))
    # Not in a case, where a failure would leave the others without them: definitions.
    definitions = [node for node in module.body if isinstance(node, _DEFINITIONS)]
    others = [node for node in module.body if not isinstance(node, _DEFINITIONS) and not _is_main(node)]
    cases = tuple(_cases(others, source))
    if not any(isinstance(node, ast.Assert) for statement in others for node in ast.walk(statement)):
        message = "its tests have neither asserts, nor a check(candidate), nor unittest classes"
        raise RowError(message)
    return Asserts(setup=_joined(setup, *(_text(node, source) for node in definitions)), cases=cases)


def split_check(source: str, *, entry_point: str, setup: str = "") -> Asserts:
    """Return the body of ``check(candidate)`` as cases, each of which ends with an assert.

    Statements before an assert go with it; a loop stays whole. A body that cannot be a module's, because it returns for
    example, stays a function and is one case.

    Args:
        source: The module that defines it.
        entry_point: What ``candidate`` is.
        setup: What goes before it: definitions that the tests may use.

    Raises:
        RowError: It is no Python.
    """
    module = _parsed(source)
    check = next(node for node in module.body if _is_check(node))
    assert isinstance(check, ast.FunctionDef)
    # Calls of check() are ours to make.
    others = [
        _text(node, source) for node in module.body if node is not check and not _calls_check(node) and not _is_main(node)
    ]
    parameter = check.args.args[0].arg if check.args.args else "candidate"
    if any(isinstance(node, _WHOLE) for node in _own_nodes(check)):
        return Asserts(setup=_joined(setup, *others, ast.unparse(check)), cases=(f"{_CHECK}({entry_point})",))
    alias = f"{parameter} = {entry_point}"
    return Asserts(setup=_joined(setup, *others, alias), cases=tuple(_cases(check.body, source)))


def uses(sources: Iterable[str], names: set[str]) -> list[str]:
    """Return those of some names that sources use, in the order in which they do."""
    found: dict[str, None] = {}
    for source in sources:
        for node in ast.walk(_parsed(source)):
            if isinstance(node, ast.Name) and node.id in names:
                found[node.id] = None
    return list(found)


def definitions(source: str) -> set[str]:
    """Return the names that a source text defines; none if it is no Python."""
    module = parse(source)
    return defined_names(module) if module is not None else set()


_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)


def _parsed(source: str) -> ast.Module:
    module = parse(source)
    if module is None:
        message = f"its tests are no Python: {source.strip()[:100]!r}"
        raise RowError(message)
    return module


def _cases(statements: Sequence[ast.stmt], source: str) -> list[str]:
    cases: list[str] = []
    waiting: list[str] = []
    for node in statements:
        waiting.append(_text(node, source))
        if any(isinstance(inner, ast.Assert) for inner in ast.walk(node)):
            cases.append("\n".join(waiting))
            waiting = []
    # What comes after the last may check by calls: nothing is lost, and nothing counts twice.
    return ["\n".join([*cases[-1:], *waiting])] if len(cases) < 2 else [*cases[:-1], "\n".join([cases[-1], *waiting])]


def _text(node: ast.stmt, source: str) -> str:
    """Return the source of a statement, without the indentation that it had."""
    # Further lines keep theirs, which matters to compound statements.
    is_simple = not hasattr(node, "body")
    return (ast.get_source_segment(source, node) if is_simple else None) or ast.unparse(node)


def _own_nodes(function: ast.FunctionDef) -> Iterator[ast.AST]:
    """Return the nodes of a function's body that are not in a function of their own."""
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            waiting += ast.iter_child_nodes(node)
        else:
            # An inner function's nonlocal names what was the outer one's.
            waiting += [inner for inner in ast.walk(node) if isinstance(inner, ast.Nonlocal)]


def _is_check(node: ast.stmt) -> bool:
    return isinstance(node, ast.FunctionDef) and node.name == _CHECK


def _calls_check(node: ast.stmt) -> bool:
    call = node.value if isinstance(node, ast.Expr) else None
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == _CHECK


def _is_test(node: ast.stmt) -> bool:
    if isinstance(node, ast.ClassDef):
        return any("TestCase" in ast.unparse(base) for base in node.bases) or node.name.startswith("Test")
    return isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("test")


def _is_main(node: ast.stmt) -> bool:
    """Say whether a statement is ``if __name__ == "__main__":``, whose body is for runs by hand."""
    return isinstance(node, ast.If) and any(
        isinstance(part, ast.Name) and part.id == "__name__" for part in ast.walk(node.test)
    )


def _joined(*parts: str) -> str:
    return "\n".join(part.rstrip("\n") for part in parts if part.strip())
