"""The formats that the code-interpreter API knows beyond IPython's: tables and charts as data.

They are those of e2b's server: ``e2b/data`` is a pandas ``DataFrame`` as column to list, ``e2b/chart`` what the package
``e2b_charts``, where it is installed, makes of a matplotlib figure, and lists and dicts are ``application/json``.
"""

from __future__ import annotations

import math
import sys
from typing import Any

from IPython.core.formatters import BaseFormatter, DisplayFormatter
from traitlets import ObjectName, Unicode

__all__ = ["CHART", "DATA", "add_formatters"]

DATA = "e2b/data"
CHART = "e2b/chart"
_JSON = "application/json"


class _DataFormatter(BaseFormatter):
    format_type = Unicode(DATA)
    print_method = ObjectName("_repr_e2b_data_")
    _return_type = dict


class _ChartFormatter(BaseFormatter):
    format_type = Unicode(CHART)
    print_method = ObjectName("_repr_e2b_chart_")
    _return_type = dict

    def __call__(self, obj: Any) -> dict[str, Any] | None:
        # Not a registered type: choosing the formats of figures unregisters them everywhere.
        figure_class = getattr(sys.modules.get("matplotlib.figure"), "Figure", ())
        return _chart(obj) if isinstance(obj, figure_class) else None


def add_formatters(formatter: DisplayFormatter) -> None:
    """Teach a display formatter these formats; none of the packages is imported before an object of theirs is shown."""
    data = _DataFormatter(parent=formatter)
    for module in ("pandas", "pandas.core.frame"):
        data.for_type_by_name(module, "DataFrame", _columns)
    formatter.formatters[DATA] = data
    formatter.formatters[CHART] = _ChartFormatter(parent=formatter)
    formatter.active_types = [*formatter.active_types, DATA, CHART]
    json = formatter.formatters[_JSON]
    for kind in (dict, list):
        json.for_type(kind, _finite)


def _finite(value: Any) -> Any:
    """Return a document with what JSON has in the place of infinities and NaNs."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _columns(frame: Any) -> dict[str, list[Any]]:
    return {str(name): [_plain(value) for value in column.tolist()] for name, column in frame.items()}


def _plain(value: Any) -> Any:
    """Return what JSON has for a cell of a table."""
    if hasattr(value, "isoformat"):
        # Of pandas' "not a time", it is a NaN that calls itself NaT.
        return value.isoformat() if value == value else None
    return _finite(value) if isinstance(value, str | int | float | bool | list | dict | None) else str(value)


def _chart(figure: Any) -> dict[str, Any] | None:
    try:
        from e2b_charts import chart_figure_to_dict
    except ImportError:
        return None
    try:
        return _finite(chart_figure_to_dict(figure))
    except Exception:  # noqa: BLE001 - it knows the usual kinds of charts; the picture is there in any case
        return {}
