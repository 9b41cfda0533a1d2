"""Placement of new windows without a window manager, so that none hides another one.

Without a window manager, windows appear where their programs put them, which for most toolkits is the upper left corner.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence

import xcffib
from xcffib.xproto import Atom, ConfigWindow, GetPropertyType

from coding_gym_server.display.windows import WindowList
from coding_gym_server.protocol import Rectangle

__all__ = ["choose_position", "place_window"]

_USER_POSITION = 1
"""Flag of ``WM_NORMAL_HINTS``: the position was asked for (see ICCCM, section 4.1.2.3)."""

_NO_POSITION = (0, 0)
"""Where toolkits put windows without a position."""

_HIDDEN_PART = 0.9
"""Part of a window from which on it counts as hidden."""

_GROWTH = 1.05
"""Room for windows that grow once they are shown, as matplotlib's do."""

_STEP = 24
_STEPS = 8


def place_window(desktop: WindowList, window: int) -> None:
    """Move a window that is about to be mapped, if its program asks for no position and it would hide another one.

    Menus, tooltips and other windows that no window manager would manage stay where they are.

    Args:
        desktop: The windows of the display.
        window: Its id.
    """
    # Its program's earlier requests are processed first.
    desktop.sync()
    connection = desktop.connection
    try:
        is_managed = not connection.core.GetWindowAttributes(window).reply().override_redirect
        if not is_managed or connection.core.QueryTree(window).reply().parent != connection.root:
            return
        hints = connection.core.GetProperty(False, window, Atom.WM_NORMAL_HINTS, GetPropertyType.Any, 0, 1).reply()
        words = array("I", hints.value.buf()) if hints.format == 32 else array("I")
        size = connection.core.GetGeometry(window).reply()
    except xcffib.Error:
        # It has been destroyed meanwhile.
        return
    if (size.x, size.y) != _NO_POSITION or (words and words[0] & _USER_POSITION):
        return
    others = desktop.boxes_of_applications()
    place = choose_position(Rectangle(size.x, size.y, size.width, size.height), others, connection.screen)
    if place != (size.x, size.y):
        connection.core.ConfigureWindow(window, ConfigWindow.X | ConfigWindow.Y, list(place))
        # It has moved before its program's next request is processed.
        connection.sync()


def choose_position(window: Rectangle, others: Sequence[Rectangle], screen: tuple[int, int]) -> tuple[int, int]:
    """Return where to put a window: where it is, unless it would hide another one.

    Args:
        window: The window.
        others: The visible windows, bottommost first.
        screen: Width and height of the screen.
    """
    if not _hidden(window, others):
        return window.x, window.y
    right, bottom = (
        max(int(side - _GROWTH * size), 0) for side, size in zip(screen, (window.width, window.height), strict=True)
    )
    columns = {0, right, *(x for other in others for x in (other.x + other.width, other.x - window.width))}
    rows = {0, bottom, *(y for other in others for y in (other.y + other.height, other.y - window.height))}
    places = [(x, y) for x in columns for y in rows]
    places += [(other.x + _STEP * i, other.y + _STEP * i) for other in others for i in range(1, _STEPS)]
    inside = sorted({(y, x) for x, y in places if 0 <= x <= right and 0 <= y <= bottom})
    moved = [Rectangle(x, y, window.width, window.height) for y, x in inside]
    # Near the upper left corner, if there is a choice.
    best = min(moved, key=lambda place: (_hidden(place, others), sum(_common(place, other) for other in others)))
    if _hidden(best, others):
        # Too large to be beside the others: partly beyond the edge of the screen is better than hiding them.
        return others[-1].x + _STEP, others[-1].y + _STEP
    return best.x, best.y


def _hidden(window: Rectangle, others: Iterable[Rectangle]) -> int:
    """Return the number of windows that a window would hide."""
    return sum(_common(window, other) >= _HIDDEN_PART * other.width * other.height for other in others)


def _common(window: Rectangle, other: Rectangle) -> int:
    """Return the number of pixels of another window that a window would cover."""
    width = min(window.x + window.width, other.x + other.width) - max(window.x, other.x)
    height = min(window.y + window.height, other.y + other.height) - max(window.y, other.y)
    return max(width, 0) * max(height, 0)
