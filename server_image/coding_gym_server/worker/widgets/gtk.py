"""Widgets of GTK: in version 3 by its accessibility tree (ATK), in version 4 by its tree of widgets."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

from coding_gym_server.worker.widgets.collector import MAX_DEPTH, Box, WidgetCollector

__all__ = ["read_gtk"]

_ATK_ROLES = {
    "frame": "window",
    "window": "window",
    "dialog": "dialog",
    "alert": "dialog",
    "file chooser": "dialog",
    "push button": "button",
    "button": "button",
    "toggle button": "button",
    "check box": "checkbox",
    "radio button": "radio",
    "text": "textbox",
    "entry": "textbox",
    "password text": "textbox",
    "combo box": "combobox",
    "list": "listbox",
    "list box": "listbox",
    "list item": "option",
    "slider": "slider",
    "spin button": "spinbutton",
    "menu bar": "menubar",
    "menu": "menuitem",
    "menu item": "menuitem",
    "check menu item": "menuitem",
    "radio menu item": "menuitem",
    "page tab list": "tablist",
    "page tab": "tab",
    "tree": "tree",
    "tree table": "tree",
    "table": "table",
    "table cell": "cell",
    "progress bar": "progressbar",
    "level bar": "progressbar",
    "scroll bar": "scrollbar",
    "label": "label",
    "static": "label",
    "icon": "image",
    "image": "image",
    "drawing area": "canvas",
    "canvas": "canvas",
    "tool bar": "toolbar",
    "status bar": "status",
    "separator": "separator",
    "panel": "group",
    "filler": "group",
    "grouping": "group",
}
"""Role of each role of ATK."""

_TYPE_ROLES = (
    ("Dialog", "dialog"),
    ("Window", "window"),
    ("CheckButton", "checkbox"),
    ("Switch", "checkbox"),
    ("Button", "button"),
    ("MenuButton", "button"),
    ("Entry", "textbox"),
    ("SearchEntry", "textbox"),
    ("PasswordEntry", "textbox"),
    ("TextView", "textbox"),
    ("DropDown", "combobox"),
    ("ComboBox", "combobox"),
    ("SpinButton", "spinbutton"),
    ("Scale", "slider"),
    ("ProgressBar", "progressbar"),
    ("Scrollbar", "scrollbar"),
    ("Label", "label"),
    ("Picture", "image"),
    ("Image", "image"),
    ("DrawingArea", "canvas"),
    ("ListBoxRow", "option"),
    ("ListBox", "listbox"),
    ("ListView", "listbox"),
    ("ColumnView", "table"),
    ("Notebook", "tablist"),
    ("PopoverMenuBar", "menubar"),
    ("Popover", "menu"),
    ("Separator", "separator"),
    ("Box", "group"),
    ("Grid", "group"),
    ("Frame", "group"),
)
"""Role of each type of GTK 4; the first that a widget is an instance of counts."""

_EDITABLE = ("textbox", "spinbutton")
_MAX_CHILDREN = 500


def read_gtk(collector: WidgetCollector) -> None:
    """Add the visible widgets of all windows of this process."""
    gtk: Any = sys.modules["gi.repository.Gtk"]
    if gtk.get_major_version() >= 4:
        reader = _Gtk4Reader(gtk, collector)
        windows = gtk.Window.get_toplevels()
        for i in range(windows.get_n_items()):
            reader.read_window(windows.get_item(i))
        return
    atk_reader = _AtkReader(sys.modules["gi.repository.Atk"], collector)
    for window in gtk.Window.list_toplevels():
        if window.get_mapped():
            atk_reader.read(window.get_accessible(), None, 0)


class _AtkReader:
    """Reads the accessibility tree of GTK 3.

    Args:
        atk: The module of ATK.
        collector: Receives the widgets.
    """

    def __init__(self, atk: Any, collector: WidgetCollector) -> None:
        self._atk = atk
        self._collector = collector

    def read(self, node: Any, parent: int | None, depth: int) -> None:
        """Add a node and its visible descendants."""
        states, kind = node.ref_state_set(), self._atk.StateType
        if not states.contains_state(kind.SHOWING) or depth > MAX_DEPTH:
            return
        name = self._atk.role_get_name(node.get_role())
        role = _ATK_ROLES.get(name, "generic")
        number = self._collector.add(
            role,
            self._box(node),
            parent,
            name=node.get_name() or "",
            value=self._value(node, role),
            enabled=states.contains_state(kind.ENABLED) and states.contains_state(kind.SENSITIVE),
            focused=states.contains_state(kind.FOCUSED),
            editable=states.contains_state(kind.EDITABLE),
            checked=states.contains_state(kind.CHECKED) if self._is_checkable(states, name) else None,
            selected=states.contains_state(kind.SELECTED) if states.contains_state(kind.SELECTABLE) else None,
            toolkit="gtk",
        )
        for i in range(min(node.get_n_accessible_children(), _MAX_CHILDREN)):
            child = node.ref_accessible_child(i)
            if child is not None:
                self.read(child, number, depth + 1)

    def _is_checkable(self, states: Any, name: str) -> bool:
        return states.contains_state(self._atk.StateType.CHECKABLE) or "check" in name or "radio" in name or "toggle" in name

    def _box(self, node: Any) -> Box:
        extents = self._atk.Component.get_extents(node, self._atk.CoordType.SCREEN)
        return extents.x, extents.y, extents.width, extents.height

    def _value(self, node: Any, role: str) -> str | None:
        if role in ("slider", "spinbutton", "progressbar") and isinstance(node, self._atk.Value):
            return f"{node.get_value_and_text()[0]:g}"
        if role == "textbox" and isinstance(node, self._atk.Text):
            return str(node.get_text(0, -1))
        return node.get_name() or None if role == "combobox" else None


class _Gtk4Reader:
    """Reads the tree of widgets of GTK 4, which knows positions within windows only.

    Args:
        gtk: The module of GTK.
        collector: Receives the widgets.
    """

    def __init__(self, gtk: Any, collector: WidgetCollector) -> None:
        self._gtk = gtk
        self._collector = collector
        self._roles = [(getattr(gtk, name), role) for name, role in _TYPE_ROLES if hasattr(gtk, name)]

    def read_window(self, window: Any) -> None:
        """Add a window, if it is shown, and its visible descendants."""
        if window.get_mapped():
            transform = window.get_surface_transform()
            self._read(window, None, (window, window.get_surface().get_xid(), transform), 0)

    def _read(self, widget: Any, parent: int | None, origin: tuple[Any, int, Any], depth: int) -> None:
        if not widget.get_mapped() or depth > MAX_DEPTH:
            return
        window, surface, transform = origin
        is_found, bounds = widget.compute_bounds(window)
        if not is_found:
            return
        role = self._role(widget)
        number = self._collector.add(
            role,
            (bounds.get_x() + transform[0], bounds.get_y() + transform[1], bounds.get_width(), bounds.get_height()),
            parent,
            name=_label(widget),
            value=_value(widget, role),
            enabled=widget.is_sensitive(),
            focused=widget.has_focus(),
            editable=role in _EDITABLE and widget.is_sensitive() and bool(_of(widget, "get_editable")),
            checked=_of(widget, "get_active") if role == "checkbox" or hasattr(widget, "get_active") else None,
            selected=_of(widget, "is_selected") if role == "option" else None,
            window=surface,
            toolkit="gtk",
        )
        for child in _children(widget):
            self._read(child, number, origin, depth + 1)

    def _role(self, widget: Any) -> str:
        return next((role for kind, role in self._roles if isinstance(widget, kind)), "generic")


def _children(widget: Any) -> Iterator[Any]:
    child = widget.get_first_child()
    for _ in range(_MAX_CHILDREN):
        if child is None:
            return
        yield child
        child = child.get_next_sibling()


def _label(widget: Any) -> str:
    texts = (_of(widget, method) for method in ("get_label", "get_title", "get_tooltip_text"))
    return next((text for text in texts if isinstance(text, str) and text), "")


def _value(widget: Any, role: str) -> str | None:
    match role:
        case "textbox":
            buffer = _of(widget, "get_buffer")
            if hasattr(buffer, "get_bounds"):
                return str(buffer.get_text(*buffer.get_bounds(), False))
            text = _of(widget, "get_text")
            return None if text is None else str(text)
        case "slider" | "spinbutton":
            return f"{_of(widget, 'get_value') or 0:g}"
        case "progressbar":
            return f"{_of(widget, 'get_fraction') or 0:g}"
    return None


def _of(widget: Any, method: str) -> Any:
    """Return the result of a method that not every widget has, None without it."""
    with contextlib.suppress(Exception):
        return getattr(widget, method)()
    return None
