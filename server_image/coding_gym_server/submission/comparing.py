"""Values that assertions compare: whether they can be sent, which look alike, and how different they are."""

from __future__ import annotations

import contextlib
import io
import itertools
import math
import os
import pickle
import sys
import types
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

__all__ = ["Pickling", "alike", "between", "canonical", "distances", "is_in_sight", "unpickled"]

_MAX_BYTES = 1 << 16
_MAX_BYTES_IN_ALL = 4 << 20
_MAX_ALIKE = 20
_MAX_TEXT = 300
_MAX_DECIMALS = 12
_MAX_SEEN, _MAX_DEPTH = 20_000, 6


class _UnfitError(Exception):
    """A value is none of those that are looked for."""


class Pickling:
    """Pickles values, up to a size in all."""

    def __init__(self) -> None:
        self._left = _MAX_BYTES_IN_ALL

    def dumps(self, value: Any) -> bytes | None:
        """Return a pickled value; None if it means nothing in another process, or is too large."""
        buffer = io.BytesIO()
        try:
            pickler = _DataPickler(buffer, protocol=5)
            # Without a memory: equal texts of a literal are one object, and those of a computed value are not.
            pickler.fast = True
            pickler.dump(value)
            # Some objects can be pickled only.
            unpickled(buffer.getvalue())
        except Exception:  # noqa: BLE001 - objects raise anything
            return None
        data = buffer.getvalue()
        if len(data) > min(_MAX_BYTES, self._left):
            return None
        self._left -= len(data)
        return data


class _DataPickler(pickle.Pickler):
    """Pickles values that mean the same in another process: none of a class of the submission or of the tests."""

    def reducer_override(self, value: Any) -> Any:
        kind = value if isinstance(value, type | types.FunctionType) else type(value)
        file = getattr(sys.modules.get(kind.__module__), "__file__", None)
        if kind.__module__ == "__main__" or _is_here(file):
            raise _UnfitError
        return NotImplemented


def unpickled(data: bytes) -> Any:
    """Return a value that the server has sent."""
    return pickle.loads(data)  # noqa: S301 - of a reference, and confined like it


def canonical(value: Any) -> Any:
    """Return a value whose sets and dicts have an order that does not tell how they were made."""
    kind = type(value)
    if kind in (list, tuple):
        return kind(map(canonical, value))
    if kind in (set, frozenset):
        return kind(sorted(map(canonical, value), key=repr))
    if kind is dict:
        return {key: canonical(value[key]) for key in sorted(value, key=repr)}
    return value


def is_in_sight(wanted: Any, frame: types.FrameType | None) -> bool:
    """Return whether a value is among those that the variables of calling functions of the tests hold, however deeply."""
    left = _MAX_SEEN
    while frame is not None:
        scopes = (frame.f_locals, frame.f_globals) if _is_here(frame.f_globals.get("__file__")) else ()
        waiting = [(value, _MAX_DEPTH) for scope in scopes for value in _public(scope)]
        while waiting and left > 0:
            value, depth = waiting.pop()
            left -= 1
            with contextlib.suppress(Exception):
                if type(value) is type(wanted) and bool(value == wanted):
                    return True
                if depth:
                    waiting += [(item, depth - 1) for item in _items(value)]
        frame = frame.f_back
    return left <= 0


def _is_here(file: str | None) -> bool:
    """Return whether a file is one of the submission or of the tests."""
    return file is not None and os.path.dirname(os.path.abspath(file)) == os.getcwd()


def _public(variables: Mapping[str, Any]) -> list[Any]:
    kinds = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType)
    return [value for name, value in variables.items() if not name.startswith("_") and not isinstance(value, kinds)]


def _items(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return [*value, *value.values()]
    if isinstance(value, list | tuple | set | frozenset):
        return value
    return _public(getattr(value, "__dict__", {}))


def alike(values: Iterable[Any], truth: Any) -> list[Any]:
    """Return values written like the expected one, of its type and shape, without duplicates."""
    found: dict[str, Any] = {}
    texts = {repr(truth)}
    for value in values:
        with contextlib.suppress(Exception):
            fitted = _fitted(value, truth)
            text = repr(fitted)
            if text not in texts and len(found) < _MAX_ALIKE:
                texts.add(text)
                found[text] = fitted
    return list(found.values())


def between(one: Any, other: Any) -> Any:
    """Return a value in the middle of two, None if there is none."""
    if isinstance(one, bool) or isinstance(other, bool):
        return None
    if isinstance(one, list | tuple) and type(one) is type(other) and len(one) == len(other):
        items = [between(left, right) for left, right in zip(one, other, strict=True)]
        return None if any(item is None for item in items) else type(one)(items)
    if isinstance(one, int | float) or hasattr(one, "dtype"):
        try:
            return (one + other) / 2
        except Exception:  # noqa: BLE001 - of libraries
            return None
    return one if isinstance(one, str) and one == other else None


def distances(values: Sequence[Any]) -> list[list[float]]:
    """Return how different values are: a row for each."""
    texts = [_pairs(repr(value)[:_MAX_TEXT]) for value in values]
    return [
        [_distance(one, other, texts[i], texts[j]) if i != j else 0.0 for j, other in enumerate(values)]
        for i, one in enumerate(values)
    ]


def _pairs(text: str) -> Counter[str]:
    return Counter(map("".join, itertools.pairwise(text)))


def _distance(one: Any, other: Any, pairs: Counter[str], other_pairs: Counter[str]) -> float:
    if isinstance(one, int | float) and isinstance(other, int | float):
        difference = abs(one - other)
        return float(difference) if math.isfinite(difference) and difference < 1e300 else 1e300
    total = pairs.total() + other_pairs.total()
    return 1 - 2 * (pairs & other_pairs).total() / total if total else 1.0


def _fitted(value: Any, model: Any) -> Any:
    """Return a value as the expected one would be written, if it has its type and shape."""
    kind = type(model)
    if kind.__module__ == "builtins" and type(value).__module__ == "numpy":
        value = value.tolist()
        value = tuple(value) if kind is tuple else value
    if kind in (int, float):
        return _fitted_number(value, model)
    if kind in (list, tuple, set, frozenset):
        _require(isinstance(value, kind))
        return kind(_fitted_items(list(value), list(model)))
    if kind is dict:
        _require(isinstance(value, dict))
        keys = _fitted_items(list(value), list(model))
        return dict(zip(keys, _fitted_items(list(value.values()), list(model.values())), strict=True))
    _require(type(value) is kind)
    _require(getattr(value, "ndim", 0) == getattr(model, "ndim", 0))
    _require(str(getattr(value, "dtype", "")) == str(getattr(model, "dtype", "")))
    return value


def _fitted_items(values: list[Any], models: list[Any]) -> Iterator[Any]:
    for number, value in enumerate(values):
        yield _fitted(value, models[min(number, len(models) - 1)]) if models else value


def _fitted_number(value: Any, model: Any) -> Any:
    _require(not isinstance(value, bool | complex) and hasattr(value, "__float__"))
    if isinstance(model, int):
        _require(int(value) == value)
        return int(value)
    number = float(value)
    _require(math.isfinite(number) == math.isfinite(model))
    decimals = len(repr(model).partition(".")[2])
    return round(number, decimals) if "e" not in repr(model) and decimals <= _MAX_DECIMALS else number


def _require(is_fit: bool) -> None:
    if not is_fit:
        raise _UnfitError
