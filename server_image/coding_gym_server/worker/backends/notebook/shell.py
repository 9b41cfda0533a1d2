"""IPython shell without files, threads or a terminal, which reports its results to the worker."""

from __future__ import annotations

import asyncio
import sys
import traceback
import warnings
from collections.abc import Coroutine
from typing import Any

from IPython.core.async_helpers import get_asyncio_loop
from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.formatters import DisplayFormatter
from IPython.core.interactiveshell import InteractiveShell
from traitlets import Any as AnyTrait
from traitlets import Bool, Type
from traitlets.config import Config

from coding_gym_server.worker.backends.notebook.formatters import add_formatters
from coding_gym_server.worker.backends.output import Output

__all__ = ["CellShell"]

_PLAIN = "text/plain"
_NO_COLORS = "nocolor"


class _Formatter(DisplayFormatter):
    """Formats an object as plain text only, except for rich cells, which get all formats."""

    def format(self, obj: Any, include: Any = None, exclude: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        if not self.parent.is_rich:
            include, exclude = {_PLAIN}, None
        formats: tuple[dict[str, Any], dict[str, Any]] = super().format(obj, include=include, exclude=exclude)
        return formats


class _ValueHook(DisplayHook):
    """Display hook that shows the value of a cell."""

    def quiet(self) -> bool:
        return (not self.shell.is_rich and not self.shell.show_value) or bool(super().quiet())

    def start_displayhook(self) -> None:
        pass

    def write_output_prompt(self) -> None:
        pass

    def write_format_data(self, format_dict: dict[str, Any], md_dict: Any = None) -> None:
        self.shell.show(format_dict, is_value=True)

    def log_output(self, format_dict: dict[str, Any]) -> None:
        pass

    def finish_displayhook(self) -> None:
        pass


class _Publisher(DisplayPublisher):
    """Display publisher that shows the display output of a cell."""

    def publish(self, data: dict[str, Any], metadata: Any = None, *_: Any, update: bool = False, **__: Any) -> None:
        if not update:
            self.shell.show(data, is_value=False)

    def clear_output(self, wait: bool = False) -> None:
        pass


class CellShell(InteractiveShell):
    """The shell of a worker, created in the zygote."""

    output: Output | None = AnyTrait(None)
    show_value = Bool(True)
    displayhook_class = Type(_ValueHook)
    display_pub_class = Type(_Publisher)

    def __init__(self, **kwargs: Any) -> None:
        config = Config()
        # In memory only: the history thread would not survive a fork.
        config.HistoryManager.enabled = False
        config.HistoryManager.hist_file = ":memory:"
        config.Completer.use_jedi = False
        # The server truncates long output, with a notice.
        config.PlainTextFormatter.max_seq_length = 0
        super().__init__(config=config, colors=_NO_COLORS, ipython_dir="", **kwargs)
        # In-memory storage for magics such as %cd, instead of the profile directory.
        self._db = {}
        self.autoawait = True
        self.loop_runner = _run_async
        add_formatters(self.display_formatter)
        # A hint that only applies to a terminal.
        warnings.filterwarnings("ignore", message="To exit: use 'exit'")

    @property
    def is_rich(self) -> bool:
        """Whether results are reported rather than printed."""
        return self.output is not None and self.output.rich

    def show(self, data: dict[str, Any], *, is_value: bool) -> None:
        """Show a value or display output: as a rich result or as printed text."""
        if self.output is not None and self.output.rich:
            self.output.result(data, is_value=is_value)
        elif _PLAIN in data:
            print(data[_PLAIN])

    def init_profile_dir(self, profile_dir: Any) -> None:
        """Do nothing: a profile directory would not outlive the session."""

    def init_virtualenv(self) -> None:
        """Do nothing: only the packages of this interpreter are used."""

    def enable_gui(self, gui: Any = None) -> None:
        """Do nothing: IPython runs no GUI event loop between cells."""

    def init_display_formatter(self) -> None:
        self.display_formatter = _Formatter(parent=self)
        self.configurables.append(self.display_formatter)

    def showtraceback(self, exc_tuple: Any = None, *arguments: Any, **options: Any) -> None:
        """Show the exception that a cell raised; exception groups, which IPython cannot format, are shown as Python does."""
        error = exc_tuple[1] if exc_tuple is not None else sys.exc_info()[1]
        if isinstance(error, BaseExceptionGroup):
            lines = "".join(traceback.format_exception(error)).splitlines()
            self._showtraceback(type(error), error, lines)
        else:
            super().showtraceback(exc_tuple, *arguments, **options)

    def warm_up(self) -> None:
        """Run once the operations whose first execution is slow."""
        self.run_cell("None", silent=True)
        try:
            raise RuntimeError
        except RuntimeError as error:
            self.InteractiveTB.structured_traceback(type(error), error, error.__traceback__)

    def ask_exit(self) -> None:
        """End the cell, for ``exit`` and ``quit``."""
        raise SystemExit

    # Commands inherit descriptors 1 and 2 of this process, without a terminal.
    system = InteractiveShell.system_raw

    def _showtraceback(self, etype: type[BaseException], evalue: BaseException, stb: list[str]) -> None:
        if self.output is not None and self.output.rich:
            self.output.error(etype.__name__, str(evalue), self.InteractiveTB.stb2text(stb))
        elif not issubclass(etype, SystemExit):
            print(self.InteractiveTB.stb2text(stb), file=sys.stderr)
        elif isinstance(evalue, SystemExit) and not isinstance(evalue.code, int | None):
            print(evalue.code, file=sys.stderr)


def _run_async(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run an async cell; if it is interrupted, it is canceled, so that it does not continue with the next cell."""
    loop = get_asyncio_loop()
    task = loop.create_task(coroutine)
    try:
        return loop.run_until_complete(task)
    except KeyboardInterrupt:
        task.cancel()
        loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
        raise
