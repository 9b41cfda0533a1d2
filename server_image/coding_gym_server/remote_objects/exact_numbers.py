"""Exact forms of NumPy's numbers, in which tests receive them.

NumPy converts a Python number to the type of its operand: ``np.float16("inf") == 123456.75``, and ``np.int8(-28) - 100`` wraps
around. Tests receive scalars as Python numbers, and arrays that hold 64-bit numbers.
"""

from __future__ import annotations

from typing import Any

__all__ = ["exact", "widened"]

_WIDE = {"i": "i8", "u": "i8", "f": "f8", "c": "c16"}
_MOST = {"i4": 1 << 30, "i8": 1 << 62, "f4": 1 << 24}
"""Numbers up to which differences of these types neither overflow nor lose integers."""


def exact(value: Any) -> Any:
    """Return the exact form of a NumPy scalar or array."""
    import numpy as np

    is_narrow = _is_narrow(value.dtype)
    if isinstance(value, np.ndarray):
        return value.astype(_WIDE[value.dtype.kind]) if is_narrow else widened(value)
    return value.item() if is_narrow or isinstance(value, np.integer) else value


def widened(array: Any) -> Any:
    """Return an array whose numbers differ from Python numbers as these do: one that is wider, where that is necessary."""
    import numpy as np

    dtype = array.dtype
    if _is_narrow(dtype) and dtype.itemsize <= 2:
        return array.astype(_WIDE[dtype.kind])
    most = _MOST.get(f"{dtype.kind}{dtype.itemsize}")
    # These ignore NaN.
    if not most or not array.size or not (np.fmin.reduce(array, None) < -most or np.fmax.reduce(array, None) > most):
        return array
    return array.astype(object if dtype.itemsize == 8 else _WIDE[dtype.kind])


def _is_narrow(dtype: Any) -> bool:
    return dtype.kind in _WIDE and dtype.itemsize < (16 if dtype.kind == "c" else 8)
