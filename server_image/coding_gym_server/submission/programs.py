"""Programs: runs the source of one in the process of a submission, or another program in its place."""

from __future__ import annotations

import atexit
import contextlib
import linecache
import marshal
import os
import resource
import signal
import sys
import threading
import traceback
import types
import unicodedata  # noqa: F401 - the compiler imports it for some programs, and must not find a file of theirs
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from coding_gym_server.ipc.streams import flush_streams, open_stream
from coding_gym_server.ipc.text import source_lines
from coding_gym_server.remote_objects.program_messages import (
    MAX_COMPILED_BYTES,
    Compiled,
    NotStarted,
    RunCommand,
    RunProgram,
    Started,
)

__all__ = ["SOURCE_NAME", "execute_command", "format_error", "remember_source", "run_program"]

SOURCE_NAME = "<submission>"
"""Name of source code that has no file."""

_MAIN = "main.py"
_NOT_EXECUTABLE, _NOT_FOUND = 126, 127

_Tell = Callable[[Started | NotStarted | Compiled], None]
"""Sends the server a message, which it trusts, because nothing of a program has been executed before."""


def run_program(request: RunProgram, tell: _Tell) -> NoReturn:
    """Run a Python program, and exit the process with its exit code.

    Args:
        request: The program.
        tell: Called before anything of the program or of its files is executed.
    """
    name = request.file or SOURCE_NAME
    remember_source(request.code, name)
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    sys.argv = [request.file or _MAIN]
    exit_code = 1
    with _preparation(tell):
        _set_stdin(request.stdin)
        sys.stdin = open_stream(0)
        if request.file:
            main.__file__ = os.path.abspath(request.file)
            with open(request.file, "w", encoding="utf-8", errors="surrogatepass") as file:
                file.write(request.code)
    try:
        _limit_memory(request.max_memory_bytes)
        code = _compiled(request, name, tell)
        sys.path.insert(0, "")
        exec(code, main.__dict__)
        exit_code = 0
    except SystemExit as error:
        exit_code = _exit_code(error.code)
    except BaseException as error:  # noqa: BLE001 - whatever a program raises ends it
        sys.stderr.write("".join(format_error(error, name)))
    finally:
        _end(exit_code, "" if request.keeps_file else request.file)


def execute_command(request: RunCommand, tell: _Tell) -> NoReturn:
    """Replace the process by another program; exit as a shell does if that fails.

    Args:
        request: The program.
        tell: Called before it is executed.
    """
    with _preparation(tell):
        _set_stdin(request.stdin)
    try:
        for number in (signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ):
            # Python ignores the latter two, and programs would inherit that.
            signal.signal(number, signal.SIG_DFL)
        _limit_memory(request.max_memory_bytes)
        os.execvpe(request.command[0], request.command, {**os.environ, **request.variables})
    except (OSError, ValueError, OverflowError, MemoryError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        sys.stderr.write(f"{request.command[0]}: {reason}\n")
        flush_streams()
        os._exit(_NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_EXECUTABLE)


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
def _preparation(tell: _Tell) -> Iterator[None]:
    """Tell the server how the preparation of a program ended, and end the process if it failed."""
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


def _compiled(request: RunProgram, name: str, tell: _Tell) -> types.CodeType:
    if request.compiled is not None:
        loaded: types.CodeType = marshal.loads(request.compiled)  # noqa: S302 - this process executes the source anyway
        return loaded
    keeps = b""
    try:
        with warnings.catch_warnings(record=True) as found:
            code = compile(request.code, name, "exec", dont_inherit=True)
        if not found:
            # Otherwise, only the first run would show them. A large or deeply nested program is compiled each time, too.
            with contextlib.suppress(ValueError, MemoryError):
                keeps = marshal.dumps(code)
    finally:
        _report(keeps, tell)
    for warning in found:
        warnings.showwarning(warning.message, warning.category, warning.filename, warning.lineno)
    return code


def _report(code: bytes, tell: _Tell) -> None:
    """Report a compiled program, or nothing if it is too large: another message in its place would be taken for it."""
    if len(code) <= MAX_COMPILED_BYTES:
        with contextlib.suppress(MemoryError):
            tell(Compiled(code))
            return
    tell(Compiled(b""))


def _set_stdin(text: str) -> None:
    descriptor = os.memfd_create("stdin")
    with open(descriptor, "wb", closefd=False) as file:
        file.write(text.encode("utf-8", "surrogatepass"))
    os.lseek(descriptor, 0, os.SEEK_SET)
    os.dup2(descriptor, 0)


def _limit_memory(limit: int | None) -> None:
    if limit is None:
        return
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def _end(exit_code: int, file: str) -> NoReturn:
    """Exit as the interpreter does: wait for non-daemon threads, then run the exit handlers.

    Args:
        exit_code: The exit code.
        file: File to remove, so that the server need not empty a workspace without other files; empty for none.
    """
    try:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
    finally:
        if file:
            with contextlib.suppress(OSError):
                os.unlink(file)
        flush_streams()
        os._exit(exit_code)


def _exit_code(code: Any) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    sys.stderr.write(f"{code}\n")
    return 1
