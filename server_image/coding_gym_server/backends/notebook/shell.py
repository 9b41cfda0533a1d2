"""IPython's shell, without files, threads and a terminal, whose results go where the worker wants them."""

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

from coding_gym_server.backends.notebook.formatters import add_formatters
from coding_gym_server.backends.output import Output

__all__ = ["CellShell"]

_PLAIN = "text/plain"
_NO_COLORS = "nocolor"


class _Formatter(DisplayFormatter):
    """Makes all formats of an object only where somebody wants them."""

    def format(self, obj: Any, include: Any = None, exclude: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        if not self.parent.is_rich:
            include, exclude = {_PLAIN}, None
        formats: tuple[dict[str, Any], dict[str, Any]] = super().format(obj, include=include, exclude=exclude)
        return formats


class _ValueHook(DisplayHook):
    """Shows the value of a cell."""

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
    """Shows what a cell displays."""

    def publish(self, data: dict[str, Any], metadata: Any = None, *_: Any, update: bool = False, **__: Any) -> None:
        if not update:
            self.shell.show(data, is_value=False)

    def clear_output(self, wait: bool = False) -> None:
        pass


class CellShell(InteractiveShell):
    """The shell of a worker; made in the zygote."""

    output: Output | None = AnyTrait(None)
    show_value = Bool(True)
    displayhook_class = Type(_ValueHook)
    display_pub_class = Type(_Publisher)

    def __init__(self, **kwargs: Any) -> None:
        config = Config()
        # In memory only: its thread would not survive a fork.
        config.HistoryManager.enabled = False
        config.HistoryManager.hist_file = ":memory:"
        config.Completer.use_jedi = False
        # What is too long is cut by the server, which says so.
        config.PlainTextFormatter.max_seq_length = 0
        super().__init__(config=config, colors=_NO_COLORS, ipython_dir="", **kwargs)
        # What magics such as %cd would keep in the profile's directory.
        self._db = {}
        self.autoawait = True
        self.loop_runner = _run_async
        add_formatters(self.display_formatter)
        # IPython's advice for a terminal.
        warnings.filterwarnings("ignore", message="To exit: use 'exit'")

    @property
    def is_rich(self) -> bool:
        """Whether results are reported, rather than printed."""
        return self.output is not None and self.output.rich

    def show(self, data: dict[str, Any], *, is_value: bool) -> None:
        """Show a value or a display: as a result, or as text."""
        if self.output is not None and self.output.rich:
            self.output.result(data, is_value=is_value)
        elif _PLAIN in data:
            print(data[_PLAIN])

    def init_profile_dir(self, profile_dir: Any) -> None:
        """Have none: nothing of it outlives a session."""

    def init_virtualenv(self) -> None:
        """Stay with the interpreter's own packages."""

    def enable_gui(self, gui: Any = None) -> None:
        """Run no event loop of a toolkit between cells."""

    def init_display_formatter(self) -> None:
        self.display_formatter = _Formatter(parent=self)
        self.configurables.append(self.display_formatter)

    def showtraceback(self, exc_tuple: Any = None, *arguments: Any, **options: Any) -> None:
        """Show what a cell raised; groups, which IPython has no format for, as Python does."""
        error = exc_tuple[1] if exc_tuple is not None else sys.exc_info()[1]
        if isinstance(error, BaseExceptionGroup):
            lines = "".join(traceback.format_exception(error)).splitlines()
            self._showtraceback(type(error), error, lines)
        else:
            super().showtraceback(exc_tuple, *arguments, **options)

    def warm_up(self) -> None:
        """Do once what takes long the first time."""
        self.run_cell("None", silent=True)
        try:
            raise RuntimeError
        except RuntimeError as error:
            self.InteractiveTB.structured_traceback(type(error), error, error.__traceback__)

    def ask_exit(self) -> None:
        """Let ``exit`` and ``quit`` end the cell."""
        raise SystemExit

    # With descriptors 1 and 2 of this process, and without a terminal.
    system = InteractiveShell.system_raw

    def _showtraceback(self, etype: type[BaseException], evalue: BaseException, stb: list[str]) -> None:
        if self.output is not None and self.output.rich:
            self.output.error(etype.__name__, str(evalue), self.InteractiveTB.stb2text(stb))
        elif not issubclass(etype, SystemExit):
            print(self.InteractiveTB.stb2text(stb), file=sys.stderr)
        elif isinstance(evalue, SystemExit) and not isinstance(evalue.code, int | None):
            print(evalue.code, file=sys.stderr)


def _run_async(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a cell that awaits; one that is interrupted does not go on with the next."""
    loop = get_asyncio_loop()
    task = loop.create_task(coroutine)
    try:
        return loop.run_until_complete(task)
    except KeyboardInterrupt:
        task.cancel()
        loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
        raise
