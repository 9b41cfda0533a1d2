"""Changes of a test after which no right solution passes it: the candidates for canaries."""

from __future__ import annotations

import ast
import copy
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from coding_gym_server.server.grading.faithful.literals import (
    Literals,
    aliases,
    assertion_name,
    find_literals,
    is_entry_call,
    reachable,
)
from coding_gym_server.server.grading.faithful.splitting import Function, SingleTest
from coding_gym_server.submission.faithful_messages import Framework

__all__ = ["STRONG", "Kind", "Mutation", "mutations"]


class Kind(StrEnum):
    """Part of a test that a mutation changes."""

    VALUE = "value"
    """A literal of the expected side."""
    SWAP = "swap"
    """The same, to a literal that another test expects."""
    INPUT = "input"
    """A literal that reaches the submission; the expected value stays."""
    EXCEPTION = "exception"
    """The expected exception."""
    TYPE = "type"
    """The expected type."""
    RAISES = "raises"
    """A call is expected to raise an exception."""
    NEGATE = "negate"
    """The opposite is asserted."""


STRONG = frozenset({Kind.VALUE, Kind.SWAP, Kind.INPUT})
"""Kinds that look like tests that people write. Others are filler, which programs can be taught to recognize."""

_EXCEPTIONS = ("ValueError", "TypeError", "KeyError", "IndexError", "ZeroDivisionError", "AttributeError")
_TYPES = ("list", "dict", "str", "int", "float", "tuple", "set")
_OPPOSITES = {
    "assertTrue": "assertFalse",
    "assertEqual": "assertNotEqual",
    "assertIn": "assertNotIn",
    "assertIs": "assertIsNot",
    "assertIsNone": "assertIsNotNone",
    "assertGreater": "assertLessEqual",
    "assertLess": "assertGreaterEqual",
    "assertAlmostEqual": "assertNotAlmostEqual",
    "assertIsInstance": "assertNotIsInstance",
    "assertRegex": "assertNotRegex",
}
_OPPOSITES |= {opposite: name for name, opposite in _OPPOSITES.items()}
_OPPOSITES |= dict.fromkeys(("assertListEqual", "assertDictEqual", "assertTupleEqual", "assertSetEqual"), "assertNotEqual")
_COMMON = (None, False, True)
_RAISES = {"assertRaises", "assertRaisesRegex", "raises"}


@dataclass(frozen=True)
class Mutation:
    """Another value of a field of a node of a syntax tree.

    Attributes:
        kind: What it changes.
        node: The node.
        field: Name of the field.
        value: The value.
    """

    kind: Kind
    node: ast.AST
    field: str
    value: Any

    @property
    def is_strong(self) -> bool:
        """Whether the result looks like a test that people write."""
        return self.kind in STRONG

    def source(self, tree: ast.Module) -> str:
        """Return the source code of the node's module with the change; the tree is the same afterwards."""
        before = getattr(self.node, self.field)
        setattr(self.node, self.field, self.value)
        try:
            return ast.unparse(ast.fix_missing_locations(tree))
        finally:
            setattr(self.node, self.field, before)


def mutations(tests: list[SingleTest], names: frozenset[str], rng: random.Random) -> list[list[Mutation]]:
    """Return the mutations of each test, strong ones first, otherwise in random order.

    Args:
        tests: All tests of a task, which take expected values from each other.
        names: The names by which they call the submission.
        rng: Source of randomness.
    """
    known = [aliases(test.tree, names) for test in tests]
    literals = [find_literals(test, own) for test, own in zip(tests, known, strict=True)]
    pool = [node.value for found in literals for node in found.expected if isinstance(node, ast.Constant)]
    return [_of_test(test, found, own, pool, rng) for test, found, own in zip(tests, literals, known, strict=True)]


def _of_test(
    test: SingleTest, literals: Literals, names: frozenset[str], pool: list[Any], rng: random.Random
) -> list[Mutation]:
    values = [*_changed(Kind.VALUE, literals.expected, rng), *_predicates(test, names)]
    swaps = list(_swapped(literals.expected, pool, rng))
    # A right solution may differ from the reference on inputs that are not specified, and return one of few values by chance.
    inputs = [] if values and _are_common(literals.expected) else list(_changed(Kind.INPUT, literals.inputs, rng))
    for group in (values, swaps, inputs):
        rng.shuffle(group)
    # In turn, so that a short selection has all kinds.
    strong = [item for row in _in_turn(values, swaps, inputs) for item in row]
    filler = [*_exceptions(test, rng), *_raising(test, names, rng), *_negated(test)]
    rng.shuffle(filler)
    return [*strong, *filler]


def _are_common(expected: list[ast.expr]) -> bool:
    """Return whether all expected values are truth values, None, or 0 and 1, which many functions return for most inputs."""
    return all(isinstance(node, ast.Constant) and node.value in _COMMON for node in expected)


def _in_turn(*groups: list[Mutation]) -> Iterator[list[Mutation]]:
    for number in range(max(map(len, groups))):
        yield [group[number] for group in groups if number < len(group)]


def _changed(kind: Kind, nodes: list[Any], rng: random.Random) -> Iterator[Mutation]:
    for node in nodes:
        if isinstance(node, ast.Constant):
            yield Mutation(kind, node, "value", _perturbed(node.value, rng))
        elif isinstance(node, ast.List | ast.Tuple | ast.Set):
            yield Mutation(kind, node, "elts", _perturbed_items(node.elts, rng))


