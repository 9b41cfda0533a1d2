"""Messages about the widgets of the programs in a worker."""

from __future__ import annotations

import signal

import msgspec

from coding_gym_server.ipc.snapshot_messages import FIRST_SLOT
from coding_gym_server.protocol.widgets import Widget

__all__ = ["WIDGETS_SIGNAL", "FoundWidgets", "RequestWidgets", "WidgetsRequested"]

WIDGETS_SIGNAL = signal.SIGURG
"""Signal by which a root asks a worker for its widgets. Programs that do not handle it ignore it."""


class RequestWidgets(msgspec.Struct, tag=True):
    """Request to a root: ask the worker for its widgets by a signal, because it may be running a cell.

    Attributes:
        slot: Number of the worker's slot.
    """

    slot: int = FIRST_SLOT


class WidgetsRequested(msgspec.Struct, tag=True):
    """Response to ``RequestWidgets``: the signal has been sent."""


class FoundWidgets(msgspec.Struct, tag=True):
    """Message of a worker after the signal: the visible widgets of the toolkits in its process.

    Attributes:
        widgets: The widgets in tree order, without ``window`` and ``covered``. ``window`` is set if the positions are relative
            to it. The worker may forge them.
    """

    widgets: list[Widget]
