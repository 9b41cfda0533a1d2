"""GUI support in a worker: display configuration, and event processing between cells."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from coding_gym_server.ipc.messages import EVENTS_SIGNAL
from coding_gym_server.worker.widgets.wakeup import handle_signals_in_toolkits
from coding_gym_server.workspace.layout import MATPLOTLIB_BACKEND, Layout
from coding_gym_server.workspace.xauthority import write_authority

__all__ = ["forget_closing", "offer_screen", "pump_until"]

_PUMP_SECONDS = 0.01
_MAX_EVENTS = 100


def offer_screen(display: str, cookie: bytes, layout: Layout) -> None:
    """Configure the environment so that GUI programs use a display.

    Args:
        display: The value of ``DISPLAY``.
        cookie: The authorization cookie of the display.
        layout: The layout of the session, whose X authority file is written.
    """
    authority = Path(layout.authority)
    with contextlib.suppress(OSError):
        authority.unlink(missing_ok=True)
        write_authority(authority, cookie)
    os.environ.update(layout.screen_variables(display))
    handle_signals_in_toolkits()
    if os.environ.get("MPLBACKEND") == "Agg":
        # With a screen, matplotlib can show figures in windows.
        os.environ["MPLBACKEND"] = MATPLOTLIB_BACKEND
        matplotlib: Any = sys.modules.get("matplotlib")
        if matplotlib is not None:
            matplotlib.rcParams["backend"] = MATPLOTLIB_BACKEND


def forget_closing() -> None:
    """Let turtle begin anew if its window was closed: else, the first command of the next program raises ``Terminator``."""
    turtle: Any = sys.modules.get("turtle")
    if turtle is not None:
        # User code may have changed anything.
        with contextlib.suppress(Exception):
            if turtle._Screen._root is None:
                turtle.TurtleScreen._RUNNING = True


def pump_until(has_request: Callable[[float], bool]) -> None:
    """Process the GUI events of windows that cells have left open, until a request arrives.

    Windows are repainted and respond to mouse and keyboard. Returns at once if no GUI toolkit is in use.

    Args:
        has_request: Waits up to the given number of seconds for a request, and returns whether one is pending.
    """
    while pumps := [pump for module, pump in _PUMPS.items() if module in sys.modules]:
        if has_request(_PUMP_SECONDS):
            return
        _interruptible(pumps)


def _interruptible(pumps: list[Callable[[], None]]) -> None:
    """Process the pending events; the user's event handlers can be interrupted, and their exceptions are ignored.

    Not by SIGINT, which is for the cell that waits meanwhile.
    """
    worker = os.getpid()
    with contextlib.suppress(BaseException):
        before = signal.signal(EVENTS_SIGNAL, _end_events)
        try:
            for pump in pumps:
                pump()
        finally:
            signal.signal(EVENTS_SIGNAL, before)
    if os.getpid() != worker:
        # A child process that an event handler forked; only the worker handles requests.
        os._exit(0)


def _end_events(*_: object) -> None:
    # Once: an exception while the former handler is restored would keep this one.
    signal.signal(EVENTS_SIGNAL, signal.SIG_IGN)
    raise KeyboardInterrupt


def _pump_tkinter() -> None:
    tkinter: Any = sys.modules["tkinter"]
    root = getattr(tkinter, "_default_root", None)
    if root is not None:
        for _ in range(_MAX_EVENTS):
            if not root.tk.dooneevent(tkinter._tkinter.DONT_WAIT):
                break


def _pump_qt(widgets: Any) -> None:
    application = widgets.QCoreApplication.instance()
    if application is not None:
        application.processEvents()


def _pump_pygame() -> None:
    pygame: Any = sys.modules["pygame"]
    if pygame.display.get_init():
        pygame.event.pump()


def _pump_glib() -> None:
    context = sys.modules["gi.repository.GLib"].MainContext.default()
    for _ in range(_MAX_EVENTS):
        if not context.iteration(False):
            break


_PUMPS: dict[str, Callable[[], None]] = {
    "tkinter": _pump_tkinter,
    "pygame": _pump_pygame,
    "gi.repository.GLib": _pump_glib,
    **{
        f"{binding}.QtCore": lambda binding=binding: _pump_qt(sys.modules[f"{binding}.QtCore"])  # type: ignore[misc]
        for binding in ("PySide6", "PyQt6", "PySide2", "PyQt5")
    },
}
"""Event pump of each GUI toolkit, keyed by the module whose import indicates that the toolkit is in use."""
