"""``NotebookBackend``: executes cells in IPython's ``InteractiveShell`` and reports the results."""

from __future__ import annotations

import builtins
import contextlib
import getpass
import importlib
import os
import sys
from typing import Any, NoReturn

from IPython.core.error import StdinNotImplementedError

from coding_gym_server.worker.backends.base import ExecutorBackend
from coding_gym_server.worker.backends.notebook.images import show_saved_images
from coding_gym_server.worker.backends.notebook.shell import CellShell
from coding_gym_server.worker.backends.output import Output

__all__ = ["NotebookBackend"]

_INTERRUPTED = 130
_INLINE = "module://matplotlib_inline.backend_inline"


class NotebookBackend(ExecutorBackend):
    """Executes cells as a Jupyter notebook does: magics, ``!commands``, ``display``, top-level await, figures.

    The shell is created once, in the zygote; each worker has a forked copy of it.
    """

    def __init__(self, output: Output, *, authorized_imports: tuple[str, ...] = ()) -> None:
        super().__init__(output, authorized_imports=authorized_imports)
        self._shell = CellShell.instance()
        self._shell.output = output
        sys.modules["__main__"] = self._shell.user_module
        show_saved_images(output)
        builtins.input = getpass.getpass = _refuse_input
        os.environ["MPLBACKEND"] = _INLINE
        matplotlib: Any = sys.modules.get("matplotlib")
        if matplotlib is not None and matplotlib.rcParams["backend"].lower() == "agg":
            # The zygote has imported it after ``prepare``.
            matplotlib.rcParams["backend"] = _INLINE

    @classmethod
    def prepare(cls, name: str) -> None:
        shell = CellShell.instance()
        with contextlib.suppress(ImportError):
            importlib.import_module("PIL.Image")
        shell.warm_up()

    def configure(self, *, show_value: bool) -> None:
        self._shell.show_value = show_value

    def execute(self, code: str) -> int:
        result = self._shell.run_cell(code, store_history=True)
        error = result.error_before_exec or result.error_in_exec
        if error is None:
            return 0
        if self.output.rich and self.output.raised is None:
            # IPython has printed the error itself instead of reporting it.
            self.output.error(type(error).__name__, str(error), "")
        if isinstance(error, SystemExit):
            return _exit_code(error)
        return _INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1


def _refuse_input(*_: object, **__: object) -> NoReturn:
    message = "raw_input was called, but this frontend does not support input requests."
    raise StdinNotImplementedError(message)


def _exit_code(error: SystemExit) -> int:
    if error.code is None:
        return 0
    return error.code & 0xFF if isinstance(error.code, int) else 1
