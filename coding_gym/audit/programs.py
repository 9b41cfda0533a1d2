"""Programs that must not pass: empty ones, stubs, and mutants of references."""

from __future__ import annotations

import ast
import copy
import random
from collections.abc import Iterator

from coding_gym.tasks import RepositoryTests, ScreenTests, Task

__all__ = ["empty_programs", "mutants", "stubs"]

_CONSTANTS = ("None", "True", "False", "0", "1", "''", "[]", "{}", "args[0]")
"""What functions return that compute nothing."""
_PROGRAMS = ("print()", "print(0)", "print('yes')", "import sys\nprint(sys.stdin.read())")
"""Programs that do not depend on their input, or only repeat it."""

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.FloorDiv,
    ast.FloorDiv: ast.Div,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
}


def empty_programs(task: Task) -> dict[str, str]:
    """Return submissions that say nothing, by name."""
    if isinstance(task.tests, RepositoryTests):
        return {"nothing": ""}
    return {"nothing": "", "a comment": "# TODO\n", "pass": "    pass\n" if task.prefix else "pass\n"}


def stubs(task: Task) -> dict[str, str]:
    """Return submissions that compute nothing, by name; none for repositories and programs with windows."""
    if isinstance(task.tests, RepositoryTests | ScreenTests):
        return {}
    if task.entry_point is None:
        return {code.splitlines()[-1]: code for code in _PROGRAMS}
    head = f"def {task.entry_point}(*args, **options):\n    return "
    raising = f"def {task.entry_point}(*args, **options):\n    raise ValueError\n"
    return {f"returns {value}": f"{head}{value}\n" for value in _CONSTANTS} | {"raises ValueError": raising}


def mutants(task: Task, most: int) -> dict[str, str]:
    """Return mutants of the reference of a task, by the change, each of which differs from it at one place.

    Operators are exchanged, constants changed, conditions negated, and returned values left out.

    Args:
        task: The task.
        most: Maximum number of mutants, chosen at random, the same ones for each call.
    """
    if isinstance(task.tests, RepositoryTests | ScreenTests):
        return {}
    source = task.reference_submission
    try:
        tree = ast.parse(source or "")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    made: dict[str, str] = {}
    for number, node in enumerate(ast.walk(tree)):
        for change, mutant in _changed(node):
            copied = copy.deepcopy(tree)
            _replace(copied, number, mutant)
            text = ast.unparse(ast.fix_missing_locations(copied)) + "\n"
            made.setdefault(f"line {getattr(node, 'lineno', '?')}: {change}", text)
    names = list(made)
    chosen = names if len(names) <= most else sorted(random.Random(task.id).sample(names, most), key=names.index)  # noqa: S311
    return {name: made[name] for name in chosen}


def _changed(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Yield changes of a node, each with the node that takes its place."""
    match node:
        case ast.Compare(ops=[operator, *others]) if type(operator) in _COMPARISONS:
            other = _COMPARISONS[type(operator)]
            yield f"{_name(operator)} becomes {other.__name__}", ast.Compare(node.left, [other(), *others], node.comparators)
        case ast.BinOp(op=operator) if type(operator) in _OPERATORS:
            changed = _OPERATORS[type(operator)]
            yield f"{_name(operator)} becomes {changed.__name__}", ast.BinOp(node.left, changed(), node.right)
        case ast.BoolOp(op=ast.And()):
            yield "and becomes or", ast.BoolOp(ast.Or(), node.values)
        case ast.BoolOp(op=ast.Or()):
            yield "or becomes and", ast.BoolOp(ast.And(), node.values)
        case ast.UnaryOp(op=ast.Not()):
            yield "not is left out", node.operand
        case ast.Constant(value=bool(value)):
            yield f"{value} becomes {not value}", ast.Constant(not value)
        case ast.Constant(value=int(value)):
            yield f"{value} becomes {value + 1}", ast.Constant(value + 1)
        case ast.If(test=test):
            yield "the condition is negated", ast.If(ast.UnaryOp(ast.Not(), test), node.body, node.orelse)
        case ast.Return(value=ast.expr()):
            yield "returns None", ast.Return(ast.Constant(None))


def _name(operator: ast.AST) -> str:
    return type(operator).__name__


def _replace(tree: ast.AST, number: int, mutant: ast.AST) -> None:
    """Put a node in the place of the one with a number, in the order of ``ast.walk``."""
    place = next(node for index, node in enumerate(ast.walk(tree)) if index == number)
    for parent in ast.walk(tree):
        for field, value in ast.iter_fields(parent):
            if value is place:
                setattr(parent, field, mutant)
                return
            if isinstance(value, list) and any(item is place for item in value):
                value[next(index for index, item in enumerate(value) if item is place)] = mutant
                return
