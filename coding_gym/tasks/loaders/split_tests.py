"""Splitting of a data set's test source code into cases."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import msgspec

from coding_gym.tasks.loaders.integers import with_hexadecimal
from coding_gym.tasks.loaders.rows import RowError
from coding_gym.tasks.submission import defined_names, parse, put_before
from coding_gym.tasks.task import Task
from coding_gym_server.protocol.grading import Asserts, UnitTests

__all__ = [
    "definitions",
    "modules_with",
    "split_check",
    "tests_of_list",
    "tests_of_source",
    "unit_tests",
    "uses",
    "with_module",
]

_CHECK = "check"
_UNSPLITTABLE = (ast.Return, ast.Yield, ast.YieldFrom, ast.Nonlocal, ast.Global, ast.Await)
"""Statements that are valid in a function body but not in a module, or have a different meaning there."""


def tests_of_source(source: str, *, entry_point: str | None, setup: str, preamble: str) -> Asserts | UnitTests:
    """Convert test source code to tests: a ``check(candidate)``, ``unittest`` classes, or asserts.

    Args:
        source: The source code.
        entry_point: Expression of the submission's object that is passed as ``candidate``.
        setup: Code to run before the source.
        preamble: See ``Asserts``.

    Raises:
        RowError: If the source is not valid Python, or has no tests.
    """
    source = with_hexadecimal(source)
    module = _parsed(source)
    if any(_is_check(node) for node in module.body):
        if entry_point is None:
            message = "there is a check(candidate), but no entry_point to check"
            raise RowError(message)
        return split_check(source, entry_point=entry_point, setup=setup, preamble=preamble)
    if any(_is_test(node) for node in module.body):
        return unit_tests(source, setup=setup, preamble=preamble)
    # Definitions go into the setup: in a case, a failure would leave the other cases without them.
    definitions = [node for node in module.body if isinstance(node, _DEFINITIONS)]
    others = [node for node in module.body if not isinstance(node, _DEFINITIONS) and not _is_main(node)]
    is_checking = _is_checking(module.body)
    cases = tuple(_cases(others, source, is_checking))
    if not any(map(is_checking, others)):
        message = "its tests have neither asserts, nor a check(candidate), nor unittest classes"
        raise RowError(message)
    return Asserts(preamble=preamble, setup=_joined(setup, *(_text(node, source) for node in definitions)), cases=cases)


def tests_of_list(texts: Sequence[str], *, entry_point: str | None) -> Asserts | UnitTests:
    """Convert a list of texts to tests: each is a case, unless they define tests that a framework runs.

    Args:
        texts: The texts.
        entry_point: As for ``tests_of_source``.

    Raises:
        RowError: If one is not valid Python, or none has an assert.
    """
    texts = [with_hexadecimal(text) for text in texts]
    modules = [_parsed(text) for text in texts]
    statements = [node for module in modules for node in module.body]
    if any(_is_check(node) or _is_test(node) for node in statements):
        return tests_of_source("\n".join(texts), entry_point=entry_point, setup="", preamble="")
    if not any(map(_is_checking(statements), statements)):
        message = f"its texts have no asserts: {texts[0].strip()[:100]!r}"
        raise RowError(message)
    return Asserts(cases=tuple(texts))


def unit_tests(source: str, *, setup: str = "", preamble: str = "") -> UnitTests:
    """Return a module of tests with code before it.

    Raises:
        RowError: If the source is not valid Python.
    """
    source = with_hexadecimal(source)
    return UnitTests(preamble=preamble, source=_after(setup, source, _parsed(source)))


def with_module(task: Task) -> Task:
    """Return a task whose unit tests know the name of the module by which they import the submission.

    It is a module other than those of the standard library, from which they import a name that the submission defines, as far
    as the entry point and the reference tell.
    """
    if not isinstance(task.tests, UnitTests):
        return task
    reference = parse(task.reference or "") or ast.Module([], [])
    imports: list[ast.stmt] = [node for node in reference.body if isinstance(node, ast.Import | ast.ImportFrom)]
    defined = defined_names(reference) - defined_names(ast.Module(imports, []))
    if task.entry_point is not None:
        defined.add(task.entry_point)
    found = next(modules_with(defined, _parsed(task.tests.source)), task.tests.module)
    return replace(task, tests=msgspec.structs.replace(task.tests, module=found))


def modules_with(names: set[str], module: ast.Module) -> Iterator[str]:
    """Yield the modules from which source code takes one of some names."""
    nodes = list(ast.walk(module))
    used = {ast.unparse(node.value) for node in nodes if isinstance(node, ast.Attribute) and node.attr in names}
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and not node.level and any(alias.name in {*names, "*"} for alias in node.names):
            imported = [node.module or ""]
        elif isinstance(node, ast.Import):
            imported = [alias.name for alias in node.names if (alias.asname or alias.name) in used]
        else:
            continue
        yield from (name for name in imported if name.partition(".")[0] not in sys.stdlib_module_names)


def split_check(source: str, *, entry_point: str, setup: str = "", preamble: str = "") -> Asserts:
    """Split the body of ``check(candidate)`` into cases, each of which ends with an assert, or a call of a function with one.

    Statements before an assert belong to its case; a loop stays whole, and so does a function. A body that is not valid at
    module level, for example because it returns, stays a function and is one case.

    Args:
        source: The module that defines ``check``.
        entry_point: Expression of the submission's object that is passed as ``candidate``.
        setup: Code to run before the source: definitions that the tests may use.
        preamble: See ``Asserts``.

    Raises:
        RowError: If the source is not valid Python.
    """
    module = _parsed(source)
    check = next(node for node in module.body if _is_check(node))
    assert isinstance(check, ast.FunctionDef)
    call = "" if any(map(_calls_check, module.body)) else f"\n{_CHECK}({entry_point})\n"
    whole = _after(setup, source, module) + call
    # Calls of check() in the module are dropped: the cases replace them.
    others = [
        _text(node, source) for node in module.body if node is not check and not _calls_check(node) and not _is_main(node)
    ]
    parameter = check.args.args[0].arg if check.args.args else "candidate"
    if any(isinstance(node, _UNSPLITTABLE) for node in _own_nodes(check)):
        called = (f"{_CHECK}({entry_point})",)
        return Asserts(preamble=preamble, setup=_joined(setup, *others, ast.unparse(check)), cases=called, whole=whole)
    alias = f"{parameter} = {entry_point}"
    is_checking = _is_checking([*module.body, *check.body])
    cases = tuple(_cases(check.body, source, is_checking))
    return Asserts(preamble=preamble, setup=_joined(setup, *others, alias), cases=cases, whole=whole)


def uses(sources: Iterable[str], names: set[str]) -> list[str]:
    """Return those of some names that sources use, in order of first use."""
    found: dict[str, None] = {}
    for source in sources:
        for node in ast.walk(_parsed(source)):
            if isinstance(node, ast.Name) and node.id in names:
                found[node.id] = None
    return list(found)


def definitions(source: str) -> set[str]:
    """Return the names that source code defines; none if it is not valid Python."""
    module = parse(source)
    return defined_names(module) if module is not None else set()


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_DEFINITIONS = (*_FUNCTIONS, ast.ClassDef, ast.Import, ast.ImportFrom)


def _parsed(source: str) -> ast.Module:
    module = parse(source)
    if module is None:
        message = f"its tests are not Python: {source.strip()[:100]!r}"
        raise RowError(message)
    return module


def _cases(statements: Sequence[ast.stmt], source: str, is_checking: Callable[[ast.stmt], bool]) -> list[str]:
    cases: list[str] = []
    waiting: list[str] = []
    for node in statements:
        waiting.append(_text(node, source))
        if is_checking(node):
            cases.append("\n".join(waiting))
            waiting = []
    # Statements after the last assert may check by calls: they join its case, so that none is lost or counted twice.
    return ["\n".join([*cases[-1:], *waiting])] if len(cases) < 2 else [*cases[:-1], "\n".join([cases[-1], *waiting])]


def _text(node: ast.stmt, source: str) -> str:
    """Return the source code of a statement without its original indentation."""
    # Only the first line loses its indentation, which would break compound statements.
    is_simple = not hasattr(node, "body")
    return (ast.get_source_segment(source, node) if is_simple else None) or ast.unparse(node)


def _is_checking(statements: Iterable[ast.stmt]) -> Callable[[ast.stmt], bool]:
    """Return a predicate: whether a statement, when it is executed, evaluates an assert, possibly in a function among some.

    The definition of a function that contains an assert checks nothing by itself.
    """
    helpers = {
        node.name
        for node in statements
        if isinstance(node, _FUNCTIONS) and any(isinstance(inner, ast.Assert) for inner in ast.walk(node))
    }

    def is_checking(node: ast.stmt) -> bool:
        executed = list(_executed(node))
        called = (inner.func for inner in executed if isinstance(inner, ast.Call))
        return any(isinstance(inner, ast.Assert) for inner in executed) or any(
            isinstance(function, ast.Name) and function.id in helpers for function in called
        )

    return is_checking


def _executed(*statements: ast.AST) -> Iterator[ast.AST]:
    """Return the syntax nodes of statements, excluding the bodies of the functions that they define."""
    waiting = list(statements)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, (*_FUNCTIONS, ast.Lambda)):
            waiting += ast.iter_child_nodes(node)


def _own_nodes(function: ast.FunctionDef) -> Iterator[ast.AST]:
    """Return the syntax nodes of a function body; of those of nested functions, only what refers to the outer one."""
    for node in _executed(*function.body):
        yield node
        if isinstance(node, (*_FUNCTIONS, ast.Lambda)):
            yield from (inner for inner in ast.walk(node) if isinstance(inner, ast.Nonlocal))


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
    """Return whether a statement is ``if __name__ == "__main__":``, whose body is for manual runs."""
    return isinstance(node, ast.If) and any(
        isinstance(part, ast.Name) and part.id == "__name__" for part in ast.walk(node.test)
    )


def _after(setup: str, source: str, module: ast.Module) -> str:
    """Return source code with other code before it."""
    return put_before(f"{setup.rstrip()}\n" if setup.strip() else "", source, module)


def _joined(*parts: str) -> str:
    return "\n".join(part.rstrip("\n") for part in parts if part.strip())
