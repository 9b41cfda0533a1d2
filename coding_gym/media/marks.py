"""Set-of-marks pictures: a screen with numbered boxes around its widgets, and the tree of widgets as text."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coding_gym_server.protocol import Widget

if TYPE_CHECKING:
    from PIL.ImageDraw import ImageDraw

__all__ = ["USABLE_ROLES", "MarkedScreen", "format_widgets", "mark_widgets"]

USABLE_ROLES = frozenset(
    {
        *("button", "checkbox", "radio", "textbox", "combobox", "option", "slider", "spinbutton", "menuitem", "tab", "row"),
        *("cell", "scrollbar", "canvas"),
    }
)
"""Roles of the widgets that respond to mouse and keyboard."""

_COLORS = ((214, 39, 40), (31, 119, 180), (44, 140, 44), (148, 103, 189), (140, 86, 75), (200, 90, 0), (0, 128, 128))
_WHITE = (255, 255, 255)
_FONT_SIZE = 11
_PADDING = 2

Box = tuple[int, int, int, int]


@dataclass(frozen=True)
class MarkedScreen:
    """A screen with numbered boxes around widgets.

    Attributes:
        image: The picture: uint8, shape (height, width, 3).
        widgets: The widget of each number.
    """

    image: NDArray[np.uint8]
    widgets: dict[int, Widget]


def mark_widgets(frame: NDArray[np.uint8], widgets: Iterable[Widget], *, roles: Collection[str] = USABLE_ROLES) -> MarkedScreen:
    """Draw a numbered box around each widget that can be used: enabled, on the screen, and not covered by another window.

    Args:
        frame: A picture of the screen: uint8, shape (height, width, 3); it is not changed.
        widgets: The widgets, such as those of ``env.unwrapped.widgets()``.
        roles: Roles of the widgets to mark.

    Returns:
        The picture, and the widget of each number. The numbers begin at 1, in tree order.
    """
    from PIL import Image, ImageDraw

    height, width = frame.shape[:2]
    picture = Image.fromarray(frame)
    pen = ImageDraw.Draw(picture)
    marked: dict[int, Widget] = {}
    boxes: dict[int, Box] = {}
    for widget in widgets:
        box = _visible_box(widget, width, height)
        if box is not None and widget.role in roles and widget.enabled and not widget.covered:
            number = len(marked) + 1
            marked[number], boxes[number] = widget, box
            pen.rectangle(box, outline=_color(number))
    # Above all boxes, so that each number can be read.
    taken = [*boxes.values()]
    for number, box in boxes.items():
        taken.append(_draw_label(pen, number, box, taken, (width, height)))
    return MarkedScreen(np.array(picture), marked)


def format_widgets(widgets: Sequence[Widget]) -> str:
    """Return the tree of widgets as text, one widget a line, indented by depth.

    Example:
        >>> window = Widget(id=0, role="window", name="Form", x=0, y=0, width=200, height=100)
        >>> field = Widget(id=1, role="textbox", value="Ada", parent=0, x=10, y=10, width=80, height=20, focused=True)
        >>> print(format_widgets([window, field]))
        [0] window 'Form' (0, 0, 200, 100)
          [1] textbox value='Ada' focused (10, 10, 80, 20)
    """
    depths: dict[int, int] = {}
    lines = []
    for widget in widgets:
        depth = depths[widget.id] = 0 if widget.parent is None else depths.get(widget.parent, -1) + 1
        lines.append("  " * depth + _describe(widget))
    return "\n".join(lines)


def _describe(widget: Widget) -> str:
    states: dict[str, Any] = {
        "disabled": not widget.enabled,
        "focused": widget.focused,
        "checked": widget.checked,
        "unchecked": widget.checked is False,
        "selected": widget.selected,
        "covered": widget.covered,
    }
    words = [
        f"[{widget.id}]",
        widget.role,
        *([repr(widget.name)] if widget.name else []),
        *([f"value={widget.value!r}"] if widget.value is not None else []),
        *(state for state, applies in states.items() if applies),
        f"({widget.x}, {widget.y}, {widget.width}, {widget.height})",
    ]
    return " ".join(words)


def _visible_box(widget: Widget, width: int, height: int) -> Box | None:
    """Return the part of a widget on the screen as its corners, None if there is none."""
    left, top = max(widget.x, 0), max(widget.y, 0)
    right, bottom = min(widget.x + widget.width, width) - 1, min(widget.y + widget.height, height) - 1
    return (left, top, right, bottom) if right > left and bottom > top else None


def _color(number: int) -> tuple[int, int, int]:
    return _COLORS[number % len(_COLORS)]


def _draw_label(pen: ImageDraw, number: int, box: Box, taken: Sequence[Box], size: tuple[int, int]) -> Box:
    """Write the number of a box beside it, where it hides the least of other numbers and of the widgets themselves."""
    from PIL import ImageFont

    font = ImageFont.load_default(_FONT_SIZE)
    _, _, text_width, text_height = pen.textbbox((0, 0), str(number), font=font)
    width, height = round(text_width) + 2 * _PADDING, round(text_height) + 2 * _PADDING
    left, top, right, bottom = box
    middle = (top + bottom - height) // 2
    corners = (
        (left - width - 1, middle),
        (left, top - height - 1),
        (right + 2, middle),
        (left, bottom + 2),
        (right - width, top),
        (left, top),
    )
    places = [(max(0, min(x, size[0] - width - 1)), max(0, min(y, size[1] - height - 1))) for x, y in corners]
    areas = [(x, y, x + width, y + height) for x, y in places]
    area = min(areas, key=lambda area: sum(_common_pixels(area, other) for other in taken))
    pen.rectangle(area, fill=_color(number))
    pen.text((area[0] + _PADDING, area[1] + _PADDING), str(number), fill=_WHITE, font=font)
    return area


def _common_pixels(one: Box, other: Box) -> int:
    width, height = min(one[2], other[2]) - max(one[0], other[0]), min(one[3], other[3]) - max(one[1], other[1])
    return width * height if width > 0 and height > 0 else 0
