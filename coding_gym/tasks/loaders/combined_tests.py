"""Combination of tests from several columns of a row."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from coding_gym.tasks.loaders.rows import RowError
from coding_gym.tasks.loaders.split_tests import modules_with, unit_tests
from coding_gym.tasks.submission import defined_names, parse
from coding_gym_server.protocol.grading import Asserts, Programs, UnitTests

__all__ = ["combined"]


def combined(parts: Sequence[tuple[str, Asserts | UnitTests | Programs]], *, setup: str = "") -> Asserts | UnitTests | Programs:
    """Return tests that contain all of some tests.

    Asserts stay asserts, and programs programs. Otherwise, the result is one module, in which the asserts of a column are one
    test. What two columns define differently is renamed in the second.

    Args:
        parts: Pairs of a column and its tests.
        setup: Code that runs before all of them.

    Raises:
        RowError: If some run the submission as a program, and others do not; the message names two columns.
    """
    tests = [found for _, found in parts]
    if programs := [found for found in tests if isinstance(found, Programs)]:
        if len(programs) < len(tests):
            is_program = [isinstance(found, Programs) for found in tests]
            run, other = (parts[is_program.index(wanted)][0] for wanted in (True, False))
            message = f"the column {run} runs a program, and the column {other} does not: their tests cannot be combined"
            raise RowError(message)
        return replace(
            programs[0],
            cases=tuple(case for found in programs for case in found.cases),
            tolerance=next((found.tolerance for found in programs if found.tolerance is not None), None),
        )
    sources = [found for found in tests if not isinstance(found, Programs)]
    if len(sources) > 1:
        sources = _without_conflicts(zip([column for column, _ in parts], sources, strict=True))
    preamble = "\n".join(dict.fromkeys(found.preamble for found in sources if found.preamble))
    if len(sources) == 1 and not setup:
        return sources[0]
    if all(isinstance(found, Asserts) for found in sources):
        asserts = [found for found in sources if isinstance(found, Asserts)]
        return Asserts(
            preamble=preamble,
            setup="\n".join(text for text in (setup, *(found.setup for found in asserts)) if text.strip()),
            cases=tuple(case for found in asserts for case in found.cases),
        )
    modules = [_module(column, found) for (column, _), found in zip(parts, sources, strict=True)]
    return unit_tests("\n\n".join([*_imports_for_all(modules), *modules]), setup=setup, preamble=preamble)


def _imports_for_all(modules: Sequence[str]) -> Iterator[str]:
    """Yield imports of the submission for modules that use its names without importing it, if another one imports it."""
    trees = [ast.parse(module) for module in modules]
    free = {name for tree in trees for name in _free_names(tree)}
    yield from sorted({f"from {name} import *" for tree in trees for name in modules_with(free, tree)})


def _free_names(tree: ast.Module) -> set[str]:
    """Return the names that a module uses without binding them anywhere."""
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    bound = {node.id for node in names if not isinstance(node.ctx, ast.Load)}
    bound |= {alias.asname or alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
    return {node.id for node in names} - bound - defined_names(tree) - vars(builtins).keys()


def _module(column: str, tests: Asserts | UnitTests) -> str:
    """Return tests as the source code of a module; asserts are one test, because they share their variables."""
    if isinstance(tests, UnitTests):
        return tests.source
    name = re.sub(r"\W", "_", column).removeprefix("test_")
    test = _parsed(column, f"def test_{name}_asserts(): pass")
    function = test.body[0]
    assert isinstance(function, ast.FunctionDef)
    function.body = [node for case in tests.cases for node in _parsed(column, case).body]
    return f"{tests.setup}\n\n{ast.unparse(test)}\n"


def _without_conflicts(parts: Iterable[tuple[str, Asserts | UnitTests]]) -> list[Asserts | UnitTests]:
    """Return tests that can share a namespace: a later definition with the name of an earlier one has another name."""
    found: list[Asserts | UnitTests] = []
    bound: dict[str, str] = {}
    for column, tests in parts:
        texts = [tests.source] if isinstance(tests, UnitTests) else [tests.setup, *tests.cases]
        own = dict(binding for text in texts for binding in _bindings(_parsed(column, text)))
        suffix = re.sub(r"\W", "_", column)
        names = {name: f"{name}_{suffix}" for name, what in own.items() if bound.get(name, what) != what}
        bound |= {names.get(name, name): what for name, what in own.items()}
        renamed = [_renamed(column, text, names) for text in texts]
        if isinstance(tests, UnitTests):
            found.append(replace(tests, source=renamed[0]))
        else:
            found.append(replace(tests, setup=renamed[0], cases=tuple(renamed[1:]), whole=""))
    return found


def _bindings(module: ast.Module) -> Iterator[tuple[str, str]]:
    """Return the names that the statements of a module bind, with what they are bound to, as far as one can compare it."""
    for node in module.body:
        match node:
            case ast.Import():
                for alias in node.names:
                    name = alias.asname or alias.name.partition(".")[0]
                    yield name, f"import {alias.name if alias.asname else name}"
            case ast.ImportFrom():
                yield from ((alias.asname or alias.name, f"from {node.module} import {alias.name}") for alias in node.names)
            case _:
                yield from ((name, ast.dump(node)) for name in defined_names(ast.Module([node], [])))


def _renamed(column: str, text: str, names: Mapping[str, str]) -> str:
    if not any(re.search(rf"\b{re.escape(name)}\b", text) for name in names):
        return text
    return ast.unparse(_Renaming(column, names).visit(_parsed(column, text)))


class _Renaming(ast.NodeTransformer):
    """Renames what a module defines, wherever it is used in it.

    Args:
        column: Name of the column of the module, for error messages.
        names: New names by old ones.
    """

    def __init__(self, column: str, names: Mapping[str, str]) -> None:
        self._column = column
        self._names = names

    def visit_Name(self, node: ast.Name) -> ast.AST:
        node.id = self._names.get(node.id, node.id)
        return node

    def visit_Global(self, node: ast.Global) -> ast.AST:
        node.names = [self._names.get(name, name) for name in node.names]
        return node

    def visit_alias(self, node: ast.alias) -> ast.AST:
        if (name := node.asname or node.name) in self._names:
            node.asname = self._names[name]
        return node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        if node.arg in self._names:
            message = f"{node.arg} of the column {self._column} is already defined differently by another column of tests"
            raise RowError(message)
        return self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.name = self._names.get(node.name, node.name)
        return self.generic_visit(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        node.name = self._names.get(node.name, node.name)
        return self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        # The names of methods are attributes, which keep theirs.
        methods = {id(item): item.name for item in node.body if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)}
        node.name = self._names.get(node.name, node.name)
        self.generic_visit(node)
        for item in node.body:
            if id(item) in methods and isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef):
                item.name = methods[id(item)]
        return node


def _parsed(column: str, text: str) -> ast.Module:
    module = parse(text)
    if module is None:
        message = f"the tests in {column} are not Python: {text.strip()[:100]!r}"
        raise RowError(message)
    return module
