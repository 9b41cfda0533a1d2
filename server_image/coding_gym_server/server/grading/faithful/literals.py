"""Finds the literals on which the result of a test depends: expected values, and inputs of the submission."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from coding_gym_server.server.grading.faithful.splitting import Function, SingleTest

__all__ = ["Literals", "aliases", "assertion_name", "entry_names", "find_literals", "is_entry_call", "reachable"]

_FIXTURES = {
    *("setUp", "asyncSetUp", "setUpClass", "setUpModule"),
    *("setup_method", "setup_class", "setup_module", "setup_function"),
}
_EXPECTING = ("Raises", "Warns", "Logs")
_OPTIONS = {"places", "delta", "msg", "rel", "abs", "rtol", "atol", "rel_tol", "abs_tol", "timeout", "encoding", "mode"}
"""Keyword arguments that say how to compare, rather than with what."""


@dataclass
class Literals:
    """Literals of a test and of the functions that it uses, each at most once.

    Attributes:
        expected: Constants, lists, tuples and sets that reach an assertion.
        inputs: Constants that reach a call of the submission.
    """

    expected: list[ast.expr] = field(default_factory=list)
    inputs: list[ast.Constant] = field(default_factory=list)


def entry_names(reference: ast.Module, entry_point: str | None) -> frozenset[str]:
    """Return the names by which tests call a submission: its entry point, and the functions and methods of the reference."""
    names = {node.name for node in ast.walk(reference) if isinstance(node, Function | ast.ClassDef)}
    names |= {entry_point} if entry_point else set()
    return frozenset(name for name in names if not name.startswith("__"))


def aliases(tree: ast.Module, names: frozenset[str]) -> frozenset[str]:
    """Return names together with those that a module of tests gives to the same objects: ``candidate = solve``."""
    found = set(names)
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id=target)], value=ast.Name(id=source)) if source in found:
                found.add(target)
            case ast.alias(name=source, asname=str(target)) if source in found:
                found.add(target)
    return frozenset(found)


def assertion_name(node: ast.AST) -> str:
    """Return the name of the assertion that a node calls; empty if it calls none."""
    if not isinstance(node, ast.Call):
        return ""
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return name if name.startswith("assert") else ""


def is_entry_call(node: ast.AST, names: frozenset[str]) -> bool:
    """Return whether a node calls the submission."""
    if not isinstance(node, ast.Call):
        return False
    return (node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")) in names


def reachable(test: SingleTest) -> list[ast.AST]:
    """Return the parts of a module that a test executes: its function, fixtures, and the functions that these mention."""
    functions = {node.name: node for node in ast.walk(test.tree) if isinstance(node, Function)}
    classes = [node for node in test.tree.body if isinstance(node, ast.ClassDef)]
    bodies = [test.tree.body, *(node.body for node in classes)]
    statements = [node for body in bodies for node in body if not isinstance(node, Function | ast.ClassDef)]
    pending = [name for name in (test.id.function if test.id else "", *_FIXTURES) if name in functions]
    if test.id is None:
        pending += [name for node in statements for name in _mentioned(node, functions)]
    found: dict[str, Function] = {}
    while pending:
        name = pending.pop()
        if name not in found:
            found[name] = functions[name]
            pending += _mentioned(functions[name], functions)
    return [*found.values(), *statements]


def find_literals(test: SingleTest, names: frozenset[str]) -> Literals:
    """Return the literals of a test.

    Args:
        test: The test.
        names: The names by which it calls the submission.
    """
    parts = reachable(test)
    asserting = {node.name for node in parts if isinstance(node, Function) and any(map(_is_assertion, ast.walk(node)))}
    flow = _Flow(names, asserting)
    for part in parts:
        flow.add(part)
    for part in parts:
        flow.follow(part)
    # A nested function is part of its outer one, too.
    inputs = {id(node): node for node in flow.inputs}
    expected = {id(node): node for node in flow.expected if id(node) not in inputs}
    return Literals(list(expected.values()), list(inputs.values()))


class _Flow:
    """Collects the literals of calls and assertions, and of the assignments and loops that they get their values from.

    Args:
        names: The names by which tests call the submission.
        asserting: Names of functions of the tests that assert something.
    """

    def __init__(self, names: frozenset[str], asserting: set[str]) -> None:
        self.expected: list[ast.expr] = []
        self.inputs: list[ast.Constant] = []
        self._names = names
        self._asserting = asserting
        self._input_names: set[str] = set()
        self._expected_names: set[str] = set()

    def add(self, part: ast.AST) -> None:
        """Collect the literals of calls and assertions."""
        inside: set[int] = set()
        for node in ast.walk(part):
            if is_entry_call(node, self._names):
                assert isinstance(node, ast.Call)
                for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
                    inside |= {id(item) for item in ast.walk(argument)}
                    self.inputs += [item for item in _literals(argument) if isinstance(item, ast.Constant)]
                    self._input_names |= _loaded(argument)
        for node in ast.walk(part):
            for value in self._asserted(node):
                self.expected += [item for item in _literals(value) if id(item) not in inside]
                self._expected_names |= {
                    item.id for item in ast.walk(value) if isinstance(item, ast.Name) and id(item) not in inside
                }

    def follow(self, part: ast.AST) -> None:
        """Collect the literals of assignments, loops and parameters whose targets reach calls and assertions."""
        for node in ast.walk(part):
            match node:
                case ast.Assign(targets=[target], value=value):
                    self._bind(target, value)
                case ast.AnnAssign(target=target, value=ast.expr() as value):
                    self._bind(target, value)
                case ast.For(target=target, iter=values) | ast.AsyncFor(target=target, iter=values):
                    self._bind_rows(target, values)
                case ast.Call(func=ast.Attribute(attr="parametrize"), args=[ast.Constant(value=str(names)), values, *_]):
                    targets = [ast.Name(name.strip()) for name in names.split(",")]
                    self._bind_rows(ast.Tuple(list(targets)) if len(targets) > 1 else targets[0], values)

    def _asserted(self, node: ast.AST) -> list[ast.expr]:
        """Return the expressions that an assertion, or a call of a function that asserts, depends on."""
        if isinstance(node, ast.Assert):
            return [node.test]
        if not isinstance(node, ast.Call):
            return []
        name = assertion_name(node)
        if name and any(word in name for word in _EXPECTING):
            return []
        if name or is_entry_call(node, frozenset(self._asserting)):
            arguments = node.args[:2] if "AlmostEqual" in name else node.args
            return [*arguments, *(keyword.value for keyword in node.keywords if keyword.arg not in _OPTIONS)]
        return []

    def _bind(self, target: ast.expr, value: ast.expr) -> None:
        if any(is_entry_call(item, self._names) for item in ast.walk(value)):
            return
        names = {item.id for item in ast.walk(target) if isinstance(item, ast.Name)}
        names |= {item.attr for item in ast.walk(target) if isinstance(item, ast.Attribute)}
        if names & self._expected_names:
            self.expected += _literals(value)
        elif names & self._input_names:
            self.inputs += [item for item in _literals(value) if isinstance(item, ast.Constant)]

    def _bind_rows(self, target: ast.expr, values: ast.expr) -> None:
        """Bind the columns of a table, or the whole table if it is not written as rows."""
        rows = values.elts if isinstance(values, ast.List | ast.Tuple) else []
        if isinstance(target, ast.Tuple) and rows:
            for row in rows:
                if isinstance(row, ast.Tuple | ast.List) and len(row.elts) == len(target.elts):
                    for item, value in zip(target.elts, row.elts, strict=True):
                        self._bind(item, value)
        else:
            self._bind(target, values)
            if isinstance(values, ast.Name) and _stored(target) & self._expected_names:
                self._expected_names.add(values.id)


def _literals(node: ast.AST) -> Iterator[ast.expr]:
    """Yield the literals of an expression, except those that select or format."""
    if isinstance(node, ast.JoinedStr):
        return
    if isinstance(node, ast.Constant) and node.value is not Ellipsis:
        yield node
    if isinstance(node, ast.List | ast.Tuple | ast.Set) and isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
        yield node
    for name, value in ast.iter_fields(node):
        if (isinstance(node, ast.Subscript) and name == "slice") or (isinstance(node, ast.keyword) and node.arg in _OPTIONS):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _literals(child)


def _mentioned(node: ast.AST, functions: Iterable[str]) -> list[str]:
    known = set(functions)
    names = {
        item.id if isinstance(item, ast.Name) else item.attr
        for item in ast.walk(node)
        if isinstance(item, ast.Name | ast.Attribute)
    }
    return sorted(names & known)


def _is_assertion(node: ast.AST) -> bool:
    return isinstance(node, ast.Assert) or bool(assertion_name(node))


def _loaded(node: ast.AST) -> set[str]:
    """Return the names and the attributes of ``self`` that an expression reads."""
    names = {item.id for item in ast.walk(node) if isinstance(item, ast.Name)} - {"self", "cls"}
    return names | {
        item.attr for item in ast.walk(node) if isinstance(item, ast.Attribute) and isinstance(item.value, ast.Name)
    }


def _stored(node: ast.AST) -> set[str]:
    return {item.id for item in ast.walk(node) if isinstance(item, ast.Name)}
