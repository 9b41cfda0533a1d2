"""Python programs: runs the source of one in the process of a submission."""

from __future__ import annotations

import atexit
import builtins
import contextlib
import gc
import linecache
import marshal
import os
import random
import resource
import sys
import threading
import traceback
import types
import unicodedata  # noqa: F401 - the compiler imports it for some programs, and must not find a file of theirs
import warnings
from collections.abc import Callable, Iterator
from importlib.machinery import SourceFileLoader
from typing import Any, NoReturn

from coding_gym_server.ipc.streams import flush_streams, open_stream
from coding_gym_server.ipc.text import source_lines
from coding_gym_server.remote_objects.program_messages import (
    MAX_COMPILED_BYTES,
    Compiled,
    NotStarted,
    RunProgram,
    Started,
)

__all__ = ["BYTE_ORDER_MARK", "SOURCE_NAME", "format_error", "open_input", "preparation", "remember_source", "run_program"]

SOURCE_NAME = "<submission>"
"""Name of source code that has no file."""

BYTE_ORDER_MARK = "\ufeff"
"""What the text of some files begins with, and no source code."""

_MAIN = "main.py"

_Tell = Callable[[Started | NotStarted | Compiled], None]
"""Sends the server a message, which it trusts, because nothing of a program has been executed before."""


def run_program(request: RunProgram, tell: _Tell) -> NoReturn:
    """Run a Python program, and exit the process with its exit code.

    Args:
        request: The program.
        tell: Called before anything of the program or of its files is executed.
    """
    file_name = request.file or SOURCE_NAME
    source = request.code.removeprefix(BYTE_ORDER_MARK)
    remember_source(source, file_name)
    sys.argv = [request.file or _MAIN, *request.arguments]
    exit_code = request.error_code
    with preparation(tell):
        if request.stdin is not None:
            os.dup2(open_input(request.stdin), 0)
        # The original stream keeps the buffer open when a program wraps it in a stream of its own.
        sys.stdin = open_stream(0)
        setattr(sys, "__stdin__", sys.stdin)  # noqa: B010 - it is final for type checkers
        main = _main_module(request.file)
        if request.file:
            with open(request.file, "w", encoding="utf-8", errors="surrogatepass") as file:
                file.write(request.code)
    try:
        _limit_memory(request.max_memory_bytes)
        code = _compiled(request, source, file_name, tell)
        sys.path.insert(0, "")
        random.seed(request.random_seed)
        exec(code, main.__dict__)
        exit_code = 0
    except SystemExit as error:
        exit_code = _exit_code(error.code)
    except BaseException as error:  # noqa: BLE001 - whatever a program raises ends it
        _report_error(error, file_name)
    finally:
        _end(exit_code, main, "" if request.keeps_file else request.file)


def format_error(error: BaseException, name: str = SOURCE_NAME) -> list[str]:
    """Return the traceback of an exception, from the first line of the source code with a name, if it has one there."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != name:
        trace = trace.tb_next
    try:
        return traceback.format_exception(error.with_traceback(trace))
    except BaseException:  # noqa: BLE001 - the submission's exceptions may fail in __str__
        return []


def remember_source(code: str, name: str = SOURCE_NAME) -> None:
    """Register source code for tracebacks and ``inspect``."""
    linecache.cache[name] = (len(code), None, source_lines(code), name)


@contextlib.contextmanager
def preparation(tell: Callable[[Started | NotStarted], None]) -> Iterator[None]:
    """Tell the server how the preparation of a program ended, and end the process if it failed.

    Args:
        tell: Sends the server a message.
    """
    try:
        yield
    except BaseException as error:  # noqa: BLE001 - whatever happens here is not the program's fault
        reason, number = f"{type(error).__name__}: {error}", 0
        if isinstance(error, OSError) and error.errno is not None:
            reason = f"{error.strerror}: {error.filename or 'stdin'}"
            number = error.errno
        tell(NotStarted(reason, number))
        os._exit(1)
    tell(Started())


def _report_error(error: BaseException, name: str) -> None:
    if sys.excepthook is sys.__excepthook__:
        sys.stderr.write("".join(format_error(error, name)))
    else:
        sys.excepthook(type(error), error, error.__traceback__)


def _main_module(file: str) -> types.ModuleType:
    """Return the module ``__main__`` as the interpreter makes it for a file, and install it."""
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = builtins
    if sys.version_info < (3, 14):
        main.__annotations__ = {}
    if file:
        main.__file__ = os.path.abspath(file)
        main.__dict__["__cached__"] = None
        main.__loader__ = SourceFileLoader("__main__", main.__file__)
    return main


def _compiled(request: RunProgram, source: str, name: str, tell: _Tell) -> types.CodeType:
    if request.compiled is not None:
        loaded: types.CodeType = marshal.loads(request.compiled)  # noqa: S302 - this process executes the source anyway
        return loaded
    keeps = b""
    try:
        with warnings.catch_warnings(record=True) as found:
            code = compile(source, name, "exec", dont_inherit=True)
        if not found:
            # Otherwise, only the first run would show them. A large or deeply nested program is compiled each time, too.
            with contextlib.suppress(ValueError, MemoryError):
                keeps = marshal.dumps(code)
    finally:
        # Nothing is kept of what is too large: another message in the place of this one would be taken for it.
        try:
            tell(Compiled(keeps if len(keeps) <= MAX_COMPILED_BYTES else b""))
        except MemoryError:
            tell(Compiled(b""))
    for warning in found:
        warnings.showwarning(warning.message, warning.category, warning.filename, warning.lineno)
    return code


def open_input(text: str) -> int:
    """Return a descriptor of a new file in memory with the input of a program."""
    descriptor = os.memfd_create("stdin")
    with open(descriptor, "wb", closefd=False) as file:
        file.write(text.encode("utf-8", "surrogatepass"))
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _limit_memory(limit: int | None) -> None:
    if limit is None:
        return
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def _end(exit_code: int, main: types.ModuleType, file: str) -> NoReturn:
    """Exit as the interpreter does: wait for threads other than daemons, run the exit handlers, and delete the module.

    Args:
        exit_code: The exit code.
        main: The module, whose objects may flush files or print when they are deleted.
        file: File to remove, so that the server need not empty a workspace without other files; empty for none.
    """
    try:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        flush_streams()
        sys.stdin, sys.stdout, sys.stderr = sys.__stdin__, sys.__stdout__, sys.__stderr__
        _clear(main)
    finally:
        if file:
            with contextlib.suppress(OSError):
                os.unlink(file)
        flush_streams()
        os._exit(exit_code)


def _clear(module: types.ModuleType) -> None:
    """Delete what a module holds, in the order of the interpreter."""
    names = vars(module)
    for is_private in (True, False):
        for name in [*names]:
            if name != "__builtins__" and (name.startswith("_") and not name.startswith("__")) == is_private:
                names[name] = None
    gc.collect()


def _exit_code(code: Any) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    sys.stderr.write(f"{code}\n")
    return 1
