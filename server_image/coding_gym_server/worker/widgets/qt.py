"""Widgets of Qt, read through ``QWidget`` and the models of its item views, which all bindings have."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from coding_gym_server.worker.widgets.collector import MAX_DEPTH, Box, WidgetCollector

__all__ = ["QT_BINDINGS", "read_qt"]

QT_BINDINGS = ("PySide6", "PyQt6", "PySide2", "PyQt5")

_ROLES = (
    ("QDialog", "dialog"),
    ("QMenuBar", "menubar"),
    ("QMenu", "menu"),
    ("QToolBar", "toolbar"),
    ("QStatusBar", "status"),
    ("QCheckBox", "checkbox"),
    ("QRadioButton", "radio"),
    ("QAbstractButton", "button"),
    ("QComboBox", "combobox"),
    ("QLineEdit", "textbox"),
    ("QPlainTextEdit", "textbox"),
    ("QTextEdit", "textbox"),
    ("QAbstractSpinBox", "spinbutton"),
    ("QScrollBar", "scrollbar"),
    ("QAbstractSlider", "slider"),
    ("QProgressBar", "progressbar"),
    ("QLCDNumber", "label"),
    ("QLabel", "label"),
    ("QTabBar", "tablist"),
    ("QHeaderView", "generic"),
    ("QListView", "listbox"),
    ("QTreeView", "tree"),
    ("QAbstractItemView", "table"),
    ("QGraphicsView", "canvas"),
    ("QGroupBox", "group"),
)
"""Role of each class; the first class that a widget inherits counts."""

_NAMES = {"button": "text", "checkbox": "text", "radio": "text", "label": "text", "group": "title"}
_VALUES = {
    "combobox": ("currentText",),
    "textbox": ("displayText", "plainText"),
    "spinbutton": ("text",),
    "slider": ("value",),
    "progressbar": ("value",),
}
_EDITABLE = ("textbox", "spinbutton", "combobox")
_INNER_PARTS = (
    "qt_scrollarea_hcontainer",
    "qt_scrollarea_vcontainer",
    "qt_scrollarea_viewport",
    "qt_spinbox_lineedit",
    "qt_tabwidget_stackedwidget",
)
"""Names of the parts that Qt's own widgets are made of."""

_MAX_ITEMS = 500


def read_qt(binding: str, collector: WidgetCollector) -> None:
    """Add the visible widgets of the application of a binding such as ``PySide6``."""
    widgets: Any = sys.modules.get(f"{binding}.QtWidgets")
    application: Any = widgets.QApplication.instance() if widgets is not None else None
    if application is not None and application.inherits("QApplication"):
        reader = _Reader(sys.modules[f"{binding}.QtCore"], collector)
        for window in application.topLevelWidgets():
            if window.isVisible():
                reader.read(window, None, 0)


