"""Splits tests into modules that contain one test each, and nothing that tells what the test expects in words."""

from __future__ import annotations

import ast
import copy
import unittest
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from coding_gym_server.protocol.grading import Asserts, UnitTests
from coding_gym_server.submission.faithful_messages import CollectedTest, Framework

__all__ = ["UNPARSABLE", "Function", "SingleTest", "names_in_source", "parse", "split", "split_asserts"]

Function = ast.FunctionDef | ast.AsyncFunctionDef

UNPARSABLE = (SyntaxError, ValueError, RecursionError)
"""Exceptions of the parser, and of writing a syntax tree as source code."""

_PYTEST_FIXTURES = {"setup_module", "teardown_module", "setup_function", "teardown_function", "setup_method", "teardown_method"}
_POSITIONAL_WITHOUT_MESSAGE = {
    **dict.fromkeys(("assertTrue", "assertFalse", "assertIsNone", "assertIsNotNone"), 1),
    **dict.fromkeys(("assertAlmostEqual", "assertNotAlmostEqual"), 3),
}
_WITHOUT_MESSAGE = ("assertRaises", "assertWarns", "assertLogs", "assertNoLogs")


@dataclass(frozen=True)
class SingleTest:
    """A module with one test.

    Attributes:
        id: The test; None if the module itself is the test.
        name: Its name in results.
        framework: What runs it.
        earlier: Other tests of the module, which run before it.
        tree: The module, without documentation and messages.
        source: The source code of the module.
    """

    id: CollectedTest | None
    name: str
    framework: Framework
    earlier: tuple[CollectedTest, ...]
    tree: ast.Module
    source: str


def parse(tests: UnitTests) -> tuple[ast.Module, Framework]:
    """Parse a module of tests, and determine its framework.

    Raises:
        SyntaxError: If it is not valid Python.
        ValueError: If it contains null characters.
        RecursionError: If it is nested too deeply.
    """
    tree = ast.parse(tests.source)
    if _imports_pytest(tree):
        return tree, Framework.PYTEST
    if any(_is_test_case(node) for node in tree.body):
        return tree, Framework.UNITTEST
    return tree, Framework.PYTEST if any(map(_needs_pytest, tree.body)) else Framework.FUNCTIONS


def names_in_source(tree: ast.Module) -> list[CollectedTest]:
    """Return the probable tests of a module, for one that cannot be run."""
    found = []
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            found += [CollectedTest(node.name, name) for name in _names_of_tests(node.body)]
        elif isinstance(node, Function) and _is_test(node):
            found.append(CollectedTest("", node.name))
    return found


def split(tree: ast.Module, framework: Framework, tests: Sequence[CollectedTest], number: int, *, alone: bool) -> SingleTest:
    """Return a module for one of the tests of a module.

    Args:
        tree: The module.
        framework: Its framework.
        tests: Its tests, in order.
        number: Index of the test.
        alone: Whether it runs alone, rather than after all earlier ones.
    """
    single = copy.deepcopy(tree)
    earlier = () if alone else tuple(tests[:number])
    single.body = list(_statements_for((*earlier, tests[number]), single))
    return _single(tests[number], tests[number].name, framework, earlier, single)


def split_asserts(tests: Asserts, number: int, *, alone: bool) -> SingleTest:
    """Return a module for a case, which begins with the setup.

    Args:
        tests: The tests.
        number: Index of the case.
        alone: Whether it runs alone, rather than after all earlier ones.

    Raises:
        SyntaxError: If the setup or a case is not valid Python.
        ValueError: If one contains null characters.
        RecursionError: If one is nested too deeply.
    """
    sources = (tests.setup, *(() if alone else tests.cases[:number]), tests.cases[number])
    module = ast.Module([statement for source in sources for statement in ast.parse(source).body], [])
    return _single(None, str(number), Framework.STATEMENTS, (), module)


def _single(
    test: CollectedTest | None, name: str, framework: Framework, earlier: tuple[CollectedTest, ...], tree: ast.Module
) -> SingleTest:
    _Stripper().visit(tree)
    return SingleTest(id=test, name=name, framework=framework, earlier=earlier, tree=tree, source=ast.unparse(tree))


