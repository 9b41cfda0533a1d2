"""Display formats that the code-interpreter API supports in addition to IPython's: tables and charts as data.

They match e2b's server: ``e2b/data`` is a pandas ``DataFrame`` as a mapping from column to list, ``e2b/chart`` is the output of
the package ``e2b_charts``, if installed, for a matplotlib figure, and lists and dicts are ``application/json``.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable
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
        # Not a registered type: selecting the figure formats of matplotlib unregisters figures from every formatter.
        figure_class = getattr(sys.modules.get("matplotlib.figure"), "Figure", ())
        return _chart(obj) if isinstance(obj, figure_class) else None


def add_formatters(formatter: DisplayFormatter) -> None:
    """Add these formats to a display formatter, without importing a package before one of its objects is displayed."""
    data = _DataFormatter(parent=formatter)
    for module in ("pandas", "pandas.core.frame"):
        data.for_type_by_name(module, "DataFrame", _optional(_columns))
    formatter.formatters[DATA] = data
    formatter.formatters[CHART] = _ChartFormatter(parent=formatter)
    formatter.active_types = [*formatter.active_types, DATA, CHART]
    json = formatter.formatters[_JSON]
    for kind in (dict, list):
        json.for_type(kind, _optional(_finite))


def _optional(format_value: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function that omits its format, by returning None, for values that cannot have it.

    Containers may contain themselves, and methods of subclasses may do anything; the other formats are shown in any case.
    """

    def format_or_omit(value: Any) -> Any:
        try:
            return format_value(value)
        except Exception:  # noqa: BLE001 - see above
            return None

    return format_or_omit


def _finite(value: Any) -> Any:
    """Return a JSON document with infinities and NaNs replaced by null."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _columns(frame: Any) -> dict[str, list[Any]]:
    return {str(name): [_plain(value) for value in column.tolist()] for name, column in frame.items()}


def _plain(value: Any) -> Any:
    """Return the JSON representation of a table cell."""
    if hasattr(value, "isoformat"):
        # NaT of pandas, which is not equal to itself, becomes null: its isoformat() would return 'NaT'.
        return value.isoformat() if value == value else None
    return _finite(value) if isinstance(value, str | int | float | bool | list | dict | None) else str(value)


def _chart(figure: Any) -> dict[str, Any] | None:
    try:
        from e2b_charts import chart_figure_to_dict
    except ImportError:
        return None
    try:
        with warnings.catch_warnings():
            # Labels and colors of some charts are not of the declared types.
            warnings.simplefilter("ignore")
            return _finite(chart_figure_to_dict(figure))
    except Exception:  # noqa: BLE001 - not every kind of chart is supported; the image is shown in any case
        return {}