class _Reader:
    """Reads trees of widgets.

    Args:
        core: The binding's module ``QtCore``.
        collector: Receives the widgets.
    """

    def __init__(self, core: Any, collector: WidgetCollector) -> None:
        self._core = core
        self._collector = collector

    def read(self, widget: Any, parent: int | None, depth: int) -> None:
        """Add a widget and its visible children."""
        if parent is not None and (not widget.isVisible() or widget.visibleRegion().isEmpty()):
            return
        number = parent
        if widget.objectName() not in _INNER_PARTS or parent is None:
            number = self._add(widget, parent)
        if depth < MAX_DEPTH:
            for child in widget.children():
                if child.isWidgetType() and not child.isWindow():
                    self.read(child, number, depth + 1)

    def _add(self, widget: Any, parent: int | None) -> int:
        role = _role(widget)
        if parent is None and role in ("group", "generic"):
            role = "window"
        check = getattr(widget, "isCheckable", None)
        number = self._collector.add(
            role,
            self._box(widget, widget.rect()),
            parent,
            name=_name(widget, role, is_window=parent is None),
            value=_value(widget, role),
            enabled=widget.isEnabled(),
            focused=widget.hasFocus(),
            editable=role in _EDITABLE and widget.isEnabled() and _is_editable(widget),
            checked=bool(widget.isChecked()) if check is not None and check() else None,
            toolkit="qt",
        )
        match role:
            case "menu" | "menubar":
                self._add_actions(widget, number)
            case "tablist":
                self._add_tabs(widget, number)
            case "listbox" | "tree" | "table":
                self._add_items(widget, number, role)
        return number

    def _box(self, widget: Any, rectangle: Any) -> Box:
        corner = widget.mapToGlobal(self._core.QPoint(rectangle.x(), rectangle.y()))
        return corner.x(), corner.y(), rectangle.width(), rectangle.height()

    def _add_actions(self, menu: Any, parent: int) -> None:
        for action in menu.actions()[:_MAX_ITEMS]:
            rectangle = menu.actionGeometry(action)
            if action.isVisible() and not rectangle.isEmpty():
                self._collector.add(
                    "separator" if action.isSeparator() else "menuitem",
                    self._box(menu, rectangle),
                    parent,
                    name=_without_mnemonic(action.text()),
                    enabled=action.isEnabled(),
                    checked=action.isChecked() if action.isCheckable() else None,
                    toolkit="qt",
                )

    def _add_tabs(self, bar: Any, parent: int) -> None:
        for i in range(min(bar.count(), _MAX_ITEMS)):
            self._collector.add(
                "tab",
                self._box(bar, bar.tabRect(i)),
                parent,
                name=_without_mnemonic(bar.tabText(i)),
                enabled=bar.isTabEnabled(i),
                selected=i == bar.currentIndex(),
                toolkit="qt",
            )

    def _add_items(self, view: Any, parent: int, role: str) -> None:
        selection = view.selectionModel()
        if selection is None:
            return
        check_role = self._core.Qt.ItemDataRole.CheckStateRole
        for index in _tree_indexes(view, self._core) if role == "tree" else _grid_indexes(view):
            rectangle = view.visualRect(index)
            if rectangle.isEmpty() or not view.viewport().rect().intersects(rectangle):
                continue
            state = index.data(check_role)
            self._collector.add(
                "option" if role == "listbox" else "row" if role == "tree" else "cell",
                self._box(view.viewport(), rectangle),
                parent,
                name="" if index.data() is None else index.data(),
                selected=selection.isSelected(index),
                checked=None if state is None else getattr(state, "value", state) == _CHECKED,
                toolkit="qt",
            )


_CHECKED = 2


def _tree_indexes(view: Any, core: Any) -> Iterator[Any]:
    index = view.indexAt(core.QPoint(1, 1))
    for _ in range(_MAX_ITEMS):
        if not index.isValid():
            return
        yield index
        index = view.indexBelow(index)


def _grid_indexes(view: Any) -> Iterator[Any]:
    """Yield the items of a list or table from the first visible row on."""
    model, root = view.model(), view.rootIndex()
    rows, columns = model.rowCount(root), 1 if view.inherits("QListView") else model.columnCount(root)
    first = max(view.rowAt(0), 0) if hasattr(view, "rowAt") else 0
    last = min(rows, first + max(_MAX_ITEMS // max(columns, 1), 1))
    for row in range(first, last):
        for column in range(columns):
            yield model.index(row, column, root)


def _role(widget: Any) -> str:
    for name, role in _ROLES:
        if widget.inherits(name):
            return role
    return "group" if type(widget).__name__ in ("QWidget", "QFrame", "QTabWidget", "QStackedWidget", "QSplitter") else "generic"


def _name(widget: Any, role: str, *, is_window: bool) -> str:
    if is_window and role in ("window", "dialog"):
        return str(widget.windowTitle())
    text = widget.property(_NAMES[role]) if role in _NAMES else ""
    # What accessibility tools read, and else what a tooltip says, such as that of a button with an icon only.
    label = str(widget.accessibleName() or text or widget.toolTip())
    return _without_mnemonic(label) if role in _NAMES and role != "label" else label


def _value(widget: Any, role: str) -> str | None:
    for name in _VALUES.get(role, ()):
        value = widget.property(name)
        if value is not None:
            return str(value)
    return None


def _is_editable(widget: Any) -> bool:
    if widget.inherits("QComboBox"):
        return bool(widget.isEditable())
    return not widget.property("readOnly")


def _without_mnemonic(text: str) -> str:
    """Return a label without the mark of its mnemonic: ``&Open`` is shown as Open, ``&&`` as &."""
    return text.replace("&&", "\0").replace("&", "").replace("\0", "&")
