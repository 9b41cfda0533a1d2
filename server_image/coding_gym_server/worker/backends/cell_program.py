"""Program that executes cells in any CPython from 3.5 on: in its syntax, with its standard library only.

Its standard streams are those of the cells. Requests come from one descriptor, each a line of JSON: the code, whether a value
is shown, and whether values and exceptions are reported rather than printed. For each, it writes to another descriptor a line
when the cell has begun, from when on SIGINT interrupts it, and one with the result.
"""

import __future__

import ast
import builtins
import io
import json
import linecache
import os
import signal
import sys
import traceback
import types
from typing import Any

_FUTURE_FLAGS = 0
for _name in __future__.all_feature_names:
    _FUTURE_FLAGS |= getattr(__future__, _name).compiler_flag


def main() -> None:
    """Serve until the descriptor of requests is closed."""
    requests, replies = int(sys.argv[1]), int(sys.argv[2])
    for descriptor in (requests, replies):
        os.set_inheritable(descriptor, False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.argv = [""]
    sys.stdout, sys.stderr = _stream(1), _stream(2)
    module = types.ModuleType("__main__")
    module.__dict__["__builtins__"] = builtins
    sys.modules["__main__"] = module
    own = os.getpid()
    cells = _Cells(module.__dict__)
    with open(requests, encoding="utf-8") as lines:
        for line in lines:
            reply = _execute(cells, json.loads(line), replies)
            if os.getpid() != own:
                # A child process that the cell has forked has reached its end.
                os._exit(reply["exit_code"])
            _write(replies, json.dumps(reply))


class _Cells:
    """Cells that share a namespace.

    Args:
        namespace: The namespace.
    """

    def __init__(self, namespace: Any) -> None:
        self._namespace = namespace
        self._count = 0
        self._flags = 0

    def execute(self, request: Any, reply: Any) -> None:
        """Execute a cell; put its value into the reply if it is rich."""
        self._count += 1
        name = "<cell {}>".format(self._count)
        code = request["code"]
        linecache.cache[name] = (len(code), None, list(io.StringIO(code, newline=None)), name)
        tree = compile(code, name, "exec", self._flags | ast.PyCF_ONLY_AST, True)
        value = None
        if (request["show_value"] or request["rich"]) and tree.body and isinstance(tree.body[-1], ast.Expr):
            value = tree.body.pop().value
        if tree.body:
            exec(self._compile(tree, name, "exec"), self._namespace)
        if value is None:
            return
        found = eval(self._compile(ast.Expression(value), name, "eval"), self._namespace)
        if not request["rich"]:
            sys.displayhook(found)
        elif found is not None:
            reply["value"] = repr(found)
            vars(builtins)["_"] = found

    def _compile(self, tree: Any, name: str, mode: str) -> Any:
        """Compile a part of a cell, with the features of ``__future__`` that the ones before have imported."""
        code = compile(tree, name, mode, self._flags, True)
        self._flags |= code.co_flags & _FUTURE_FLAGS
        return code


def _execute(cells: _Cells, request: Any, replies: int) -> Any:
    """Execute a cell; return the reply."""
    reply = {"exit_code": 0, "value": None, "raised": None}
    try:
        try:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            _write(replies, "begun")
            cells.execute(request, reply)
            _flush()
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
    except BaseException as error:
        try:
            reply["exit_code"] = _report(error, reply if request["rich"] else None)
        except BaseException as other:
            # User code has replaced what shows an exception.
            reply["exit_code"] = 1
            os.write(2, (type(other).__name__ + "\n").encode("utf-8", "replace"))
        _flush()
    return reply


def _report(error: BaseException, reply: Any) -> int:
    """Print an exception, or put it into the reply of a rich cell; return the exit code."""
    frames = error.__traceback__
    # Those of this program.
    while frames is not None and frames.tb_frame.f_globals is globals():
        frames = frames.tb_next
    error.__traceback__ = frames
    if reply is not None:
        text = "".join(traceback.format_exception(type(error), error, frames))
        reply["raised"] = [type(error).__name__, str(error), text]
    if isinstance(error, SystemExit):
        if isinstance(error.code, int):
            return error.code & 0xFF
        if error.code is not None and reply is None:
            sys.stderr.write("{}\n".format(error.code))
        return 0 if error.code is None else 1
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, frames
    if reply is None and sys.excepthook is sys.__excepthook__:
        # Which finds the lines of files only.
        traceback.print_exception(type(error), error, frames)
    elif reply is None:
        sys.excepthook(type(error), error, frames)
    return 130 if isinstance(error, KeyboardInterrupt) else 1


def _stream(descriptor: int) -> Any:
    return open(descriptor, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            # It is closed, or another object.
            continue


def _write(descriptor: int, line: str) -> None:
    data = (line + "\n").encode("ascii")
    while data:
        data = data[os.write(descriptor, data) :]


if __name__ == "__main__":
    main()
