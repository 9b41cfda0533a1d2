"""Backend that executes cells in a Jupyter kernel, a child process of the worker, for other languages."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, TypeVar

from coding_gym_server.worker.backends.base import ExecutorBackend
from coding_gym_server.worker.backends.jupyter.dialects import DIAGNOSIS
from coding_gym_server.worker.backends.jupyter.kernel import Kernel, KernelDiedError, Message
from coding_gym_server.worker.backends.jupyter.kernelspecs import find_kernel, missing_kernel
from coding_gym_server.worker.backends.jupyter.process import KernelStartError
from coding_gym_server.worker.backends.output import Output

__all__ = ["JupyterBackend", "of_kernel"]

_T = TypeVar("_T")

_INTERRUPTED = 130
_INTERRUPT = {"ename": "Interrupted", "evalue": "the cell was interrupted"}
_ANSI = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")


class JupyterBackend(ExecutorBackend):
    """Sends cells to a kernel, and shows the messages that it publishes.

    Subclasses define the kernel: see ``of_kernel``.
    """

    kernel_name: ClassVar[str]

    def __init__(self, output: Output, *, authorized_imports: tuple[str, ...] = ()) -> None:
        super().__init__(output, authorized_imports=authorized_imports)
        self._show_value = True
        self._kernel: Kernel | None = None
        self._refusal = ""

    def configure(self, *, show_value: bool) -> None:
        self._show_value = show_value
        # The kernel starts up while the client prepares its first cell.
        spec = find_kernel(self.kernel_name)
        try:
            if spec is None:
                raise KernelStartError(missing_kernel(self.kernel_name))
            self._kernel = Kernel(spec)
        except KernelStartError as error:
            self._refusal = str(error)

    def execute(self, code: str) -> int:
        kernel = self._kernel
        if kernel is None or self._refusal:
            return self._refuse(self._refusal)
        return self._run_while_alive(kernel, lambda: self._execute(kernel, code))

    @contextlib.contextmanager
    def environment(self, variables: Mapping[str, str]) -> Iterator[None]:
        kernel = self._kernel
        if kernel is None:
            yield
            return
        self._run_while_alive(kernel, kernel.wait_until_ready)
        dialect = kernel.dialect
        if not dialect.sets_environment:
            language = kernel.language or "this language"
            self._refusal = f"The environment variables of a cell cannot be set in {language}: leave them out"
            try:
                yield
            finally:
                self._refusal = ""
            return
        self._run_while_alive(kernel, lambda: self._ask(kernel, dialect.set_environment(variables)))
        try:
            yield
        finally:
            self._run_while_alive(kernel, lambda: self._ask(kernel, dialect.restore_environment()))

    def _execute(self, kernel: Kernel, code: str) -> int:
        kernel.wait_until_ready()
        raised = False
        reply: dict[str, Any] = {}
        for message in kernel.execute(code):
            raised |= self._show(message)
            reply = message["content"]
        if reply.get("status") == "ok":
            return 0
        interrupted = kernel.interrupted
        if not raised:
            self._show_error(_INTERRUPT if interrupted else self._diagnose(kernel, code) or reply)
        return _INTERRUPTED if interrupted else 1

    def _ask(self, kernel: Kernel, code: str) -> None:
        for message in kernel.ask(code):
            self._show(message)

    def _diagnose(self, kernel: Kernel, code: str) -> dict[str, Any] | None:
        """Return the error of a cell that the kernel rejected without a reason, or None if it cannot be determined."""
        diagnosis = kernel.dialect.diagnose(code)
        reason = ""
        for message in kernel.ask(diagnosis, until=DIAGNOSIS) if diagnosis else ():
            if message["msg_type"] == DIAGNOSIS:
                reason = str(message["content"].get("message", ""))
        return {"ename": "SyntaxError", "evalue": reason} if reason else None

    def _run_while_alive(self, kernel: Kernel, work: Callable[[], _T]) -> _T:
        try:
            return work()
        except KernelDiedError as death:
            for message in kernel.final_messages():
                self._show(message)
            # The server handles it like any dead interpreter.
            os._exit(death.exit_code)

    def _show(self, message: Message) -> bool:
        """Show a published message, and return whether it was an exception."""
        content = message["content"]
        match message["msg_type"]:
            case "stream":
                _write(2 if content.get("name") == "stderr" else 1, str(content.get("text", "")))
            case "execute_result" | "display_data" as kind:
                self._show_bundle(content.get("data", {}), is_value=kind == "execute_result")
            case "error":
                self._show_error(content)
                return True
        return False

    def _show_bundle(self, data: dict[str, Any], *, is_value: bool) -> None:
        if self.output.rich:
            self.output.result(data, is_value=is_value)
        elif "text/plain" in data and (self._show_value or not is_value):
            _write(1, f"{_plain(data['text/plain'])}\n")

    def _show_error(self, content: dict[str, Any]) -> None:
        name, value = str(content.get("ename", "Error")), _plain(content.get("evalue", ""))
        traceback = _plain("\n".join(map(str, content.get("traceback") or ()))).strip("\n") or f"{name}: {value}"
        if self.output.rich:
            self.output.error(name, value, traceback)
        else:
            _write(2, f"{traceback}\n")

    def _refuse(self, reason: str) -> int:
        if self.output.rich:
            self.output.error("KernelError", reason, reason)
        else:
            _write(2, f"{reason}\n")
        return 1


def of_kernel(name: str) -> type[JupyterBackend]:
    """Return the backend class for a kernel."""
    return type("JupyterBackend", (JupyterBackend,), {"kernel_name": name})


def _plain(text: Any) -> str:
    return _ANSI.sub("", text if isinstance(text, str) else "".join(map(str, text)))


def _write(descriptor: int, text: str) -> None:
    data = memoryview(text.encode(errors="backslashreplace" if descriptor == 2 else "surrogatepass"))
    while data:
        data = data[os.write(descriptor, data) :]
