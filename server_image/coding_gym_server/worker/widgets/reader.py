"""Answer to the server's question for the widgets, at any time: a signal asks it."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable

from coding_gym_server.protocol.widgets import Widget
from coding_gym_server.worker.widgets.collector import TooManyWidgetsError, WidgetCollector
from coding_gym_server.worker.widgets.gtk import read_gtk
from coding_gym_server.worker.widgets.qt import QT_BINDINGS, read_qt
from coding_gym_server.worker.widgets.tk import read_tk

__all__ = ["read_widgets"]

_MAX_SECONDS = 1.0


def read_widgets() -> list[Widget]:
    """Return the visible widgets of all toolkits that this process uses, in tree order."""
    collector = WidgetCollector(_MAX_SECONDS)
    for module, read in _READERS.items():
        if module in sys.modules:
            # The program can have changed its toolkit in any way.
            with contextlib.suppress(Exception):
                try:
                    read(collector)
                except TooManyWidgetsError:
                    break
    return collector.widgets


_READERS: dict[str, Callable[[WidgetCollector], None]] = {
    "tkinter": read_tk,
    "gi.repository.Gtk": read_gtk,
    **{f"{binding}.QtWidgets": functools.partial(read_qt, binding) for binding in QT_BINDINGS},
}
"""Reader of each toolkit, keyed by the module whose import indicates that it is in use."""