def _statements_for(tests: Iterable[CollectedTest], tree: ast.Module) -> Iterator[ast.stmt]:
    """Yield the statements of a module without its other tests, unless the remaining code refers to them."""
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    is_kept: set[int] = set()
    for test in tests:
        family = _with_bases(test.class_name, classes)
        is_kept |= {id(node) for node in tree.body if isinstance(node, Function) and node.name == test.function and not family}
        for kind in classes.values():
            is_kept |= {id(item) for item in kind.body if kind.name in family and getattr(item, "name", "") == test.function}
    statements = [*tree.body, *(item for kind in classes.values() for item in kind.body)]
    others = [node for node in statements if isinstance(node, Function) and _is_test(node) and id(node) not in is_kept]
    dropped = {id(node) for node in others}
    for statement in statements:
        if id(statement) not in dropped and not isinstance(statement, ast.ClassDef):
            names = _names(statement)
            dropped -= {id(other) for other in others if other.name in names}
    for statement in tree.body:
        if id(statement) in dropped or _is_main_block(statement):
            continue
        if isinstance(statement, ast.ClassDef):
            statement.body = [item for item in statement.body if id(item) not in dropped] or [ast.Pass()]
        yield statement


def _with_bases(name: str, classes: dict[str, ast.ClassDef]) -> set[str]:
    """Return the name of a class with those of its bases in the same module."""
    found: set[str] = set()
    pending = [name]
    while pending:
        kind = classes.get(pending.pop())
        if kind is not None and kind.name not in found:
            found.add(kind.name)
            pending += [base.id for base in kind.bases if isinstance(base, ast.Name)]
    return found


def _names(node: ast.AST) -> set[str]:
    names = {item.id for item in ast.walk(node) if isinstance(item, ast.Name)}
    return names | {item.attr for item in ast.walk(node) if isinstance(item, ast.Attribute)}


def _names_of_tests(body: Iterable[ast.stmt]) -> list[str]:
    return [node.name for node in body if isinstance(node, Function) and _is_test(node)]


def _is_test(node: Function) -> bool:
    return node.name.startswith("test")


def _is_test_case(node: ast.stmt) -> bool:
    return isinstance(node, ast.ClassDef) and any(ast.unparse(base).endswith("TestCase") for base in node.bases)


def _imports_pytest(tree: ast.Module) -> bool:
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        if any(name.partition(".")[0] == "pytest" for name in names):
            return True
    return False


def _needs_pytest(node: ast.stmt) -> bool:
    """Return whether a statement of a module without test cases has a meaning for pytest only."""
    if isinstance(node, ast.ClassDef):
        return node.name.startswith("Test") and bool(_names_of_tests(node.body))
    if not isinstance(node, Function):
        return False
    required = len(node.args.posonlyargs) + len(node.args.args) - len(node.args.defaults)
    return node.name in _PYTEST_FIXTURES or (_is_test(node) and required > 0)


def _is_main_block(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Compare) and "'__main__'" in ast.unparse(node.test)


class _Stripper(ast.NodeTransformer):
    """Removes documentation and messages of assertions."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._without_documentation(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._without_documentation(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return self._without_documentation(node)

    def visit_Module(self, node: ast.Module) -> ast.AST:
        return self._without_documentation(node)

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        node.msg = None
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if hasattr(unittest.TestCase, name) and name.startswith("assert"):
            node.keywords = [keyword for keyword in node.keywords if keyword.arg != "msg"]
            if not name.startswith(_WITHOUT_MESSAGE) and not any(isinstance(item, ast.Starred) for item in node.args):
                node.args = node.args[: _POSITIONAL_WITHOUT_MESSAGE.get(name, 2)]
        return node

    def _without_documentation(self, node: Function | ast.ClassDef | ast.Module) -> ast.AST:
        if node.body and isinstance(node.body[0], ast.Expr) and isinstance(node.body[0].value, ast.Constant):
            body = node.body[1:] if isinstance(node.body[0].value.value, str) else node.body
            node.body = body or ([] if isinstance(node, ast.Module) else [ast.Pass()])
        return self.generic_visit(node)
