"""Backend of another Python interpreter: one process per worker, whose variables persist between cells.

It is any CPython from 3.5 on that the files of the session have, such as that of a repository whose tests it runs. It executes
``cell_program.py``, and starts ahead of the first cell.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from coding_gym_server.protocol.backends import PYTHON_PREFIX
from coding_gym_server.worker.backends.base import ExecutorBackend
from coding_gym_server.worker.backends.descriptors import high_pipe
from coding_gym_server.worker.backends.output import Output

__all__ = ["InterpreterBackend", "of_interpreter"]

_PROGRAM = Path(__file__).with_name("cell_program.py")
_BEGUN = b"begun\n"
_READ_BYTES = 1 << 16
_SET = "import os as _coding_gym_os; _coding_gym_before = dict(_coding_gym_os.environ); _coding_gym_os.environ.update({!r})"
_RESTORE = """
_coding_gym_os.environ.clear()
_coding_gym_os.environ.update(_coding_gym_before)
del _coding_gym_os, _coding_gym_before
"""
_NO_INTERPRETER = 127


class InterpreterBackend(ExecutorBackend):
    """Executes cells in another interpreter."""

    path = ""
    """Path of the interpreter."""

    def __init__(self, output: Output, *, authorized_imports: tuple[str, ...] = ()) -> None:
        super().__init__(output, authorized_imports=authorized_imports)
        self._process: _Interpreter | None = None
        self._show_value = True

    def configure(self, *, show_value: bool) -> None:
        self._show_value = show_value
        try:
            self._process = _Interpreter(self.path)
        except OSError as error:
            sys.stderr.write(f"{self.path}: {error.strerror}\n")
            os._exit(_NO_INTERPRETER)

    def execute(self, code: str) -> int:
        reply = self._run(code, rich=self.output.rich)
        if reply["value"] is not None:
            self.output.result({"text/plain": reply["value"]}, is_value=True)
        if reply["raised"] is not None:
            self.output.error(*reply["raised"])
        return int(reply["exit_code"])

    @contextlib.contextmanager
    def environment(self, variables: Mapping[str, str]) -> Iterator[None]:
        self._run(_SET.format(dict(variables)), rich=False)
        try:
            yield
        finally:
            self._run(_RESTORE, rich=False)

    def _run(self, code: str, *, rich: bool) -> dict[str, Any]:
        assert self._process is not None
        before = signal.signal(signal.SIGINT, self._process.interrupt)
        try:
            reply = self._process.run(code, show_value=self._show_value, rich=rich)
        finally:
            signal.signal(signal.SIGINT, before)
        if reply is None:
            # The server handles it like any dead interpreter.
            os._exit(self._process.exit_code())
        return reply


def of_interpreter(name: str) -> type[InterpreterBackend]:
    """Return the backend of an interpreter.

    Args:
        name: Name of the backend, ``python:PATH``.
    """
    return type("InterpreterBackend", (InterpreterBackend,), {"path": name.removeprefix(PYTHON_PREFIX)})


class _Interpreter:
    """A process of the interpreter.

    Args:
        path: Path of the interpreter.

    Raises:
        OSError: If it cannot be started.
    """

    def __init__(self, path: str) -> None:
        requests, self._requests = high_pipe()
        self._replies, replies = high_pipe()
        self._is_in_cell = self._is_interrupted = False
        try:
            self._process = subprocess.Popen(
                [path, "-c", _PROGRAM.read_text(), str(requests), str(replies)],
                pass_fds=(requests, replies),
                # A process permanently ignores signals that are ignored when it starts, which its children inherit.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )
        finally:
            os.close(requests)
            os.close(replies)

    def interrupt(self, *_: object) -> None:
        """Interrupt the cell, or as soon as it has begun. Usable as a signal handler."""
        self._is_interrupted = True
        if self._is_in_cell:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGINT)

    def run(self, code: str, *, show_value: bool, rich: bool) -> dict[str, Any] | None:
        """Execute a cell, and return the reply, or None if the process has ended."""
        request = json.dumps({"code": code, "show_value": show_value, "rich": rich}) + "\n"
        answer = b""
        try:
            data = memoryview(request.encode())
            while data:
                data = data[os.write(self._requests, data) :]
            while not (answer.startswith(_BEGUN) and answer.endswith(b"\n") and len(answer) > len(_BEGUN)):
                part = os.read(self._replies, _READ_BYTES)
                if not part:
                    return None
                answer += part
                self._is_in_cell = answer == _BEGUN
                if self._is_in_cell and self._is_interrupted:
                    self.interrupt()
        except BrokenPipeError:
            return None
        finally:
            self._is_in_cell = self._is_interrupted = False
        reply: dict[str, Any] = json.loads(answer.removeprefix(_BEGUN))
        return reply

    def exit_code(self) -> int:
        """Wait for the process to end, and return its exit code."""
        status = self._process.wait()
        return status if status >= 0 else 128 - status
