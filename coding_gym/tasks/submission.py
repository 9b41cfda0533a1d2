"""Assembly of programs from submissions: a completion continues the prompt, or is a self-contained program."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator

from coding_gym import _syntax_tree
from coding_gym_server.ipc.text import source_lines

__all__ = ["complete", "defined_names", "parse", "preamble", "put_before"]

_BYTE_ORDER_MARK = "\ufeff"


def complete(code: str, *, prefix: str, entry_point: str | None) -> str:
    """Return the program that ``code`` forms with ``prefix``.

    Code that does not define the entry point, or does not parse, such as a function body, is appended to the prefix. Code that
    defines it is a self-contained program, but may use what the prefix defines before the entry point. Without an entry
    point, any code is a self-contained program, which may use what the prefix defines.

    Args:
        code: Any text.
        prefix: The beginning of the program; nothing is prepended if it is empty.
        entry_point: The name that must be defined; None if there is none.
    """
    if not prefix:
        return code
    # Skips parsing for most completions, which do not contain the name.
    if entry_point is not None and entry_point not in code:
        return prefix + code
    code = code.removeprefix(_BYTE_ORDER_MARK)
    module = parse(code)
    if module is None or (entry_point is not None and entry_point not in defined_names(module)):
        return prefix + code
    return put_before(prefix if entry_point is None else preamble(prefix, entry_point), code, module)


def put_before(text: str, code: str, module: ast.Module) -> str:
    """Insert a text before code, after any imports from ``__future__``, which must stay the first statements.

    Args:
        text: The text to insert; ends with a line break.
        code: The code.
        module: Its syntax tree.
    """
    first = max((node.end_lineno or 0 for node in module.body if _is_future_import(node)), default=0)
    lines = source_lines(code)
    return "".join([*lines[:first], text, *lines[first:]])


def parse(source: str) -> ast.Module | None:
    """Return the syntax tree of a source text; None if it does not parse. Suppresses syntax warnings."""
    try:
        return _syntax_tree.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def defined_names(module: ast.Module) -> set[str]:
    """Return the names that the statements of a module bind: functions, classes, variables, imports.

    Includes names bound in compound statements such as ``if`` and ``try``, but not those in functions and classes.
    """
    return set(_bound(module.body))


def _bound(statements: list[ast.stmt]) -> Iterator[str]:
    for node in statements:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name
            case ast.Import() | ast.ImportFrom():
                yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)
            case ast.Assign() | ast.AnnAssign():
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for target in targets:
                    yield from (name.id for name in ast.walk(target) if isinstance(name, ast.Name))
            case ast.If() | ast.For() | ast.While() | ast.With() | ast.Try():
                yield from _bound(node.body)
                yield from _bound(getattr(node, "orelse", []))
                yield from _bound(getattr(node, "finalbody", []))
                for handler in getattr(node, "handlers", []):
                    yield from _bound(handler.body)


@functools.lru_cache(maxsize=1024)
def preamble(prefix: str, entry_point: str) -> str:
    """Return the part of a prefix before the definition of the entry point: all without one, none if it is not valid Python."""
    # A prefix ends with a function header, with or without a docstring.
    for module in (parse(prefix), parse(f"{prefix}\n    pass"), parse(f"{prefix}\n        pass")):
        for node in module.body if module is not None else ():
            if getattr(node, "name", None) == entry_point:
                decorators = getattr(node, "decorator_list", [])
                line = min([node.lineno, *(decorator.lineno for decorator in decorators)])
                return "".join(source_lines(prefix)[: line - 1])
    return prefix if parse(prefix) is not None else ""


def _is_future_import(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"
