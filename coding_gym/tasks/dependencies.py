"""``DefinitionTracker``: tracks an agent's definitions, so that a submission can be made self-contained."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass

from coding_gym.tasks.submission import defined_names, parse, put_before

__all__ = ["DefinitionTracker"]

_DEFERRED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_KEPT = (ast.Import, ast.ImportFrom, *_DEFERRED, ast.Assign, ast.AnnAssign, ast.AugAssign)


@dataclass(frozen=True)
class _Statement:
    """A top-level definition.

    Attributes:
        source: Its source text.
        binds: The names that it binds or whose values it changes.
        replaces: The subset of ``binds`` whose new values do not depend on the previous ones.
        uses: The names that it reads.
        is_late: Whether it also reads them when it is called.
    """

    source: str
    binds: frozenset[str]
    replaces: frozenset[str]
    uses: frozenset[str]
    is_late: bool


class DefinitionTracker:
    r"""Tracks the top-level imports, functions, classes and assignments of a sequence of code fragments.

    Dependencies are resolved by name: for each name that a fragment uses, the last statement that binds it, the statements that
    have modified it since, and their own dependencies. Effects of loops, conditionals and bare calls are not tracked.

    Example:
        >>> definitions = DefinitionTracker()
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

    def __copy__(self) -> DefinitionTracker:
        copied = DefinitionTracker()
        copied._statements = [*self._statements]
        return copied

    def add(self, code: str) -> None:
        """Record the definitions in a code fragment; a fragment that does not parse is ignored."""
        module = parse(code)
        if module is not None:
            self._statements += [_statement(node) for node in module.body if isinstance(node, _KEPT)]

    def clear(self) -> None:
        """Discard all recorded definitions."""
        self._statements.clear()

    def program(self, code: str) -> str:
        """Return a code fragment preceded by the definitions that it depends on."""
        module = parse(code)
        if module is None or not self._statements:
            return code
        needed: set[str] = set()
        own: frozenset[str] = frozenset()
        for node in module.body:
            uses, replaces = _used_by(node), _replaced_by(node)
            needed |= uses - own - (replaces if isinstance(node, _DEFERRED) else frozenset())
            own |= replaces
        earlier = "".join(f"{self._statements[number].source}\n" for number in sorted(self._needed_for(needed)))
        return put_before(earlier, code, module)

    def _needed_for(self, names: Iterable[str]) -> set[int]:
        """Return the indices of the statements on which names depend after the last statement."""
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
                    # A function resolves names when it is called.
                    places = {number, end} if statement.is_late else {number}
                    open_uses += [(used, place) for used in statement.uses for place in places]
                    if name in statement.replaces:
                        break
        return chosen


def _statement(node: ast.stmt) -> _Statement:
    replaces = _replaced_by(node)
    return _Statement(ast.unparse(node), _bound_by(node), replaces, _used_by(node), isinstance(node, _DEFERRED))


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
    """Return the names that a syntax tree reads, at any depth."""
    changed = [_names(node.target, (ast.Store,)) for node in ast.walk(tree) if isinstance(node, ast.AugAssign)]
    return _names(tree, (ast.Load,)).union(*changed)


def _names(tree: ast.AST, contexts: tuple[type[ast.expr_context], ...]) -> frozenset[str]:
    return frozenset(node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, contexts))
