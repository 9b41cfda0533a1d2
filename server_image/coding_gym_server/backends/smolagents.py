"""smolagents' interpreter of Python: it walks the syntax tree itself and knows a part of the language."""

from __future__ import annotations

import sys
from typing import Any

from smolagents import local_python_executor
from smolagents.local_python_executor import InterpreterError, LocalPythonExecutor, PrintContainer

from coding_gym_server.backends import tools
from coding_gym_server.backends.base import ExecutorBackend
from coding_gym_server.backends.output import Output

__all__ = ["SmolagentsBackend"]

_INTERRUPTED = 130
_MAX_OPERATIONS = 2**63
_KEPT_OUTPUT = 0
"""The worker's streams carry what is printed; smolagents itself need keep nothing of it."""


class _Streamed(PrintContainer):  # type: ignore[misc]
    """Passes on what a cell prints, at once, so that it is not lost with a cell that fails or is killed."""

    def append(self, text: Any) -> _Streamed:
        sys.stdout.write(str(text))
        return self

    __iadd__ = append


class SmolagentsBackend(ExecutorBackend):
    """Runs cells with ``LocalPythonExecutor``, whose own limits on time and operations give way to those of the session."""

    def __init__(self, output: Output, *, authorized_imports: tuple[str, ...] = ()) -> None:
        super().__init__(output, authorized_imports=authorized_imports)
        self._show_value = True
        local_python_executor.PrintContainer = _Streamed
        # A cell that goes on for too long is interrupted, and killed if need be, like one of any other backend.
        local_python_executor.MAX_OPERATIONS = local_python_executor.MAX_WHILE_ITERATIONS = _MAX_OPERATIONS
        self._executor = LocalPythonExecutor(
            additional_authorized_imports=[*authorized_imports, "json"],
            max_print_outputs_length=_KEPT_OUTPUT,
            additional_functions={"format_exc": tools.format_exc, "safe_json_dumps": tools.safe_json_dumps},
            timeout_seconds=None,
        )
        self._executor.send_tools({})

    def configure(self, *, show_value: bool) -> None:
        self._show_value = show_value

    def execute(self, code: str) -> int:
        try:
            value = self._executor(code).output
            if value is not None and _ends_with_expression(code):
                self._show(value)
        except KeyboardInterrupt:
            return self._report("KeyboardInterrupt", "", "KeyboardInterrupt", _INTERRUPTED)
        except SystemExit as error:
            return error.code & 0xFF if isinstance(error.code, int) else 0 if error.code is None else 1
        except BaseException as error:  # noqa: BLE001 - whatever user code raises is an observation
            return 1
        return 0
