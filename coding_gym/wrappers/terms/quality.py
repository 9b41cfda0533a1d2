"""Terms for code quality: length, complexity and linter findings.

They are costs of 0 to 1; use negative weights.
"""

from __future__ import annotations

import ast
import importlib.util

from coding_gym._validation import check_count
from coding_gym.errors import ConfigurationError
from coding_gym.wrappers.terms.base import RewardTerm, Step
from coding_gym.wrappers.terms.syntax import parse

__all__ = ["Complexity", "Length", "Lint", "cyclomatic_complexity"]

_BRANCHES = (ast.If, ast.IfExp, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.Assert)


class Length(RewardTerm):
    r"""The length of the code.

    Args:
        limit: Number of characters, excluding leading and trailing white space, at which the cost saturates at 1.

    Raises:
        ConfigurationError: If the limit is not a positive integer.

    Example:
        >>> Length(limit=100)(Step(action="x = 1\n" * 5, observation={}, info={}))
        0.29
    """

    name = "length"

    def __init__(self, *, limit: int = 1000) -> None:
        check_count("limit", limit, 1)
        self._limit = limit

    def __call__(self, step: Step) -> float:
        return min(1.0, len(step.code.strip()) / self._limit)


class Complexity(RewardTerm):
    r"""The cyclomatic complexity of the code, minus one. Code that cannot be parsed costs 0.

    Args:
        limit: Complexity at which the cost saturates at 1.

    Raises:
        ConfigurationError: If the limit is not an integer of at least 2.

    Example:
        >>> code = "for n in range(9):\n    if n % 2 and n > 3:\n        print(n)"
        >>> Complexity(limit=11)(Step(action=code, observation={}, info={}))
        0.3
    """

    name = "complexity"

    def __init__(self, *, limit: int = 21) -> None:
        check_count("limit", limit, 2)
        self._limit = limit

    def __call__(self, step: Step) -> float:
        try:
            tree = parse(step.code)
        except RecursionError:
            return 1.0
        return 0.0 if tree is None else min(1.0, (cyclomatic_complexity(tree) - 1) / (self._limit - 1))


class Lint(RewardTerm):
    r"""The number of pyflakes findings in the code: undefined names, unused values ...

    Names that earlier steps of the episode defined count as defined. Code that cannot be parsed costs 1.

    Args:
        limit: Number of findings at which the cost saturates at 1.
        ignore: Class names of pyflakes messages to ignore; by default ``UnusedImport``, since an import may be for a later
            step.

    Raises:
        ConfigurationError: If the limit is not a positive integer, or pyflakes is not installed.

    Example:
        >>> term = Lint(limit=2)
        >>> [
        ...     term(Step(action=code, observation={}, info={}))
        ...     for code in ("import math\nx = 1", "print(math.pi, x, y)", "print(z, x, y)", "print(")
        ... ]
        [0.0, 0.5, 1.0, 1.0]
    """

    name = "lint"

    def __init__(self, *, limit: int = 10, ignore: tuple[str, ...] = ("UnusedImport",)) -> None:
        check_count("limit", limit, 1)
        if importlib.util.find_spec("pyflakes") is None:
            message = "The lint term requires pyflakes: pip install 'coding-gym[lint]'"
            raise ConfigurationError(message)
        self._limit = limit
        self._ignore = frozenset(ignore)
        self._defined: set[str] = set()

    def reset(self) -> None:
        self._defined = set()

    def __call__(self, step: Step) -> float:
        from pyflakes import checker

        try:
            tree = parse(step.code)
            if tree is None:
                return 1.0
            found = checker.Checker(tree, builtins=self._defined)
        except RecursionError:
            return 1.0
        self._defined |= {str(name) for scope in found.deadScopes if isinstance(scope, checker.ModuleScope) for name in scope}
        problems = sum(type(message).__name__ not in self._ignore for message in found.messages)
        return min(1.0, problems / self._limit)


def cyclomatic_complexity(tree: ast.AST) -> int:
    """Return the cyclomatic complexity of code: 1 plus the number of decisions (T. J. McCabe, A Complexity Measure, 1976).

    Decisions are ``if``, ``for``, ``while``, ``except``, ``assert``, conditional expressions, each ``for`` and ``if`` of a
    comprehension, each further operand of ``and`` and ``or``, and each ``case`` except ``case _``.

    Example:
        >>> cyclomatic_complexity(ast.parse("x = 1"))
        1
        >>> cyclomatic_complexity(ast.parse("[n for n in x if n > 1 and n < 9]"))
        4
    """
    return 1 + sum(_decisions(node) for node in ast.walk(tree))


def _decisions(node: ast.AST) -> int:
    if isinstance(node, _BRANCHES):
        return 1
    if isinstance(node, ast.BoolOp):
        return len(node.values) - 1
    if isinstance(node, ast.comprehension):
        return 1 + len(node.ifs)
    if isinstance(node, ast.match_case):
        return int(not (isinstance(node.pattern, ast.MatchAs) and node.pattern.pattern is None and node.guard is None))
    return 0
