"""CPython backend: cells share one namespace that behaves like ``__main__`` in an interactive interpreter."""

from __future__ import annotations
import __future__

import ast
import builtins
import contextlib
import functools
import inspect
import io
import linecache
import operator
import os
import re
import sys
import traceback
from collections.abc import Callable
from types import CodeType, ModuleType, TracebackType
from typing import Any

from coding_gym_server.worker.backends.base import ExecutorBackend
from coding_gym_server.worker.backends.output import Output

__all__ = ["PythonBackend", "users_frames"]

_INTERRUPTED = 130
_OWN_DIRECTORY = os.path.join(os.path.dirname(os.path.dirname(__file__)), "")
_FUTURE_MASK = functools.reduce(
    operator.or_, (getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)
)


# The originals of objects that user code can replace.
_compile, _exec, _print, _linecache, _excepthook = compile, exec, print, linecache.cache, sys.__excepthook__
_base: Any = BaseException
_traceback_of = _base.__traceback__.__get__
_set_traceback = _base.__traceback__.__set__
_set_context = _base.__context__.__set__
_SIMPLE = re.compile(r"[^\s#;:][^\n\r;:]*\Z").match
_sys = sys


class PythonBackend(ExecutorBackend):
    """Executes cells with ``exec`` in a new ``__main__`` module."""

    def __init__(self, output: Output, *, authorized_imports: tuple[str, ...] = ()) -> None:
        super().__init__(output, authorized_imports=authorized_imports)
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
        rich = self.output.rich
        if rich:
            _sys.displayhook = self._display
        try:
            for part in self._compile(code):
                _exec(part, self._namespace)
        except BaseException as error:  # noqa: BLE001 - any exception of user code is part of the observation
            _sys.settrace(None)
            _sys.setprofile(None)
            try:
                return self._report_rich(error) if rich else _report(error)
            except BaseException as hook_error:  # noqa: BLE001 - so are errors of user hooks, streams and exceptions
                return _report_fallback(error, hook_error)
        finally:
            if rich:
                _sys.displayhook = _sys.__displayhook__
        return 0

    def _display(self, value: object) -> None:
        """Report the value of a rich cell; replaces ``sys.displayhook``."""
        if value is not None:
            builtins._ = None  # type: ignore[attr-defined]
            self.output.result({"text/plain": repr(value)}, is_value=True)
            builtins._ = value  # type: ignore[attr-defined]

    def _report_rich(self, error: BaseException) -> int:
        frames = users_frames(error)
        _set_traceback(error, frames)
        sys.last_type, sys.last_value, sys.last_traceback = type(error), error, frames
        self.output.error(type(error).__name__, str(error), "".join(traceback.format_exception(error)))
        if isinstance(error, SystemExit):
            return _exit_code(error)
        return _INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1

    def _compile(self, code: str) -> list[CodeType]:
        """Compile a cell; a trailing expression becomes a separate part, which displays its value as a REPL does."""
        code, filename = self._add_cell(code)
        show_value = self._show_value or self.output.rich
        if show_value and _SIMPLE(code):
            # One simple statement: the compiler's interactive mode handles it in a single pass.
            return [self._compile_part(code, filename, "single")]
        tree: ast.Module = _compile(code, filename, "exec", self._flags | ast.PyCF_ONLY_AST, dont_inherit=True)
        last = tree.body.pop() if show_value and tree.body and isinstance(tree.body[-1], ast.Expr) else None
        parts = []
        if tree.body:
            parts.append(self._compile_part(tree, filename, "exec"))
        if last is not None:
            parts.append(self._compile_part(ast.Interactive([last]), filename, "single"))
        return parts

    def _add_cell(self, code: str) -> tuple[str, str]:
        """Register the lines of a cell for tracebacks, and return its source and its file name."""
        code = code.removeprefix("\ufeff")
        filename = f"<cell {len(self._cells) + 1}>"
        self._cells.append(filename)
        _linecache[filename] = (len(code), None, list(io.StringIO(code, newline=None)), filename)
        return code, filename

    def _compile_part(self, source: str | ast.Module | ast.Interactive, filename: str, mode: str) -> CodeType:
        """Compile a part of a cell with the ``__future__`` features that previous cells have imported."""
        part: CodeType = _compile(source, filename, mode, self._flags, dont_inherit=True)
        self._flags |= part.co_flags & _FUTURE_MASK
        return part


def _report(error: BaseException) -> int:
    """Print the exception that a cell raised, and return the exit code of the cell."""
    if isinstance(error, SystemExit):
        return _exit_code(error)
    _show(error)
    return _INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1


def _report_fallback(error: BaseException, hook_error: BaseException) -> int:
    """Report an exception that cannot be displayed normally, without calling anything that user code can replace."""
    if isinstance(hook_error, SystemExit) and not isinstance(error, SystemExit):
        # The user's excepthook exited the program.
        with contextlib.suppress(BaseException):
            return _exit_code(hook_error) or 1
    with contextlib.suppress(OSError):
        os.write(2, f"{type(error).__name__}\n".encode(errors="replace"))
    return 1


def _exit_code(error: SystemExit) -> int:
    """Return the exit status that the interpreter would exit with (see ``sys.exit``)."""
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code & 0xFF
    _print(error.code, file=sys.stderr)
    return 1


def _show(error: BaseException) -> None:
    """Print the traceback of an uncaught exception without backend frames, using the user's ``sys.excepthook`` if it is set."""
    frames = users_frames(error)
    _set_traceback(error, frames)
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, frames
    sys.last_exc = error  # type: ignore[attr-defined,unused-ignore]
    hook = getattr(sys, "excepthook", _excepthook)
    if hook is not _excepthook:
        try:
            hook(type(error), error, frames)
        except Exception as error_in_hook:  # noqa: BLE001 - the user's hook
            _set_traceback(error_in_hook, users_frames(error_in_hook))
            _set_context(error_in_hook, None)
            _print("Error in sys.excepthook:", file=sys.stderr)
            traceback.print_exception(error_in_hook)
            _print("\nOriginal exception was:", file=sys.stderr)
        else:
            return
    # The default hook of CPython 3.11 reads source lines from files only; traceback finds cells in linecache.
    traceback.print_exception(error)


def users_frames(error: BaseException) -> TracebackType | None:
    """Return the traceback of an exception without backend frames, wherever they occur."""
    entries = []
    entry = _traceback_of(error)
    while entry is not None:
        entries.append(entry)
        entry = entry.tb_next
    frames = None
    for entry in reversed(entries):
        if not entry.tb_frame.f_code.co_filename.startswith(_OWN_DIRECTORY):
            frames = TracebackType(frames, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return frames


def _getfile_with_cells(getfile: Callable[[Any], str], cells: list[str]) -> Callable[[Any], str]:
    """Extend ``inspect.getfile`` to classes defined in a cell: ``__main__`` has no file."""

    def getfile_or_cell(object: Any) -> str:
        if inspect.isclass(object) and object.__module__ == "__main__":
            for filename in reversed(cells):
                source = "".join(linecache.getlines(filename))
                if object.__name__ in source and object.__qualname__ in _classes(source):
                    return filename
        return getfile(object)

    return getfile_or_cell


def _classes(source: str) -> set[str]:
    """Return the qualified names of all classes that the source defines."""
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
