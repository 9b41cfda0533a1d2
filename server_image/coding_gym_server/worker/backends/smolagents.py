"""smolagents backend: a Python interpreter that evaluates the syntax tree itself and supports a subset of the language."""

from __future__ import annotations

import ast
import importlib.util
import sys
from typing import Any

from smolagents import local_python_executor
from smolagents.local_python_executor import LocalPythonExecutor, PrintContainer

from coding_gym_server.worker.backends import tools
from coding_gym_server.worker.backends.base import ExecutorBackend
from coding_gym_server.worker.backends.output import Output

__all__ = ["SmolagentsBackend"]

_INTERRUPTED = 130
_UNLIMITED = sys.maxsize


class _Streamed(PrintContainer):  # type: ignore[misc,unused-ignore]
    """Writes the output of a cell to stdout immediately, so that it is not lost if the cell fails or is killed."""

    def append(self, text: object) -> _Streamed:
        sys.stdout.write(str(text))
        return self

    __iadd__ = append


class SmolagentsBackend(ExecutorBackend):
    """Executes cells with ``LocalPythonExecutor``, without its limits on time and operations.

    A cell that exceeds its time limit is interrupted, and killed if necessary, as with any other backend.
    """

    def __init__(self, output: Output, *, authorized_imports: tuple[str, ...] = ()) -> None:
        super().__init__(output, authorized_imports=authorized_imports)
        self._show_value = True
        local_python_executor.PrintContainer = _Streamed
        local_python_executor.MAX_OPERATIONS = local_python_executor.MAX_WHILE_ITERATIONS = _UNLIMITED
        self._executor = LocalPythonExecutor(
            additional_authorized_imports=[name for name in authorized_imports if _is_installed(name)],
            additional_functions={"format_exc": tools.format_exc, "safe_json_dumps": tools.safe_json_dumps},
            timeout_seconds=None,
        )
        self._executor.send_tools({})

    def configure(self, *, show_value: bool) -> None:
        self._show_value = show_value

    def execute(self, code: str) -> int:
        try:
            value = self._executor(code.removeprefix("\ufeff")).output
            if value is not None and (self._show_value or self.output.rich) and _ends_with_expression(code):
                self._show(value)
        except BaseException as error:  # noqa: BLE001 - any exception of user code is part of the observation
            return self._report(error)
        return 0

    def _show(self, value: Any) -> None:
        if self.output.rich:
            self.output.result({"text/plain": repr(value)}, is_value=True)
        else:
            print(repr(value))

    def _report(self, error: BaseException) -> int:
        """Report an exception with the message of the interpreter only: the frames of its traceback are not user code."""
        if isinstance(error, SystemExit) and (error.code is None or isinstance(error.code, int)):
            return (error.code or 0) & 0xFF
        name, value = type(error).__name__, str(error)
        text = f"{name}: {value}" if value else name
        if self.output.rich:
            self.output.error(name, value, text)
        else:
            print(text, file=sys.stderr)
        return _INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1


def _ends_with_expression(code: str) -> bool:
    body = ast.parse(code.removeprefix("\ufeff")).body
    return bool(body) and isinstance(body[-1], ast.Expr)


def _is_installed(module: str) -> bool:
    return importlib.util.find_spec(module.partition(".")[0]) is not None
