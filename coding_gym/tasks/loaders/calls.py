"""Tests that call a function with values: contests' functions, and pairs of arguments and results."""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Iterable, Mapping
from typing import Any

from coding_gym.tasks.loaders.integers import decode_json, with_hexadecimal
from coding_gym.tasks.loaders.rows import EntryPoint, RowError, is_list, literal
from coding_gym.tasks.submission import parse
from coding_gym_server.protocol.grading import Asserts

__all__ = [
    "call_of_texts",
    "call_of_values",
    "call_tests",
    "callable_of",
    "json_value",
    "method_of",
    "parameters_of",
    "results",
    "site_imports",
]

_MATCHES = """\
def _plain(value):
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    return value
def _matches(got, *expected):
    return any(_plain(got) == _plain(value) for value in expected)
"""
"""Tuples compare equal to lists, because JSON has no tuples."""

_MODULES = [
    "string",
    "re",
    "datetime",
    "collections",
    "heapq",
    "bisect",
    "copy",
    "math",
    "random",
    "statistics",
    "itertools",
    "functools",
    "operator",
    "io",
    "sys",
    "json",
    "typing",
]
_IMPORTS = "; ".join(
    # As in the evaluators of the data sets: all that the modules export, then the builtins that this replaces, and the modules.
    [f"from {module} import *" for module in (*_MODULES, "builtins")]
    + [f"import {', '.join(_MODULES)}", "sys.setrecursionlimit(50_000)"]
)
"""One line, so that tracebacks have nearly the line numbers of the submission."""

_METHOD = re.compile(r"class\s+Solution\b.*?def\s+(?P<method>(?!__)\w+)", re.DOTALL)


def site_imports(target: EntryPoint | None) -> str:
    """Return what the evaluators of contests put before submissions, and the recursion limit that they set.

    What the tests call is not part of it: otherwise, ``operator.add`` would pass for an ``add`` that is not submitted.
    """
    return f"{_IMPORTS}\n" if target is None else f"{_IMPORTS}; globals().pop({target.name!r}, None)\n"


def call_tests(calls: Iterable[str]) -> Asserts:
    """Return tests from the asserts of ``call_of_values`` and ``call_of_texts``."""
    return Asserts(setup=_MATCHES, cases=tuple(calls))


def callable_of(function: str, *sources: str) -> EntryPoint:
    """Return what tests of a function call: itself, or a method if starter code or a solution has a ``class Solution``.

    Args:
        function: Name of the function.
        sources: Starter code and solutions; the first that is not empty decides.
    """
    source = next((source for source in sources if source.strip()), "")
    return EntryPoint(f"Solution().{function}" if _METHOD.search(source) and not _has_function(source, function) else function)


def method_of(starter: str) -> str | None:
    """Return the name of the first method of a ``class Solution``, None without one."""
    found = _METHOD.search(starter)
    return found["method"] if found else None


def parameters_of(target: EntryPoint, source: str) -> tuple[str, ...] | None:
    """Return the names of the parameters of what is called; None if they are not known, or vary in number."""
    module = parse(source)
    for node in ast.walk(module) if module is not None else ():
        if isinstance(node, ast.FunctionDef) and node.name == target.function:
            arguments = node.args
            names = tuple(argument.arg for argument in (*arguments.posonlyargs, *arguments.args))
            varies = arguments.vararg or arguments.kwarg or arguments.defaults or arguments.kwonlyargs
            return None if varies else names[target.expression != target.function :]
    return None


def call_of_values(
    target: EntryPoint, arguments: Any, accepted: Iterable[Any], parameters: tuple[str, ...] | None = None
) -> str:
    """Return an assert that a call returns one of some values.

    Args:
        target: What is called.
        arguments: A list of positional arguments, or an object of keyword arguments. Anything else is the only argument, and
            so is a list or an object that does not fit the parameters of a function of one.
        accepted: The accepted results.
        parameters: Names of the parameters, if they are known.
    """
    is_one = parameters is not None and len(parameters) == 1
    if isinstance(arguments, Mapping) and (set(arguments) == set(parameters) if parameters else _are_names(arguments)):
        given = [f"{name}={literal(value)}" for name, value in arguments.items()]
    else:
        values = list(arguments) if is_list(arguments) else [arguments]
        given = [literal(_with_numbers(value)) for value in ([values] if is_one and len(values) != 1 else values)]
    wanted = ", ".join(literal(_with_numbers(value)) for value in accepted)
    return f"assert _matches({target.expression}({', '.join(given)}), {wanted})"


def call_of_texts(target: EntryPoint, arguments: str, result: str) -> str:
    """Return an assert that a call returns a value, where arguments and result are texts.

    The arguments are lines of JSON, or Python literals as in a call: ``[1, 2], 3`` or ``values=[1, 2], by=3``.

    Raises:
        RowError: If the arguments are neither.
    """
    wanted = _value(result)
    try:
        # JSON texts may contain U+2028 and U+0085, which str.splitlines would split at.
        given = ", ".join(literal(decode_json(line)) for line in arguments.split("\n") if line.strip())
    except ValueError:
        given = _literals(arguments)
    return f"assert _matches({target.expression}({given}), {wanted})"


def results(output: Any) -> list[Any]:
    """Return the accepted return values of a function: APPS has some results as they are, and some wrapped in a list."""
    return [output, next(iter(output))] if is_list(output) and len(list(output)) == 1 else [output]


def json_value(text: Any) -> Any:
    """Return the value of a JSON text; other values are returned as they are.

    Raises:
        RowError: If a text is not JSON.
    """
    try:
        return decode_json(text) if isinstance(text, str) else text
    except ValueError as error:
        message = f"expected JSON, got {str(text)[:100]!r}: {error}"
        raise RowError(message) from error


def _value(text: str) -> str:
    """Return an expression for a text that is JSON or a Python literal; otherwise, for the text itself."""
    try:
        return literal(decode_json(text))
    except ValueError:
        pass
    source = with_hexadecimal(text.strip())
    try:
        ast.literal_eval(source)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return literal(text)
    return source


def _literals(arguments: str) -> str:
    """Return the arguments of a call as they are, if they are literals.

    Raises:
        RowError: If they are not.
    """
    text = with_hexadecimal(arguments.strip())
    module = parse(f"f({text}\n)")
    match module.body if module is not None else []:
        case [ast.Expr(value=ast.Call(func=ast.Name("f"), args=positional, keywords=keywords))]:
            try:
                for node in (*positional, *(keyword.value for keyword in keywords)):
                    ast.literal_eval(node)
            except ValueError:
                pass
            else:
                return text
    message = f"expected the arguments of a call, lines of JSON or Python literals, got {arguments[:100]!r}"
    raise RowError(message)


def _are_names(texts: Iterable[Any]) -> bool:
    return all(str(text).isidentifier() and not keyword.iskeyword(text) for text in texts)


def _with_numbers(value: Any) -> Any:
    """Return an object whose keys are all integers with integers as keys: JSON has only texts."""
    if not isinstance(value, Mapping) or not value or not all(re.fullmatch(r"-?\d+", str(key)) for key in value):
        return value
    return {int(key): entry for key, entry in value.items()}


def _has_function(source: str, name: str) -> bool:
    module = parse(source)
    return module is not None and any(isinstance(node, ast.FunctionDef) and node.name == name for node in module.body)
