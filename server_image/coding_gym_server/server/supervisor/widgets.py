"""Widgets of a session's programs, as its worker reports them and its screen confirms them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

import msgspec

from coding_gym_server.ipc.async_channel import ChannelClosedError
from coding_gym_server.ipc.widget_messages import RequestWidgets
from coding_gym_server.protocol import MAX_SCREEN_SIDE, MAX_WIDGET_CHARS, MAX_WIDGETS, Widget, Window
from coding_gym_server.server.supervisor.executor import Executor

__all__ = ["arrange", "read_widgets"]

_TIMEOUT = 2.0
"""Maximum number of seconds to wait for the answer of a worker; a busy program does not answer."""

_MAX_ROLE_CHARS = 32
_FAR = 2 * MAX_SCREEN_SIDE


async def read_widgets(executor: Executor) -> list[Widget]:
    """Return what the worker reports about its widgets; empty if it does not answer in time.

    Args:
        executor: The executor of the session, which may be running a cell.
    """
    answer = executor.worker.expect_widgets()
    with contextlib.suppress(TimeoutError, ChannelClosedError):
        await executor.call_root(RequestWidgets(executor.slot))
        async with asyncio.timeout(_TIMEOUT):
            return await answer
    return []


def arrange(reported: Sequence[Widget], windows: Sequence[Window]) -> list[Widget]:
    """Return a valid tree of widgets for what a worker has reported, which may be anything.

    Widgets get the ids of their windows, and those of GTK 4 their positions on the screen. Windows without widgets are added.

    Args:
        reported: The widgets that the worker has reported.
        windows: The visible windows, bottommost first.
    """
    arranged: list[Widget] = []
    for number, widget in enumerate(reported[: MAX_WIDGETS - min(len(windows), MAX_WIDGETS)]):
        parent = widget.parent if widget.parent is not None and 0 <= widget.parent < number else None
        placed = _placed(widget, windows)
        own = _window_of(placed, windows) if parent is None else arranged[parent].window
        arranged.append(
            msgspec.structs.replace(
                placed,
                id=number,
                role=widget.role[:_MAX_ROLE_CHARS],
                name=widget.name[:MAX_WIDGET_CHARS],
                value=None if widget.value is None else widget.value[:MAX_WIDGET_CHARS],
                toolkit=widget.toolkit[:_MAX_ROLE_CHARS],
                parent=parent,
                window=own,
                covered=_is_covered(placed, own, windows),
            )
        )
    known = {widget.window for widget in arranged}
    for window in windows:
        if window.id not in known and len(arranged) < MAX_WIDGETS:
            arranged.append(_of_window(len(arranged), window, windows))
    return arranged


def _placed(widget: Widget, windows: Sequence[Window]) -> Widget:
    """Return a widget at its position on the screen: if it names a window, it is relative to that."""
    origin = next(((window.x, window.y) for window in windows if window.id == widget.window), (0, 0))
    return msgspec.structs.replace(
        widget,
        x=_limited(widget.x + origin[0]),
        y=_limited(widget.y + origin[1]),
        width=max(_limited(widget.width), 0),
        height=max(_limited(widget.height), 0),
    )


def _limited(number: int) -> int:
    return max(-_FAR, min(number, _FAR))


def _window_of(root: Widget, windows: Sequence[Window]) -> int | None:
    """Return the id of the window that a tree belongs to: the one it names, or the one with most of its pixels in common."""
    if any(window.id == root.window for window in windows):
        return root.window
    shares = [(_overlap(root, window), window.title == root.name, window.stacking, window.id) for window in windows]
    share, *_, found = max(shares, default=(0.0, False, 0, None))
    return found if share > 0.5 else None


def _overlap(widget: Widget, window: Window) -> float:
    """Return the fraction of the pixels of a widget or a window that both have."""
    width = min(widget.x + widget.width, window.x + window.width) - max(widget.x, window.x)
    height = min(widget.y + widget.height, window.y + window.height) - max(widget.y, window.y)
    if width <= 0 or height <= 0:
        return 0.0
    common = width * height
    return common / (widget.width * widget.height + window.width * window.height - common)


def _is_covered(widget: Widget, own: int | None, windows: Sequence[Window]) -> bool:
    x, y = widget.x + widget.width // 2, widget.y + widget.height // 2
    hit = [window.id for window in windows if 0 <= x - window.x < window.width and 0 <= y - window.y < window.height]
    return own is not None and own in hit and hit[-1] != own


def _of_window(number: int, window: Window, windows: Sequence[Window]) -> Widget:
    widget = Widget(
        id=number,
        role="window",
        name=window.title[:MAX_WIDGET_CHARS],
        x=window.x,
        y=window.y,
        width=window.width,
        height=window.height,
        window=window.id,
    )
    return msgspec.structs.replace(widget, covered=_is_covered(widget, window.id, windows))
