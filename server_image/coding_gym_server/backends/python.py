"""Plain CPython: cells run in one namespace that behaves like the ``__main__`` of a program typed at the prompt."""

from __future__ import annotations
import __future__

import ast
import inspect
import io
import linecache
import sys
import traceback
from collections.abc import Callable
from types import CodeType, ModuleType
from typing import Any

from coding_gym_server.backends.base import ExecutorBackend

__all__ = ["PythonBackend"]

_INTERRUPTED = 130
_FUTURE_FLAGS = {getattr(__future__, name).compiler_flag for name in __future__.all_feature_names}


class PythonBackend(ExecutorBackend):
    """Runs cells with ``exec`` in a fresh ``__main__`` module."""

    def __init__(self) -> None:
        main = ModuleType("__main__")
        main.__dict__["__builtins__"] = sys.modules["builtins"]
        sys.modules["__main__"] = main
        self._namespace = main.__dict__
        self._show_value = True
        self._cells: list[str] = []
        self._flags = 0
        inspect.getfile = _getfile_with_cells(inspect.getfile, self._cells)  # type: ignore[assignment]

    def configure(self, *, show_value: bool) -> None:
        self._show_value = show_value

    def execute(self, code: str) -> int:
        try:
            for part in self._compile(code):
                exec(part, self._namespace)
        except SystemExit as error:
            return _exit_code(error)
        except KeyboardInterrupt as error:
            _show(error)
            return _INTERRUPTED
        except BaseException as error:  # noqa: BLE001 - whatever user code raises is an observation
            _show(error)
            return 1
        return 0

    def _compile(self, code: str) -> list[CodeType]:
        """Compile a cell; an expression that comes last becomes a part of its own, which shows its value as a REPL does."""
        filename = f"<cell {len(self._cells) + 1}>"
        self._cells.append(filename)
        linecache.cache[filename] = (len(code), None, list(io.StringIO(code, newline=None)), filename)
        if self._show_value and not any(character in code for character in "\n;:"):
            # One simple statement: the compiler's own REPL mode takes it in one pass.
            return [compile(code, filename, "single", self._flags, dont_inherit=True)]
        tree: ast.Module = compile(code, filename, "exec", self._flags | ast.PyCF_ONLY_AST, dont_inherit=True)
        last = tree.body.pop() if self._show_value and tree.body and isinstance(tree.body[-1], ast.Expr) else None
        parts = []
        if tree.body:
            parts.append(compile(tree, filename, "exec", self._flags, dont_inherit=True))
            self._flags |= sum(flag for flag in _FUTURE_FLAGS if parts[0].co_flags & flag)
        if last is not None:
            parts.append(compile(ast.Interactive([last]), filename, "single", self._flags, dont_inherit=True))
        return parts


def _exit_code(error: SystemExit) -> int:
    """Return the exit status that the interpreter would end with (see ``sys.exit``)."""
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code & 0xFF
    print(error.code, file=sys.stderr)
    return 1


def _show(error: BaseException) -> None:
    """Print the traceback of an uncaught exception without our own frames, through the user's hook if there is one."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename == __file__:
        frames = frames.tb_next
    error.__traceback__ = frames
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, frames
    sys.last_exc = error  # type: ignore[attr-defined,unused-ignore]
    if sys.excepthook is not sys.__excepthook__:
        try:
            sys.excepthook(type(error), error, frames)
        except Exception:  # noqa: BLE001 - the user's hook
            print("Error in sys.excepthook:", file=sys.stderr)
            traceback.print_exc()
            print("\nOriginal exception was:", file=sys.stderr)
        else:
            return
    # The default hook of CPython 3.11 reads source lines from files only; traceback finds the cells.
    traceback.print_exception(error)


def _getfile_with_cells(getfile: Callable[[Any], str], cells: list[str]) -> Callable[[Any], str]:
    """Extend ``inspect.getfile`` to classes made in a cell: ``__main__`` has no file to look into."""

    def getfile_or_cell(object: Any) -> str:
        if inspect.isclass(object) and object.__module__ == "__main__":
            for filename in reversed(cells):
                source = "".join(linecache.getlines(filename))
                if object.__name__ in source and object.__qualname__ in _classes(source):
                    return filename
        return getfile(object)

    return getfile_or_cell


def _classes(source: str) -> set[str]:
    """Return the qualified names of all classes that a cell defines."""
    found = set()

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef):
                found.add(prefix + child.name)
                visit(child, f"{prefix}{child.name}.")
            elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                visit(child, f"{prefix}{child.name}.<locals>.")
            else:
                visit(child, prefix)

    try:
        visit(ast.parse(source), "")
    except SyntaxError:
        return set()
    return found
