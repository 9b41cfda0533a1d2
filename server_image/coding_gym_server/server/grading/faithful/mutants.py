"""Mutants of a reference: programs that differ from it in one to three places, as wrong solutions do."""

from __future__ import annotations

import ast
import copy
import random
from collections.abc import Iterator
from typing import Any, TypeVar

__all__ = ["mutants"]

_MAX_CHANGES = 3
_TRIES = 4

_OPERATORS: list[tuple[Any, ...]] = [
    (ast.Add, ast.Sub, ast.Mult),
    (ast.Mult, ast.Div, ast.FloorDiv, ast.Add),
    (ast.Mod, ast.FloorDiv),
    (ast.Lt, ast.LtE, ast.Gt, ast.GtE),
    (ast.Eq, ast.NotEq),
    (ast.In, ast.NotIn),
    (ast.Is, ast.IsNot),
    (ast.And, ast.Or),
    (ast.BitAnd, ast.BitOr, ast.BitXor),
    (ast.LShift, ast.RShift),
]
"""Operators that replace each other."""

_NAMES = [
    ("min", "max"),
    ("any", "all"),
    ("sum", "max", "len"),
    ("upper", "lower", "title"),
    ("lstrip", "rstrip", "strip"),
    ("floor", "ceil", "round"),
    ("mean", "median", "sum", "max", "min", "std"),
    ("append", "extend"),
    ("sorted", "list"),
    ("startswith", "endswith"),
    ("union", "intersection", "difference"),
]
"""Functions and methods that replace each other."""

_Item = TypeVar("_Item")
Change = tuple[ast.AST, str, Any]
"""A node, one of its fields, and another value of the field."""


def mutants(reference: str, count: int, rng: random.Random) -> list[str]:
    """Return mutants of a program, each once; fewer than ``count`` if there are no more.

    Args:
        reference: The program.
        count: Number of mutants.
        rng: Source of randomness.

    Raises:
        SyntaxError: If it is not valid Python.
        ValueError: If it contains null characters.
        RecursionError: If it is nested too deeply.
    """
    tree = ast.parse(reference)
    found = {ast.unparse(tree): None}
    for number in range(_TRIES * count):
        mutant = copy.deepcopy(tree)
        # Most wrong solutions are nearly right.
        for _ in range(1 + number % _MAX_CHANGES):
            changes = list(_changes(mutant, rng))
            if changes:
                setattr(*rng.choice(changes))
        found.setdefault(ast.unparse(ast.fix_missing_locations(mutant)), None)
        if len(found) > count:
            break
    return list(found)[1:]


def _changes(tree: ast.Module, rng: random.Random) -> Iterator[Change]:
    for node in ast.walk(tree):
        match node:
            case ast.BinOp(op=operator) | ast.BoolOp(op=operator) | ast.AugAssign(op=operator):
                yield from ((node, "op", other()) for other in _others(type(operator), _OPERATORS))
            case ast.Compare(ops=[operator]):
                yield from ((node, "ops", [other()]) for other in _others(type(operator), _OPERATORS))
            case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
                yield node, "operand", ast.UnaryOp(node.op, operand)
            case ast.Name(id=name, ctx=ast.Load()):
                yield from ((node, "id", other) for other in _others(name, _NAMES))
            case ast.Attribute(attr=name, ctx=ast.Load()):
                yield from ((node, "attr", other) for other in _others(name, _NAMES))
            case ast.Call(args=[first, second, *others]):
                yield node, "args", [second, first, *others]
            case ast.Call(keywords=[ast.keyword(arg="reverse" | "key"), *others]):
                yield node, "keywords", others
            case ast.Slice(lower=lower):
                yield node, "lower", ast.Constant(1) if lower is None else None
            case ast.comprehension(ifs=[_, *others]):
                yield node, "ifs", others
            case ast.If(test=test) | ast.IfExp(test=test):
                yield node, "test", ast.UnaryOp(ast.Not(), test)
            case ast.Return(value=ast.expr() as value):
                yield from ((node, "value", other) for other in _other_results(value))
        yield from _changes_of_fields(node, rng)


def _changes_of_fields(node: ast.AST, rng: random.Random) -> Iterator[Change]:
    """Yield changes of the constants in a node, and removals of statements from its blocks."""
    for field, value in ast.iter_fields(node):
        if isinstance(value, ast.Constant) and isinstance(value.value, int | float | str) and not isinstance(node, ast.Expr):
            yield node, field, ast.Constant(_other_value(value.value, rng))
        elif isinstance(value, list) and not isinstance(node, ast.Module | ast.ClassDef):
            for number, item in enumerate(value):
                others = value[:number], value[number + 1 :]
                if isinstance(item, ast.Constant) and isinstance(item.value, int | float | str):
                    yield node, field, [*others[0], ast.Constant(_other_value(item.value, rng)), *others[1]]
                elif isinstance(item, ast.Assign | ast.AugAssign | ast.If | ast.For | ast.Raise | ast.Break | ast.Continue) or (
                    isinstance(item, ast.Expr) and isinstance(item.value, ast.Call)
                ):
                    yield node, field, [*others[0], ast.Pass(), *others[1]]


def _others(item: _Item, groups: list[tuple[_Item, ...]]) -> Iterator[_Item]:
    """Yield what can replace an item."""
    for group in groups:
        if item in group:
            yield from (other for other in group if other != item)


def _other_value(value: float | str, rng: random.Random) -> float | str:
    if isinstance(value, bool):
        return not value
    if isinstance(value, str):
        return rng.choice(["", value[1:], value[:-1], value.swapcase(), value + " "])
    return rng.choice([value + 1, value - 1, value * 2, 0])


def _other_results(value: ast.expr) -> Iterator[ast.expr]:
    """Yield expressions whose values look like that of a returned one."""
    one = ast.Constant(1)
    if isinstance(value, ast.List | ast.ListComp):
        yield ast.Subscript(value, ast.Slice(one), ast.Load())
        yield ast.Subscript(value, ast.Slice(None, None, ast.Constant(-1)), ast.Load())
    if isinstance(value, ast.Compare | ast.BoolOp):
        yield ast.UnaryOp(ast.Not(), value)
    if isinstance(value, ast.Call | ast.BinOp | ast.Name | ast.Subscript):
        # As many types as possible: what fails is no value.
        yield ast.BinOp(value, ast.Add(), one)
        yield ast.BinOp(value, ast.Sub(), one)
        yield ast.Subscript(value, ast.Slice(one), ast.Load())
        yield ast.Subscript(value, ast.Slice(None, ast.Constant(-1)), ast.Load())
        yield ast.Subscript(value, ast.Slice(None, None, ast.Constant(-1)), ast.Load())
        yield ast.UnaryOp(ast.Not(), value)
    if isinstance(value, ast.Tuple) and len(value.elts) > 1:
        yield ast.Tuple(value.elts[::-1], ast.Load())