def _swapped(nodes: list[ast.expr], pool: list[Any], rng: random.Random) -> Iterator[Mutation]:
    for node in nodes:
        if isinstance(node, ast.Constant):
            others = [value for value in pool if type(value) is type(node.value) and value != node.value]
            if others:
                yield Mutation(Kind.SWAP, node, "value", rng.choice(others))


def _perturbed(value: Any, rng: random.Random) -> Any:
    """Return a similar value of the same type, or a falsy one for None."""
    match value:
        case bool():
            return not value
        case int():
            return rng.choice([value + 1, value - 1 if value > 0 else value + 2, value + rng.randint(2, 9), value * 2 or 3])
        case float():
            return rng.choice([round(value + 1, 10), round(value * 1.1 + 0.1, 3), round(value / 2 - 0.5, 10)])
        case complex():
            return value + 1
        case str():
            return _perturbed_text(value, rng)
        case bytes():
            return value + b"1"
    return rng.choice([0, "", False])


def _perturbed_text(text: str, rng: random.Random) -> str:
    if not text:
        return rng.choice("abc")
    position = rng.randrange(len(text))
    before, letter, after = text[:position], text[position], text[position + 1 :]
    other = chr(ord(letter) + 1) if letter.isalnum() and letter not in "zZ9" else "b"
    return rng.choice([before + other + after, before + after, before + letter + letter + after])


def _perturbed_items(items: list[ast.expr], rng: random.Random) -> list[ast.expr]:
    if not items:
        return [ast.Constant(rng.randint(0, 2))]
    last = copy.deepcopy(items[-1])
    if isinstance(last, ast.Constant):
        last.value = _perturbed(last.value, rng)
    return rng.choice([items[:-1], [*items, last]]) if len(items) > 1 else [*items, last]


def _nodes(test: SingleTest) -> list[ast.AST]:
    """Return the nodes that a test executes, each once."""
    return list({id(node): node for part in reachable(test) for node in ast.walk(part)}.values())


def _predicates(test: SingleTest, names: frozenset[str]) -> Iterator[Mutation]:
    """Yield the opposites of assertions about a call itself, such as ``assertTrue(is_prime(7))``, whose value is a bool."""
    for node in _nodes(test):
        match node:
            case ast.Call(func=ast.Attribute(attr="assertTrue" | "assertFalse" as name) as function, args=[value, *_]):
                if is_entry_call(value, names):
                    yield Mutation(Kind.VALUE, function, "attr", _OPPOSITES[name])
            case ast.Assert(test=ast.UnaryOp(op=ast.Not(), operand=value)) if is_entry_call(value, names):
                yield Mutation(Kind.VALUE, node, "test", value)
            case ast.Assert(test=value) if is_entry_call(value, names):
                yield Mutation(Kind.VALUE, node, "test", ast.UnaryOp(ast.Not(), value))


def _negated(test: SingleTest) -> Iterator[Mutation]:
    for node in _nodes(test):
        match node:
            case ast.Assert(test=value):
                yield Mutation(Kind.NEGATE, node, "test", ast.UnaryOp(ast.Not(), value))
            case ast.Call(func=ast.Attribute(attr=name) as function) if assertion_name(node) and name in _OPPOSITES:
                yield Mutation(Kind.NEGATE, function, "attr", _OPPOSITES[name])


def _exceptions(test: SingleTest, rng: random.Random) -> Iterator[Mutation]:
    for node in _nodes(test):
        match node:
            case ast.Call(func=ast.Attribute(attr=name), args=[expected, *others]) if name in _RAISES:
                yield Mutation(Kind.EXCEPTION, node, "args", [_other(expected, _EXCEPTIONS, rng), *others])
            case ast.Call(
                func=ast.Attribute(attr="assertIsInstance") | ast.Name(id="isinstance"), args=[value, expected, *others]
            ):
                yield Mutation(Kind.TYPE, node, "args", [value, _other(expected, _TYPES, rng), *others])


def _other(expected: ast.expr, names: tuple[str, ...], rng: random.Random) -> ast.expr:
    return ast.Name(rng.choice([name for name in names if name not in ast.unparse(expected)]), ast.Load())


def _raising(test: SingleTest, names: frozenset[str], rng: random.Random) -> Iterator[Mutation]:
    """Yield a mutation that expects an exception from the first statement that calls the submission."""
    expectation = _EXPECTATIONS.get(test.framework)
    if expectation is None or test.id is None:
        return
    for function in reachable(test):
        if not isinstance(function, Function) or function.name != test.id.function:
            continue
        for number, statement in enumerate(function.body):
            if isinstance(statement, ast.Assign | ast.Expr) and any(is_entry_call(item, names) for item in ast.walk(statement)):
                block = ast.With([ast.withitem(expectation(rng.choice(_EXCEPTIONS)))], [statement])
                yield Mutation(Kind.RAISES, function, "body", [*function.body[:number], block, *function.body[number + 1 :]])
                return


_EXPECTATIONS: dict[Framework, Callable[[str], ast.expr]] = {
    Framework.UNITTEST: lambda name: ast.parse(f"self.assertRaises({name})", mode="eval").body,
    Framework.PYTEST: lambda name: ast.parse(f"pytest.raises({name})", mode="eval").body,
}
