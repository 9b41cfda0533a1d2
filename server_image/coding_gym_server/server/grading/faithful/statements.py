"""Finds the assertions of tests, and replaces each by a call that asks about the values that it compares."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

__all__ = ["FUNCTIONS", "Assertion", "Form", "begin", "replace_assertions"]

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)

_ASKER = "__ask__"
_LEFT, _RIGHT = "__left__", "__right__"

_CONTRARIES: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.Lt: ast.GtE,
    ast.LtE: ast.Gt,
    ast.In: ast.NotIn,
    ast.Is: ast.IsNot,
}
_CONTRARIES |= {contrary: operator for operator, contrary in _CONTRARIES.items()}

_METHODS = {
    "assertTrue": _LEFT,
    "assertFalse": f"not {_LEFT}",
    **dict.fromkeys(("assertEqual", "assertListEqual", "assertTupleEqual"), f"{_LEFT} == {_RIGHT}"),
    **dict.fromkeys(("assertDictEqual", "assertSetEqual", "assertMultiLineEqual"), f"{_LEFT} == {_RIGHT}"),
    "assertNotEqual": f"{_LEFT} != {_RIGHT}",
    "assertIs": f"{_LEFT} is {_RIGHT}",
    "assertIsNot": f"{_LEFT} is not {_RIGHT}",
    "assertIsNone": f"{_LEFT} is None",
    "assertIsNotNone": f"{_LEFT} is not None",
    "assertIn": f"{_LEFT} in {_RIGHT}",
    "assertNotIn": f"{_LEFT} not in {_RIGHT}",
    "assertGreater": f"{_LEFT} > {_RIGHT}",
    "assertGreaterEqual": f"{_LEFT} >= {_RIGHT}",
    "assertLess": f"{_LEFT} < {_RIGHT}",
    "assertLessEqual": f"{_LEFT} <= {_RIGHT}",
    "assertIsInstance": f"isinstance({_LEFT}, {_RIGHT})",
    "assertNotIsInstance": f"not isinstance({_LEFT}, {_RIGHT})",
}
"""What the assertion methods of ``unittest`` assert, as expressions."""

_COMPARING_FUNCTION = re.compile(r"(?!.*(not|greater|less))\w*(equal|equals|close|same)", re.IGNORECASE)
"""Functions and methods that compare two values: ``allclose``, ``assert_frame_equal``, ``assertAlmostEqual``."""

_RAISING = {"raises", "assertRaises", "assertRaisesRegex"}
_TYPES = ("int", "str", "list", "dict", "tuple", "set", "float", "type(None)")
_EXCEPTIONS = ("ValueError", "TypeError", "KeyError", "IndexError", "ZeroDivisionError", "AttributeError", "type(None)")

_Node = TypeVar("_Node", bound=ast.AST)


@dataclass(frozen=True)
class Form:
    """Values, and what is asked about them.

    Attributes:
        values: The expressions whose values are computed, by their names in the predicates, in order.
        predicates: Expressions about ``__left__`` and ``__right__``. The first one of an assertion is what it asserts.
        other: Name in the predicates of a value that is not computed; empty if there is none.
    """

    values: dict[str, ast.expr]
    predicates: list[ast.expr]
    other: str = ""

    @property
    def is_functional(self) -> bool:
        """Whether the predicates mean the same in a function of their own."""
        inner = (node for predicate in self.predicates for node in ast.walk(predicate))
        return not any(isinstance(node, ast.Await | ast.Yield | ast.YieldFrom | ast.NamedExpr) for node in inner)

    def choosing(self, chosen: Sequence[int]) -> Form:
        """Return what asks which of some predicates hold; nothing if there are none, but the values are computed.

        Args:
            chosen: Indices of the predicates, in order.
        """
        return Form(self.values, [self.predicates[index] for index in chosen])

    def comparing(self, computed: int) -> Form:
        """Return what compares one of the two values with others than the second.

        Args:
            computed: Index of the value that is computed.
        """
        name, other = [*self.values][:: -1 if computed else 1]
        return Form({name: self.values[name]}, self.predicates, other)

    def statement(self, site: int, block: list[ast.stmt] | None) -> ast.stmt:
        """Return the statement that asks."""
        names = [*self.values, self.other] if self.other else self.values
        parameters = ast.arguments([], [ast.arg(name) for name in names], None, [], [], None, [])
        arguments: list[ast.expr] = [ast.Constant(site), *(ast.Lambda(parameters, one) for one in self.predicates)]
        if block is not None:
            call = ast.Call(ast.Attribute(_load(_ASKER), "raises", ast.Load()), arguments, [])
            return ast.With([ast.withitem(call)], block)
        arguments.insert(1, ast.Tuple([*self.values.values()], ast.Load()))
        return ast.Expr(ast.Call(_load(_ASKER), arguments, []))


@dataclass(frozen=True)
class Assertion:
    """An assertion, in at least one of two forms.

    Attributes:
        comparison: Its two values, and one predicate that could be asked about other values, too; None if it has no such form.
        contrary: Its values, and predicates that contradict the first; None if it has no such form.
        block: What raises an exception that the predicates are about; None if the values are computed by expressions.
    """

    comparison: Form | None
    contrary: Form | None
    block: list[ast.stmt] | None = None

    @property
    def form(self) -> Form:
        """The form that reports all values, and which predicates hold."""
        form = self.comparison or self.contrary
        assert form is not None
        return form


def replace_assertions(module: ast.Module, first: int, choose: Callable[[int, Assertion], Form]) -> int:
    """Replace the assertions of a module.

    Args:
        module: The module; it is changed.
        first: Number of the first assertion.
        choose: Returns what takes the place of an assertion with a number.

    Returns:
        The number after that of the last one.
    """
    rewriter = _Rewriter(first, choose)
    rewriter.visit(module)
    return rewriter.site


class _Rewriter(ast.NodeTransformer):
    def __init__(self, first: int, choose: Callable[[int, Assertion], Form]) -> None:
        self.site = first
        self._choose = choose
        self._classes: list[str] = []

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        self._classes.append(node.name)
        self.generic_visit(node)
        self._classes.pop()
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        self.generic_visit(node)
        if node.name.startswith("test"):
            node.body.insert(0, begin(".".join([*self._classes, node.name])))
        return node

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Assert(self, node: ast.Assert) -> list[ast.stmt]:
        node.msg = None
        return [self._replaced(part, _of_expression(part.test)) for part in _parts(node)]

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        match node.value:
            case ast.Call(func=ast.Attribute(attr=name), args=[_, _, *_]) if name in _RAISING:
                raised, function, *arguments = node.value.args
                call = ast.Call(function, arguments, node.value.keywords)
                return self._replaced(node, _of_block(raised, [ast.Expr(call)]))
        return self._replaced(node, _of_call(node.value))

    def visit_With(self, node: ast.With) -> ast.stmt:
        self.generic_visit(node)
        match node.items:
            case [ast.withitem(ast.Call(func=ast.Attribute(attr=name), args=[raised, *_]), None)] if name in _RAISING:
                return self._replaced(node, _of_block(raised, node.body))
        return node

    def _replaced(self, node: ast.stmt, assertion: Assertion | None) -> ast.stmt:
        if assertion is None or not (assertion.comparison or assertion.contrary):
            return node
        self.site += 1
        return self._choose(self.site - 1, assertion).statement(self.site - 1, assertion.block)


def begin(test: str) -> ast.stmt:
    """Return the statement that begins a test."""
    function = ast.Attribute(ast.Name(_ASKER, ast.Load()), "begin", ast.Load())
    return ast.Expr(ast.Call(function, [ast.Constant(test)], []))


def _parts(node: ast.Assert) -> Iterator[ast.Assert]:
    """Yield the assertions that are one: ``a and b`` holds if both do."""
    if isinstance(node.test, ast.BoolOp) and isinstance(node.test.op, ast.And):
        for value in node.test.values:
            yield from _parts(ast.Assert(value))
    else:
        yield node


def _of_call(call: ast.expr) -> Assertion | None:
    """Return the assertion that a call of a method or a function of a library is."""
    match call:
        case ast.Call(args=arguments) if any(isinstance(argument, ast.Starred) for argument in arguments):
            return None
        case ast.Call(func=ast.Attribute(value=ast.Name(), attr=name), args=[left, *others]) if name in _METHODS:
            expression = ast.parse(_METHODS[name], mode="eval").body
            values = {_LEFT: left, _RIGHT: others[0] if others else left}
            return _of_expression(_substituted(expression, lambda node: values.get(getattr(node, "id", ""))))
        case ast.Call(args=[left, right, *_]) if _name(call.func).startswith("assert") and _compares(call.func):
            call.keywords = [keyword for keyword in call.keywords if keyword.arg not in ("msg", "err_msg")]
            return Assertion(_comparison(call, left, right), None)
    return None


def _of_expression(test: ast.expr) -> Assertion | None:
    """Return the assertion of an expression."""
    falsehood = ast.UnaryOp(ast.Not(), _load(_LEFT))
    # A predicate that returns None is a function that asserts.
    truth: list[ast.expr] = [ast.UnaryOp(ast.Not(), falsehood), falsehood]
    whole = Form({_LEFT: test}, truth)
    match test:
        case ast.UnaryOp(ast.Not(), operand):
            # So that either of the two may be the one that holds.
            contrary = whole = Form({_LEFT: operand}, truth[::-1])
        case ast.Constant():
            return None
        case ast.Compare(left, [operator], [right]) if type(operator) in _CONTRARIES:
            sides: list[ast.expr] = [_load(_LEFT), _load(_RIGHT)]
            operators = (operator, _CONTRARIES[type(operator)]())
            contrary = Form({_LEFT: left, _RIGHT: right}, [ast.Compare(sides[0], [one], [sides[1]]) for one in operators])
        case ast.Call(func=ast.Name("isinstance"), args=[value, kind]):
            contrary = _of_kinds(value, kind, _TYPES)
        case _:
            contrary = whole
    if not contrary.is_functional:
        contrary = whole
    pair = _pair(test)
    return Assertion(_comparison(test, *pair) if pair is not None else None, contrary)


def _of_block(raised: ast.expr, block: list[ast.stmt]) -> Assertion:
    """Return the assertion that a block raises an exception."""
    return Assertion(None, _of_kinds(ast.Constant(None), raised, _EXCEPTIONS), block)


def _of_kinds(value: ast.expr, kind: ast.expr, others: tuple[str, ...]) -> Form:
    kinds = [kind, *(ast.parse(other, mode="eval").body for other in others if other != ast.unparse(kind))]
    return Form({_LEFT: value}, [ast.Call(_load("isinstance"), [_load(_LEFT), one], []) for one in kinds])


def _comparison(test: ast.expr, left: ast.expr, right: ast.expr) -> Form | None:
    names = {id(left): _LEFT, id(right): _RIGHT}
    predicate = _substituted(test, lambda node: _load(names[id(node)]) if id(node) in names else None)
    form = Form({_LEFT: left, _RIGHT: right}, [predicate])
    return form if form.is_functional else None


def _pair(test: ast.expr) -> tuple[ast.expr, ast.expr] | None:
    """Return the two values that an expression compares for equality, in whatever way."""
    match test:
        case ast.Compare(left, [ast.Eq()], [ast.Call(args=[right, *_]) as call]) if _name(call.func) == "approx":
            return left, right
        case ast.Compare(left, [ast.Eq()], [right]):
            return left, right
        case ast.Compare(left, [ast.Is()], [ast.Constant(bool()) as right]):
            return left, right
        case ast.Compare(ast.Call(args=[ast.BinOp(left, ast.Sub(), right)]), [ast.Lt() | ast.LtE()], [_]):
            return left, right
        case ast.Call(args=[inner], keywords=[]) if not _compares(test.func) and isinstance(inner, ast.Compare):
            return _pair(inner)
        case ast.Call(func=ast.Attribute(value=ast.Compare() as inner), args=[]):
            return _pair(inner)
        case ast.Call(args=[left, right, *_]) if _compares(test.func):
            return left, right
        case ast.Call(func=ast.Attribute(value=left), args=[right]) if _compares(test.func):
            return left, right
    return None


def _compares(function: ast.expr) -> bool:
    return _COMPARING_FUNCTION.match(_name(function)) is not None


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _load(name: str) -> ast.expr:
    return ast.Name(name, ast.Load())


def _substituted(node: _Node, replacement: Callable[[ast.AST], ast.expr | None]) -> _Node:
    """Return a copy of an expression in which some nodes are replaced."""
    new = replacement(node)
    if new is not None:
        return new  # type: ignore[return-value]
    fields = {
        name: [_substituted(item, replacement) if isinstance(item, ast.AST) else item for item in value]
        if isinstance(value, list)
        else _substituted(value, replacement)
        if isinstance(value, ast.AST)
        else value
        for name, value in ast.iter_fields(node)
    }
    return type(node)(**fields)
