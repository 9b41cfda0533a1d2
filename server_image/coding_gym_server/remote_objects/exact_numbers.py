"""Exact forms of NumPy's numbers, in which tests receive them.

NumPy converts a Python number to the type of its operand: ``np.float16("inf") == 123456.75``, and ``np.int8(-28) - 100`` wraps
around. Tests receive scalars that compute as Python numbers, and arrays that hold 64-bit numbers.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from typing import Any

__all__ = ["ExactNumber", "exact", "plain", "widened"]

_BINARY = ("add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "pow", "lshift", "rshift", "and_", "xor", "or_")
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
_UNARY: dict[str, Callable[..., Any]] = {
    **{name: getattr(operator, name) for name in ("abs", "neg", "pos", "invert", "index")},
    **{name: getattr(math, name) for name in ("trunc", "floor", "ceil")},
    "bool": bool,
    "int": int,
    "float": float,
    "complex": complex,
    "round": round,
    "hash": hash,
}
_WIDE = {"i": "i8", "u": "i8", "f": "f8", "c": "c16"}
_MOST = {"i4": 1 << 30, "i8": 1 << 62, "f4": 1 << 24}
"""Numbers up to which differences of these types neither overflow nor lose integers."""


class ExactNumber:
    """A NumPy scalar that compares and computes as the Python number of its value.

    Args:
        scalar: The scalar.
    """

    __slots__ = ("_scalar",)

    def __init__(self, scalar: Any) -> None:
        self._scalar = scalar

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return type(self._scalar)

    @property
    def dtype(self) -> Any:
        return self._scalar.dtype

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__array__()[()], name)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        import numpy as np

        return np.asarray(self._scalar.item(), dtype)

    def __str__(self) -> str:
        return str(self._scalar)

    def __repr__(self) -> str:
        return repr(self._scalar)

    def __format__(self, spec: str) -> str:
        return format(self._scalar, spec)

    def __divmod__(self, other: Any) -> Any:
        return divmod(self._scalar.item(), _number(other))

    def __rdivmod__(self, other: Any) -> Any:
        return divmod(_number(other), self._scalar.item())

    def __reduce__(self) -> Any:
        return ExactNumber, (self._scalar,)


def _number(value: Any) -> Any:
    return value._scalar.item() if type(value) is ExactNumber else value


def _binary(operation: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda self, other: operation(self._scalar.item(), _number(other))


def _reflected(operation: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda self, other: operation(other, self._scalar.item())


def _unary(operation: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, *arguments: operation(self._scalar.item(), *arguments)


for _name in _BINARY:
    setattr(ExactNumber, f"__{_name.rstrip('_')}__", _binary(getattr(operator, _name)))
    setattr(ExactNumber, f"__r{_name.rstrip('_')}__", _reflected(getattr(operator, _name)))
for _name in _COMPARISONS:
    setattr(ExactNumber, f"__{_name}__", _binary(getattr(operator, _name)))
for _name, _operation in _UNARY.items():
    setattr(ExactNumber, f"__{_name}__", _unary(_operation))


def exact(value: Any) -> Any:
    """Return the exact form of a NumPy scalar or array."""
    import numpy as np

    dtype = value.dtype
    if not isinstance(value, np.ndarray):
        return ExactNumber(value) if isinstance(value, np.integer) or _is_narrow(dtype) else value
    if dtype == np.float16 or not _is_narrow(dtype):
        # An array must not have the type float16: methods such as mean() would round to it.
        return widened(value)
    labelled: Any = value.astype(_WIDE[dtype.kind]).view(_labelled_array())
    labelled._label = dtype.newbyteorder("=")
    return labelled


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


def plain(value: Any) -> Any:
    """Return the NumPy scalar or array that an exact one stands for; other values as they are."""
    if type(value) is ExactNumber:
        return value._scalar
    label = getattr(value, "_label", None) if type(value).__module__ == __name__ else None
    return value if label is None else value.astype(label)


@functools.cache
def _labelled_array() -> Any:
    import numpy as np

    class LabelledArray(np.ndarray[Any, Any]):
        """Array that holds 64-bit numbers, and reports the type that was sent."""

        _label: Any = None

        def __array_finalize__(self, source: Any) -> None:
            self._label = getattr(source, "_label", None)

        @property
        def dtype(self) -> Any:
            own = self.view(np.ndarray).dtype
            return self._label if self._label is not None and own == _WIDE.get(self._label.kind) else own

        def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
            if "out" in options:
                options["out"] = tuple(map(_base, options["out"]))
            return getattr(ufunc, method)(*map(_base, inputs), **options)

        def __getitem__(self, key: Any) -> Any:
            item = super().__getitem__(key)
            is_number = isinstance(item, np.number) and self._label is not None
            return ExactNumber(self._label.type(item)) if is_number else item

        def astype(self, *arguments: Any, **keywords: Any) -> Any:
            return self.view(np.ndarray).astype(*arguments, **keywords)

    def _base(value: Any) -> Any:
        return value.view(np.ndarray) if isinstance(value, LabelledArray) else value

    return LabelledArray
