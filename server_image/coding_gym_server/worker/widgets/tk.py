"""Widgets of Tk, read with its command ``winfo`` (see winfo(n)) and the commands of its widgets."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Iterator
from typing import Any

from coding_gym_server.worker.widgets.collector import MAX_DEPTH, Box, WidgetCollector

__all__ = ["read_tk"]

_ROLES = {
    "Button": "button",
    "Menubutton": "button",
    "Checkbutton": "checkbox",
    "Radiobutton": "radio",
    "Entry": "textbox",
    "Text": "textbox",
    "Combobox": "combobox",
    "ComboboxPopdown": "window",
    "Spinbox": "spinbutton",
    "Listbox": "listbox",
    "Scale": "slider",
    "Scrollbar": "scrollbar",
    "Label": "label",
    "Message": "label",
    "Canvas": "canvas",
    "Menu": "menu",
    "Notebook": "tablist",
    "Progressbar": "progressbar",
    "Separator": "separator",
    "Treeview": "tree",
    "Frame": "group",
    "Labelframe": "group",
    "LabelFrame": "group",
    "Panedwindow": "group",
    "PanedWindow": "group",
}
"""Role of each class of widgets, without the prefix T of themed ones (Treeview has none)."""

_VALUED = {"textbox": "get", "combobox": "get", "spinbutton": "get", "slider": "get"}
_EDITABLE = ("textbox", "combobox", "spinbutton")
_MAX_ITEMS = 500
_TAB_STEP = 4
_TAB_HEIGHT = 40


def read_tk(collector: WidgetCollector) -> None:
    """Add the visible widgets of all Tk applications of this process."""
    tkinter: Any = sys.modules["tkinter"]
    # Applications can exist without a default root, and have no other list.
    applications = [found for found in gc.get_objects() if issubclass(type(found), tkinter.Tk)]
    for application in applications:
        # One that has been destroyed raises.
        with contextlib.suppress(tkinter.TclError, AttributeError, RuntimeError):
            _Reader(application.tk, collector, tkinter.TclError).read()


class _Reader:
    """Reads the widgets of one application.

    Args:
        tk: Its interpreter.
        collector: Receives the widgets.
        error: What the interpreter raises.
    """

    def __init__(self, tk: Any, collector: WidgetCollector, error: type[Exception]) -> None:
        self._tk = tk
        self._collector = collector
        self._error = error

    def read(self) -> None:
        self._focus = self._text("focus")
        self._walk(".", None, 0)

    def _text(self, *command: Any, default: str = "") -> str:
        """Return the result of a command as text, or the default if it fails."""
        try:
            return str(self._tk.call(*command))
        except self._error:
            return default

    def _is(self, *command: Any) -> bool:
        return self._text(*command, default="0") in ("1", "True", "true")

    def _walk(self, path: str, parent: int | None, depth: int) -> None:
        is_top = self._text("winfo", "toplevel", path) == path
        widget = None
        if self._is("winfo", "viewable", path):
            widget = self._add(path, None if is_top else parent, is_top=is_top)
        if depth < MAX_DEPTH:
            for child in self._children(path):
                self._walk(child, widget, depth + 1)

    def _children(self, path: str) -> tuple[str, ...]:
        try:
            return tuple(map(str, self._tk.splitlist(self._tk.call("winfo", "children", path))))
        except self._error:
            # It has been destroyed meanwhile.
            return ()

    def _add(self, path: str, parent: int | None, *, is_top: bool) -> int:
        name = self._text("winfo", "class", path)
        bare = name[1:] if name[:1] == "T" and name[1:] in _ROLES else name
        role = _ROLES.get(bare, "generic")
        if is_top and role not in ("menu",):
            role = "dialog" if name == "Dialog" or self._text("wm", "transient", path) else "window"
        elif role == "menu" and self._text(path, "cget", "-type") == "menubar":
            role = "menubar"
        is_enabled = not self._has_state(path, "disabled")
        widget = self._collector.add(
            role,
            self._box(path),
            parent,
            name=self._text("wm", "title", path) if is_top and role != "menu" else self._label(path),
            value=self._value(path, role),
            enabled=is_enabled,
            focused=path == self._focus,
            editable=role in _EDITABLE and is_enabled and not self._has_state(path, "readonly"),
            checked=self._checked(path) if role in ("checkbox", "radio") else None,
            toolkit="tk",
        )
        match role:
            case "menu" | "menubar":
                self._add_entries(path, widget, is_bar=role == "menubar")
            case "canvas":
                self._add_texts(path, widget)
            case "listbox":
                self._add_options(path, widget)
            case "tree":
                self._add_rows(path, widget)
            case "tablist":
                self._add_tabs(path, widget)
        return widget

    def _box(self, path: str) -> Box:
        x, y, width, height = (int(self._text("winfo", what, path, default="0")) for what in _GEOMETRY)
        return x, y, width, height

    def _label(self, path: str) -> str:
        # A themed widget does not copy the text of its variable.
        variable = self._text(path, "cget", "-textvariable")
        text = self._text("set", variable) if variable else ""
        return text or self._text(path, "cget", "-text")

    def _value(self, path: str, role: str) -> str | None:
        if role == "progressbar":
            return self._text(path, "cget", "-value")
        if role not in _VALUED:
            return None
        if self._text("winfo", "class", path) == "Text":
            return self._text(path, "get", "1.0", "end-1c")
        value = self._text(path, _VALUED[role])
        shown = self._text(path, "cget", "-show") if role == "textbox" else ""
        return shown * len(value) if shown else value

    def _has_state(self, path: str, state: str) -> bool:
        # Only themed widgets know the command ``instate``.
        answer = self._text(path, "instate", state)
        return answer in ("1", "True", "true") if answer else self._text(path, "cget", "-state") == state

    def _checked(self, path: str) -> bool:
        variable = self._text(path, "cget", "-variable")
        on = self._text(path, "cget", "-onvalue") or self._text(path, "cget", "-value")
        return bool(variable) and self._text("set", variable) == on

    def _add_entries(self, path: str, menu: int, *, is_bar: bool) -> None:
        """Add the entries of a menu; Tk reports where they begin, and they end where the next one begins."""
        last = self._text(path, "index", "end")
        count = min(int(last) + 1, _MAX_ITEMS) if last.isdecimal() else 0
        x, y, width, height = self._box(path)
        starts = [int(self._text(path, "xposition" if is_bar else "yposition", i, default="0")) for i in range(count)]
        ends = [*starts[1:], width if is_bar else height]
        for i, (start, end) in enumerate(zip(starts, ends, strict=True)):
            kind = self._text(path, "type", i)
            if kind == "tearoff":
                continue
            box = (x + start, y, end - start, height) if is_bar else (x, y + start, width, end - start)
            self._collector.add(
                "separator" if kind == "separator" else "menuitem",
                box,
                menu,
                name=self._text(path, "entrycget", i, "-label"),
                enabled=self._text(path, "entrycget", i, "-state") != "disabled",
                checked=self._entry_checked(path, i, kind),
                toolkit="tk",
            )

    def _entry_checked(self, path: str, entry: int, kind: str) -> bool | None:
        if kind not in ("checkbutton", "radiobutton"):
            return None
        on = self._text(path, "entrycget", entry, "-onvalue" if kind == "checkbutton" else "-value")
        return self._text("set", self._text(path, "entrycget", entry, "-variable")) == on

    def _add_texts(self, path: str, canvas: int) -> None:
        """Add the texts on a canvas, whose coordinates are those of its scrolled content."""
        left, top, width, height = self._box(path)
        x0, y0 = (float(self._text(path, which, 0, default="0")) for which in ("canvasx", "canvasy"))
        for item in self._words(path, "find", "overlapping", x0, y0, x0 + width, y0 + height)[:_MAX_ITEMS]:
            corners = self._words(path, "bbox", item)
            if self._text(path, "type", item) == "text" and len(corners) == 4:
                x, y, right, bottom = map(int, corners)
                box = (int(left + x - x0), int(top + y - y0), right - x, bottom - y)
                self._collector.add("label", box, canvas, name=self._text(path, "itemcget", item, "-text"), toolkit="tk")

    def _add_options(self, path: str, listbox: int) -> None:
        first, last = self._visible_range(path)
        for i in range(first, min(last, first + _MAX_ITEMS) + 1):
            self._add_item("option", path, i, listbox, name=self._text(path, "get", i), is_selected=self._selects(path, i))

    def _visible_range(self, path: str) -> tuple[int, int]:
        height = self._text("winfo", "height", path)
        first, last = self._text(path, "index", "@0,0"), self._text(path, "index", f"@0,{height}")
        return (int(first), int(last)) if first.isdecimal() and last.isdecimal() else (0, -1)

    def _selects(self, path: str, item: int) -> bool:
        return self._is(path, "selection", "includes", item)

    def _add_rows(self, path: str, tree: int) -> None:
        selected = self._words(path, "selection")
        for item in self._items(path, "", _MAX_ITEMS):
            texts = [self._text(path, "item", item, "-text"), *self._words(path, "item", item, "-values")]
            name = " ".join(filter(None, texts))
            self._add_item("row", path, item, tree, name=name, is_selected=item in selected)

    def _items(self, path: str, item: str, most: int) -> Iterator[str]:
        """Yield the items of a tree below an item, in order; of closed ones, none are visible."""
        for child in self._words(path, "children", item)[:most]:
            yield child
            if self._is(path, "item", child, "-open"):
                yield from self._items(path, child, most)

    def _words(self, *command: Any) -> tuple[str, ...]:
        try:
            return tuple(map(str, self._tk.splitlist(self._tk.call(*command))))
        except self._error:
            return ()

    def _add_item(self, role: str, path: str, item: Any, parent: int, *, name: str, is_selected: bool) -> None:
        box = self._words(path, "bbox", item)
        if len(box) == 4:
            # Otherwise, it is scrolled out of view.
            x, y, width, height = map(int, box)
            left, top, whole, _ = self._box(path)
            if role == "option":
                # Tk tells where its text is, but all of the line can be clicked.
                x, width = 0, whole
            self._collector.add(role, (left + x, top + y, width, height), parent, name=name, selected=is_selected, toolkit="tk")

    def _add_tabs(self, path: str, notebook: int) -> None:
        """Add the tabs of a notebook, whose positions Tk only tells by what is at a point."""
        left, top, width, height = self._box(path)
        found: dict[str, list[tuple[int, int]]] = {}
        for y in range(0, min(height, _TAB_HEIGHT), _TAB_STEP):
            for x in range(0, width, _TAB_STEP):
                if index := self._text(path, "identify", "tab", x, y):
                    found.setdefault(index, []).append((x, y))
        current = self._text(path, "index", "current")
        for index, points in found.items():
            (x, y), (right, bottom) = map(min, zip(*points, strict=True)), map(max, zip(*points, strict=True))
            self._collector.add(
                "tab",
                (left + x, top + y, right - x + _TAB_STEP, bottom - y + _TAB_STEP),
                notebook,
                name=self._text(path, "tab", index, "-text"),
                enabled=self._text(path, "tab", index, "-state") != "disabled",
                selected=index == current,
                toolkit="tk",
            )


_GEOMETRY = ("rootx", "rooty", "width", "height")
