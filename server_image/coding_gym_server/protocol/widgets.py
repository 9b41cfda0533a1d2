"""Widgets: the parts of graphical programs as data."""

from __future__ import annotations

import msgspec

MAX_WIDGETS = 2000
"""Maximum number of widgets in a response; those that come first in the tree are kept."""

MAX_WIDGET_CHARS = 1000
"""Maximum length of a widget's name, and of its value; longer texts lose their end."""


class Widget(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A visible part of a graphical program: a window, a button, an entry of a menu, a row of a list.

    Names, values and states are the program's own and may be forged by it.

    Attributes:
        id: Its index in the list, which is in tree order: a parent precedes its children.
        role: Its kind, named as in ARIA where ARIA has it: ``window``, ``dialog``, ``button``, ``checkbox``, ``radio``,
            ``textbox``, ``combobox``, ``listbox``, ``option``, ``slider``, ``spinbutton``, ``menubar``, ``menu``, ``menuitem``,
            ``tablist``, ``tab``, ``tree``, ``table``, ``row``, ``progressbar``, ``scrollbar``, ``label``, ``image``,
            ``canvas``, ``toolbar``, ``status``, ``separator``, ``group``, ``generic``.
        x: Horizontal position of the upper left corner, in pixels from the left edge of the screen; may be negative.
        y: Vertical position of the upper left corner, in pixels from the top edge; may be negative.
        width: Width in pixels.
        height: Height in pixels.
        name: Its label, or the title of a window; empty if it has none.
        value: What it contains: entered text, the chosen item, a number as text; None if it has no value.
        parent: Id of the widget that contains it, None for a window.
        window: Id of its window on the screen, as in ``Window``; None if it is not known.
        enabled: Whether it responds to input.
        focused: Whether it has the keyboard focus of its program.
        editable: Whether text can be entered.
        checked: Whether it is checked, None if it is not checkable.
        selected: Whether it is the selected item, None if it is not an item.
        covered: Whether another window covers its center.
        toolkit: What reported it: ``tk``, ``qt``, ``gtk``; empty for a window whose program reports no widgets.
        pid: Process id of its program inside the sandbox; 0 if it is not known.
    """

    id: int
    role: str
    x: int
    y: int
    width: int
    height: int
    name: str = ""
    value: str | None = None
    parent: int | None = None
    window: int | None = None
    enabled: bool = True
    focused: bool = False
    editable: bool = False
    checked: bool | None = None
    selected: bool | None = None
    covered: bool = False
    toolkit: str = ""
    pid: int = 0
