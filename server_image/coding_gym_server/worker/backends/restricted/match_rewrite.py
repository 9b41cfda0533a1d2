"""Rewriting of ``match`` statements as chains of ``if``, so that the reads of a pattern pass through the guards.

Otherwise the interpreter would read the attributes of a class pattern itself, by names that a class can choose
(``__match_args__``).
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TypeVar

__all__ = ["MATCH_CLASS", "MATCH_MAPPING", "MATCH_SEQUENCE", "Internal", "at", "rewrite_match"]

MATCH_CLASS = "_match_class_"
MATCH_MAPPING = "_match_mapping_"
MATCH_SEQUENCE = "_match_sequence_"

_Node = TypeVar("_Node", bound=ast.AST)


class Internal(ast.Name):
    """A name that the transformation has generated, and that a cell cannot contain."""


def rewrite_match(node: ast.Match, new_name: Callable[[], str]) -> list[ast.stmt]:
    """Return statements that are equivalent to a ``match`` statement.

    Args:
        node: The statement, whose parts have not been transformed yet.
        new_name: Generates the names of temporary variables.
    """
    subject = new_name()
    statements: list[ast.stmt] = [at(node, ast.Assign([_store(subject)], node.subject))]
    otherwise: list[ast.stmt] = []
    for case in reversed(node.cases):
        test = _Case(new_name).condition(case, subject)
        otherwise = [at(case.pattern, ast.If(test, case.body, otherwise))]
    return [*statements, *otherwise]


class _Case:
    """Translation of one case: names are bound after the whole pattern has matched, before its guard is evaluated.

    Args:
        new_name: Generates the names of temporary variables.
    """

    def __init__(self, new_name: Callable[[], str]) -> None:
        self._new_name = new_name
        self._captures: dict[str, str] = {}

    def condition(self, case: ast.match_case, subject: str) -> ast.expr:
        tests = [self._test(case.pattern, _load(subject))]
        if self._captures:
            # A non-empty list is true, so the test always passes.
            names = [ast.NamedExpr(ast.Name(name, ast.Store()), _load(value)) for name, value in self._captures.items()]
            tests.append(ast.List([*names], ast.Load()))
        if case.guard is not None:
            tests.append(case.guard)
        return _all(tests)

    def _test(self, pattern: ast.pattern, subject: ast.expr) -> ast.expr:
        match pattern:
            case ast.MatchValue(value):
                return ast.Compare(subject, [ast.Eq()], [value])
            case ast.MatchSingleton(constant):
                return ast.Compare(subject, [ast.Is()], [ast.Constant(constant)])
            case ast.MatchAs(inner, name):
                return self._named(inner, name, subject)
            case ast.MatchOr(patterns):
                # The subject can be an expression with side effects: it must be evaluated only once.
                kept = self._new_name()
                tests = [self._test(each, _load(kept)) for each in patterns]
                return _all([_bind(kept, subject), ast.BoolOp(ast.Or(), tests)])
            case ast.MatchClass(cls, positional, names, by_name):
                keywords = ast.Tuple([ast.Constant(name) for name in names], ast.Load())
                arguments = [subject, cls, ast.Constant(len(positional)), keywords]
                return self._parts(MATCH_CLASS, arguments, [*positional, *by_name])
            case ast.MatchMapping(keys, values, rest):
                has_rest = ast.Constant(rest is not None)
                arguments = [subject, ast.Tuple(list(keys), ast.Load()), has_rest]
                remainder = [ast.MatchAs(None, rest)] if rest is not None else []
                return self._parts(MATCH_MAPPING, arguments, [*values, *remainder])
            case ast.MatchSequence(patterns):
                stars = [place for place, each in enumerate(patterns) if isinstance(each, ast.MatchStar)]
                star = ast.Constant(stars[0] if stars else None)
                parts = [ast.MatchAs(None, each.name) if isinstance(each, ast.MatchStar) else each for each in patterns]
                return self._parts(MATCH_SEQUENCE, [subject, ast.Constant(len(patterns)), star], parts)
        message = f"{type(pattern).__name__} patterns are not supported"
        raise NotImplementedError(message)

    def _named(self, inner: ast.pattern | None, name: str | None, subject: ast.expr) -> ast.expr:
        if name is None:
            return ast.List([subject], ast.Load())
        value = self._captures.setdefault(name, self._new_name())
        kept = _bind(value, subject)
        return kept if inner is None else _all([kept, self._test(inner, _load(value))])

    def _parts(self, function: str, arguments: list[ast.expr], patterns: list[ast.pattern]) -> ast.expr:
        """Return a test that destructures a subject with a function that returns the parts, or None for a mismatch."""
        parts = self._new_name()
        matched = ast.NamedExpr(_store(parts), ast.Call(_load(function), arguments, []))
        tests: list[ast.expr] = [ast.Compare(matched, [ast.IsNot()], [ast.Constant(None)])]
        for place, pattern in enumerate(patterns):
            if not (isinstance(pattern, ast.MatchAs) and pattern.name is None):
                tests.append(self._test(pattern, ast.Subscript(_load(parts), ast.Constant(place), ast.Load())))
        return _all(tests)


def _bind(name: str, value: ast.expr) -> ast.expr:
    return ast.List([ast.NamedExpr(_store(name), value)], ast.Load())


def _all(tests: list[ast.expr]) -> ast.expr:
    return tests[0] if len(tests) == 1 else ast.BoolOp(ast.And(), tests)


def _load(name: str) -> Internal:
    return Internal(name, ast.Load())


def _store(name: str) -> Internal:
    return Internal(name, ast.Store())


def at(place: ast.AST, node: _Node) -> _Node:
    """Set the source location of the parts of a node that have none, and return the node."""
    for new in ast.walk(node):
        if "lineno" in new._attributes and not hasattr(new, "lineno"):
            ast.copy_location(new, place)
    return node
