"""Programs that must not pass: empty ones, stubs, and mutants of references."""

from __future__ import annotations

import ast
import copy
import random
import re
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
_HUNK = re.compile(r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")
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

    Operators are exchanged, constants changed, conditions negated, and returned values left out; of a patch, a hunk is left
    out.

    Args:
        task: The task.
        most: Maximum number of mutants, chosen at random, the same ones for each call.
    """
    source = task.reference_submission or ""
    if isinstance(task.tests, RepositoryTests):
        made = _without_hunks(source) if task.tests.submission == "patch" else {}
    else:
        made = {} if isinstance(task.tests, ScreenTests) else _changed_programs(source)
    names = list(made)
    chosen = names if len(names) <= most else sorted(random.Random(task.id).sample(names, most), key=names.index)  # noqa: S311
    return {name: made[name] for name in chosen}


def _without_hunks(patch: str) -> dict[str, str]:
    """Return a unified diff without one of its hunks, by the hunk; nothing if it has one only."""
    # Each with the lines before it, which name its file if it is the first one of that.
    hunks: list[tuple[list[str], list[str]]] = []
    before: list[str] = []
    old = new = 0
    for line in patch.split("\n"):
        heading = _HUNK.match(line) if old <= 0 and new <= 0 else None
        if heading is not None:
            old, new = (int(count or 1) for count in heading.groups())
            hunks.append((before, [line]))
            before = []
        elif hunks and (old > 0 or new > 0 or line.startswith("\\")):
            # Some editors remove the space of an empty line.
            old -= line[:1] in ("", " ", "-")
            new -= line[:1] in ("", " ", "+")
            hunks[-1][1].append(line)
        else:
            before.append(line)
    made = {}
    for number, (_, (first, *_)) in enumerate(hunks if len(hunks) > 1 else ()):
        kept = list(hunks)
        names, _ = kept.pop(number)
        if number < len(kept) and not kept[number][0]:
            kept[number] = (names, kept[number][1])
        lines = [line for hunk in kept for part in hunk for line in part]
        made[f"hunk {number + 1} is left out: {first}"] = "\n".join(lines) + "\n"
    return made


def _changed_programs(source: str) -> dict[str, str]:
    """Return the source of programs that differ from one at one place, by the change."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    made: dict[str, str] = {}
    for number, node in enumerate(ast.walk(tree)):
        for change, mutant in _changed(node):
            copied = copy.deepcopy(tree)
            _replace(copied, number, mutant)
            text = ast.unparse(ast.fix_missing_locations(copied)) + "\n"
            made.setdefault(f"line {getattr(node, 'lineno', '?')}: {change}", text)
    return made


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
