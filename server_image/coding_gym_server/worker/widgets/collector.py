"""``WidgetCollector``: a bounded list of widgets in tree order."""

from __future__ import annotations

import os
import time
from typing import Any

from coding_gym_server.protocol.widgets import MAX_WIDGET_CHARS, MAX_WIDGETS, Widget

__all__ = ["MAX_DEPTH", "Box", "TooManyWidgetsError", "WidgetCollector", "text_of"]

MAX_DEPTH = 60
"""Maximum depth of a tree of widgets; deeper ones are omitted."""

Box = tuple[int, int, int, int]
"""Horizontal and vertical position, width and height in pixels."""


class TooManyWidgetsError(Exception):
    """The limit of widgets or of time has been reached."""


class WidgetCollector:
    """A list of widgets that grows until a limit is reached.

    Args:
        seconds: Maximum duration of the collection in seconds.

    Attributes:
        widgets: The widgets so far.
    """

    def __init__(self, seconds: float) -> None:
        self.widgets: list[Widget] = []
        self._deadline = time.monotonic() + seconds
        self._pid = os.getpid()

    def add(self, role: str, box: Box, parent: int | None, **states: Any) -> int:
        """Add a widget, and return its id.

        Args:
            role: Its role.
            box: Its position on the screen, and its size.
            parent: Id of the widget that contains it, None for a window.
            states: Further fields of ``Widget``. Texts may be any objects, and too long.

        Raises:
            TooManyWidgetsError: If a limit has been reached.
        """
        if len(self.widgets) >= MAX_WIDGETS or time.monotonic() > self._deadline:
            raise TooManyWidgetsError
        x, y, width, height = (int(number) for number in box)
        number = len(self.widgets)
        name, value = text_of(states.pop("name", "")), states.pop("value", None)
        self.widgets.append(
            Widget(
                id=number,
                role=role,
                x=x,
                y=y,
                width=width,
                height=height,
                name=name,
                value=None if value is None else text_of(value),
                parent=parent,
                pid=self._pid,
                **states,
            )
        )
        return number


def text_of(value: Any) -> str:
    """Return a value as text that can be sent: bounded, and without lone surrogates."""
    return str(value)[:MAX_WIDGET_CHARS].encode("utf-8", "replace").decode("utf-8")
