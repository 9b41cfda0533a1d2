"""Policy transformer, which rejects forbidden syntax and rewrites a cell so that every access passes through a guard."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from RestrictedPython.transformer import IOPERATOR_TO_STR, RestrictingNodeTransformer

from coding_gym_server.ipc.text import source_lines
from coding_gym_server.worker.backends.restricted import match_rewrite as patterns
from coding_gym_server.worker.backends.restricted import names

__all__ = ["GUARDS", "PolicyTransformer"]

GUARDS = {
    "attribute": "_getattr_",
    "item": "_getitem_",
    "iteration": "_getiter_",
    "write": "_write_",
    "in_place": "_inplacevar_",
    "load": "_import_",
    "load_from": "_import_from_",
    "load_all": "_import_all_",
    "metaclass": "_metaclass_",
}
"""Names of the functions that a transformed cell calls, keyed by the operation that they guard."""

_MODULE_NAMES = {"__name__", "__doc__"}
_Visited = Any
_Node = TypeVar("_Node", bound=ast.AST)
_Function = ast.FunctionDef | ast.AsyncFunctionDef


class PolicyTransformer(RestrictingNodeTransformer):
    """Extends RestrictedPython's transformer, which rejects unknown syntax, with support for more of the language.

    Args:
        filename: The file name to report in errors.
        source: The source code, whose lines are quoted in errors.
    """

    def __init__(self, filename: str, source: str) -> None:
        super().__init__()
        self._filename = filename
        self._lines = source_lines(source)
        self._classes: list[str] = []
        self._is_in_class_body = False

    # Errors and names.

    def error(self, node: ast.AST, info: str) -> None:
        """Reject a cell.

        Raises:
            SyntaxError: Always, with the source location.
        """
        line = getattr(node, "lineno", 1)
        text = self._lines[line - 1] if line <= len(self._lines) else None
        location = (self._filename, line, getattr(node, "col_offset", 0) + 1, text)
        message = f"{info} (a rule of the restricted backend)"
        raise SyntaxError(message, location)

    def warn(self, node: ast.AST, info: str) -> None:
        """Ignore warnings of the base class."""

    def gen_tmp_name(self) -> str:
        return f"{super().gen_tmp_name()}_"

    def check_name(self, node: Any, name: str | None, allow_magic_methods: bool = False) -> None:
        """Reject a cell with a name that a variable, function, class or parameter must not have."""
        if name is None or names.may_use(name) or (allow_magic_methods and names.may_define(name)):
            return
        if self._mangled(name) != name:
            return
        self.error(node, f"{name!r} is reserved by the language or the restricted backend")

    def _mangled(self, name: str) -> str:
        """Return a name as the compiler mangles it inside the current class."""
        owner = self._classes[-1].lstrip("_") if self._classes else ""
        return f"_{owner}{name}" if owner and names.is_dunder(name) and not name.endswith("__") else name

    # Names, attributes, items.

    def visit_Name(self, node: ast.Name) -> _Visited:
        if not (isinstance(node.ctx, ast.Load) and node.id in _MODULE_NAMES):
            self.check_name(node, node.id, allow_magic_methods=self._is_in_class_body)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> _Visited:
        node.attr = self._mangled(node.attr)
        is_read = isinstance(node.ctx, ast.Load)
        if not (names.may_read(node.attr) if is_read else names.may_set(node.attr)):
            self.error(node, f"the attribute {node.attr!r} may not be {'read' if is_read else 'set'}")
        node = self.node_contents_visit(node)
        name = ast.Constant(node.attr)
        if is_read:
            return _call(node, "attribute", node.value, name)
        node.value = _call(node, "write", node.value, name)
        return node

    def visit_Subscript(self, node: ast.Subscript) -> _Visited:
        node = self.node_contents_visit(node)
        return _call(node, "item", node.value, node.slice) if isinstance(node.ctx, ast.Load) else node

    def visit_Call(self, node: ast.Call) -> _Visited:
        return self.node_contents_visit(node)

    # Assignments.

    def visit_Assign(self, node: ast.Assign) -> _Visited:
        node = self.node_contents_visit(node)
        if any(isinstance(target, ast.Tuple | ast.List) for target in node.targets):
            node.value = _call(node.value, "iteration", node.value)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> _Visited:
        return self.node_contents_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> _Visited:
        """Rewrite ``a.b += c`` as ``_write_(a).b = _inplacevar_("+=", _getattr_(a, "b"), c)``, with ``a`` evaluated once."""
        target = node.target
        read: ast.expr
        if isinstance(target, ast.Name):
            read = ast.Name(target.id, ast.Load())
        elif isinstance(target, ast.Attribute):
            owner, target.value = self._evaluate_once(target.value)
            read = ast.Attribute(owner, target.attr, ast.Load())
        else:
            owner, target.value = self._evaluate_once(target.value)
            key, target.slice = self._evaluate_once(target.slice)
            read = ast.Subscript(owner, key, ast.Load())
        operation = ast.Constant(IOPERATOR_TO_STR[type(node.op)])
        read = self.visit(patterns.at(node.target, read))
        value = _call(node, "in_place", operation, read, self.visit(node.value))
        return patterns.at(node, ast.Assign([self.visit(target)], value))

    def _evaluate_once(self, value: ast.expr) -> tuple[ast.expr, ast.expr]:
        """Return an expression that stores a value in a temporary variable, and one that loads the variable."""
        name = self.gen_tmp_name()
        keep = ast.NamedExpr(patterns.Internal(name, ast.Store()), value)
        return keep, patterns.at(value, patterns.Internal(name, ast.Load()))

    def visit_Internal(self, node: patterns.Internal) -> _Visited:
        return node

    # Iteration and patterns.

    def guard_iter(self, node: Any) -> _Visited:
        node = self.node_contents_visit(node)
        if not getattr(node, "is_async", False):
            node.iter = _call(node.iter, "iteration", node.iter)
        return node

    def visit_Match(self, node: ast.Match) -> _Visited:
        for part in ast.walk(node):
            if isinstance(part, ast.MatchAs | ast.MatchStar):
                self.check_name(part, part.name)
            elif isinstance(part, ast.MatchMapping):
                self.check_name(part, part.rest)
            elif isinstance(part, ast.MatchClass):
                part.kwd_attrs = [self._mangled(name) for name in part.kwd_attrs]
                for name in part.kwd_attrs:
                    if not names.may_read(name):
                        self.error(part, f"the attribute {name!r} may not be read")
        return [self.visit(statement) for statement in patterns.rewrite_match(node, self.gen_tmp_name)]

    # Functions and classes.

    def visit_FunctionDef(self, node: ast.FunctionDef) -> _Visited:
        return self._visit_function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> _Visited:
        return self._visit_function(node)

    def visit_Lambda(self, node: ast.Lambda) -> _Visited:
        with self._body(is_class=False):
            return self.node_contents_visit(node)

    def visit_arg(self, node: ast.arg) -> _Visited:
        self.check_name(node, node.arg)
        return self.node_contents_visit(node)

    def _visit_function(self, node: _Function) -> _Function:
        self.check_name(node, node.name, allow_magic_methods=self._is_in_class_body)
        # Decorators, defaults and annotations belong to the enclosing scope.
        self._visit_fields(node, ("decorator_list", "args", "returns", "type_params"))
        with self._body(is_class=False):
            self._visit_fields(node, ("body",))
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> _Visited:
        self.check_name(node, node.name)
        self._visit_fields(node, ("decorator_list", "bases", "keywords", "type_params"))
        for keyword in node.keywords:
            if keyword.arg == "metaclass" or keyword.arg is None:
                keyword.value = _call(keyword.value, "metaclass", keyword.value, ast.Constant(keyword.arg))
        self._classes.append(node.name)
        with self._body(is_class=True):
            self._visit_fields(node, ("body",))
        self._classes.pop()
        return node

    @contextlib.contextmanager
    def _body(self, *, is_class: bool) -> Iterator[None]:
        before, self._is_in_class_body = self._is_in_class_body, is_class
        yield
        self._is_in_class_body = before

    def _visit_fields(self, node: ast.AST, fields: Sequence[str]) -> None:
        """Visit the given fields of a node."""
        for name in fields:
            part = getattr(node, name, None)
            if isinstance(part, ast.AST):
                setattr(node, name, self.visit(part))
            elif part:
                holder = ast.Module(part, [])
                setattr(node, name, self.node_contents_visit(holder).body)

    def visit_Global(self, node: ast.Global) -> _Visited:
        for name in node.names:
            self.check_name(node, name)
        return node

    def visit_Nonlocal(self, node: ast.Nonlocal) -> _Visited:
        for name in node.names:
            self.check_name(node, name)
        return node

    # Imports.

    def visit_Import(self, node: ast.Import) -> _Visited:
        """Rewrite ``import a.b`` as ``a = _import_("a.b", False)``, ``import a.b as c`` as ``c = _import_("a.b", True)``."""
        statements = []
        for alias in node.names:
            target = alias.asname or alias.name.partition(".")[0]
            self.check_name(node, target)
            module = _call(node, "load", ast.Constant(alias.name), ast.Constant(alias.asname is not None))
            statements.append(patterns.at(node, ast.Assign([ast.Name(target, ast.Store())], module)))
        return statements

    def visit_ImportFrom(self, node: ast.ImportFrom) -> _Visited:
        """Rewrite ``from a import b`` as ``b = _import_from_("a", "b")``: the interpreter would bypass the guards."""
        if node.module == "__future__" and node.level == 0:
            return node
        source = ast.Constant("." * node.level + (node.module or ""))
        if node.names[0].name == "*":
            return patterns.at(node, ast.Expr(_call(node, "load_all", source)))
        statements = []
        for alias in node.names:
            target = alias.asname or alias.name
            self.check_name(node, target)
            value = _call(node, "load_from", source, ast.Constant(alias.name))
            statements.append(patterns.at(node, ast.Assign([ast.Name(target, ast.Store())], value)))
        return statements

    # Nodes that only need the guards of their parts.

    def _admit(self, node: _Node) -> _Node:
        return self.node_contents_visit(node)

    visit_With = visit_AsyncWith = visit_Await = visit_Module = _admit
    visit_TypeAlias = _admit

    def visit_AsyncFor(self, node: ast.AsyncFor) -> _Visited:
        return self.node_contents_visit(node)

    def visit_TypeVar(self, node: Any) -> _Visited:
        self.check_name(node, node.name)
        return self.node_contents_visit(node)

    visit_ParamSpec = visit_TypeVarTuple = visit_TypeVar


def _call(location: ast.AST, guard: str, *arguments: ast.expr) -> ast.Call:
    """Return a call of a guard at the location of a syntax node."""
    return patterns.at(location, ast.Call(patterns.Internal(GUARDS[guard], ast.Load()), [*arguments], []))
