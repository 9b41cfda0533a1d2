"""``Definitions``: what an agent has defined so far, so that what it submits stands by itself."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass

from coding_gym.tasks.completion import defined_names, parse, put_before

__all__ = ["Definitions"]

_LATE = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_KEPT = (ast.Import, ast.ImportFrom, *_LATE, ast.Assign, ast.AnnAssign, ast.AugAssign)


@dataclass(frozen=True)
class _Statement:
    """A definition.

    Attributes:
        source: Its text.
        binds: The names that it binds, or whose values it changes.
        replaces: Those of them that owe nothing to what they were before.
        uses: The names that it reads.
        is_late: Whether it reads them when it is called, too.
    """

    source: str
    binds: frozenset[str]
    replaces: frozenset[str]
    uses: frozenset[str]
    is_late: bool


class Definitions:
    r"""The imports, functions, classes and assignments at the top level of some pieces of code, in their order.

    Names decide what a piece of code needs of those before it: of each name that it uses the last statement that binds it,
    those that have changed it since, and what these need in turn. What loops, conditions and mere calls have made is not kept.

    Example:
        >>> definitions = Definitions()
        >>> definitions.add("import math\nBASE = 2\nprint('hello')")
        >>> definitions.add("def log(n):\n    return math.log(n, BASE)")
        >>> print(definitions.program("def bits(n):\n    return int(log(n)) + 1"))
        import math
        BASE = 2
        def log(n):
            return math.log(n, BASE)
        def bits(n):
            return int(log(n)) + 1
    """

    def __init__(self) -> None:
        self._statements: list[_Statement] = []

    def add(self, code: str) -> None:
        """Take note of what a piece of code defines; of one that does not parse, nothing."""
        module = parse(code)
        if module is not None:
            self._statements += [_statement(node) for node in module.body if isinstance(node, _KEPT)]

    def clear(self) -> None:
        """Forget everything."""
        self._statements.clear()

    def program(self, code: str) -> str:
        """Return a piece of code below those definitions that it needs."""
        module = parse(code)
        if module is None or not self._statements:
            return code
        needed: set[str] = set()
        own: frozenset[str] = frozenset()
        for node in module.body:
            uses, replaces = _used_by(node), _replaced_by(node)
            needed |= uses - own - (replaces if isinstance(node, _LATE) else frozenset())
            own |= replaces
        earlier = "".join(f"{self._statements[number].source}\n" for number in sorted(self._needed_for(needed)))
        return put_before(earlier, code, module)

    def _needed_for(self, names: Iterable[str]) -> set[int]:
        """Return the numbers of the statements that names need at the end."""
        chosen: set[int] = set()
        seen: set[tuple[str, int]] = set()
        open_uses = [(name, len(self._statements)) for name in names]
        while open_uses:
            name, end = use = open_uses.pop()
            if use in seen:
                continue
            seen.add(use)
            for number in reversed(range(end)):
                statement = self._statements[number]
                if name in statement.binds:
                    chosen.add(number)
                    # A function finds what its names mean when it is called.
                    places = {number, end} if statement.is_late else {number}
                    open_uses += [(used, place) for used in statement.uses for place in places]
                    if name in statement.replaces:
                        break
        return chosen


def _statement(node: ast.stmt) -> _Statement:
    replaces = _replaced_by(node)
    return _Statement(ast.unparse(node), _bound_by(node), replaces, _used_by(node), isinstance(node, _LATE))


def _bound_by(node: ast.stmt) -> frozenset[str]:
    if isinstance(node, ast.AugAssign):
        return _names(node.target, (ast.Load, ast.Store))
    return frozenset(defined_names(ast.Module([node], [])))


def _replaced_by(node: ast.stmt) -> frozenset[str]:
    match node:
        case ast.Assign():
            return frozenset[str]().union(*(_names(target, (ast.Store,)) for target in node.targets))
        case ast.AnnAssign():
            return _names(node.target, (ast.Store,)) if node.value is not None else frozenset()
        case ast.Import() | ast.ImportFrom() | ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return _bound_by(node)
    return frozenset()


def _used_by(tree: ast.AST) -> frozenset[str]:
    """Return the names that are read, anywhere in it."""
    changed = [_names(node.target, (ast.Store,)) for node in ast.walk(tree) if isinstance(node, ast.AugAssign)]
    return _names(tree, (ast.Load,)).union(*changed)


def _names(tree: ast.AST, contexts: tuple[type[ast.expr_context], ...]) -> frozenset[str]:
    return frozenset(node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, contexts))
