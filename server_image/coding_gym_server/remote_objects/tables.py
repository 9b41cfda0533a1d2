"""Encoding of pandas objects and of arrays of objects, by their NumPy arrays and plain values.

pandas is imported only where such an object exists or arrives.
"""

from __future__ import annotations

import re
from typing import Any

from coding_gym_server.remote_objects import exact_numbers
from coding_gym_server.remote_objects.decoder import Decoder
from coding_gym_server.remote_objects.values import ARRAY_KINDS, Encoder, MalformedError, Tag, Tree

__all__ = ["decode", "encode", "is_data"]

_ZONE = re.compile(r"(?!dateutil)[A-Za-z0-9_+:-]+(/[A-Za-z0-9_+-]+)*")


class _NotDataError(Exception):
    """A part is not data."""


def is_data(value: Any) -> bool:
    """Return whether a value crosses by value with all its parts."""
    try:
        Encoder(_part).encode(value)
    except (_NotDataError, RecursionError):
        return False
    return True


def encode(encoder: Encoder, value: Any) -> Tree | None:
    """Return the tree of a pandas object or an array of objects; None if it is something else, or not all of it is data."""
    kind = type(value)
    library = kind.__module__.partition(".")[0]
    is_mutable = library == "numpy" or kind.__name__ in ("DataFrame", "Series")
    if library not in ("numpy", "pandas") or isinstance(value, type):
        return None
    try:
        tree = [Tag.TABLE, Encoder(_part).encode(_parts(value))]
    except (_NotDataError, RecursionError):
        return None
    return (encoder.number(value) if is_mutable else None) or tree


def _part(encoder: Encoder, value: Any) -> Tree:
    tree = encode(encoder, value)
    if tree is None:
        raise _NotDataError
    return tree


def _parts(value: Any) -> Any:
    import numpy as np

    kind = type(value)
    if kind is np.ndarray and value.dtype == object:
        return "objects", value.shape, value.ravel().tolist()
    if kind.__module__.partition(".")[0] != "pandas":
        raise _NotDataError
    import pandas as pd  # type: ignore[import-untyped]

    if value is pd.NaT or value is pd.NA:
        return (str(value),)
    if kind in (pd.Timestamp, pd.Timedelta):
        return "element", _column(pd.array([value]))
    if kind is pd.DataFrame:
        columns = [_column(value.iloc[:, number].array) for number in range(value.shape[1])]
        return "DataFrame", _parts(value.columns), _parts(value.index), columns
    if kind is pd.Series:
        return "Series", _column(value.array), _parts(value.index), value.name
    if kind is pd.RangeIndex:
        return "RangeIndex", value.start, value.stop, value.step, value.name
    if kind is pd.MultiIndex:
        return "MultiIndex", [*map(_parts, value.levels)], [np.asarray(codes) for codes in value.codes], list(value.names)
    if kind in (pd.Index, pd.DatetimeIndex, pd.TimedeltaIndex, pd.CategoricalIndex, pd.PeriodIndex):
        return (
            "Index",
            _column(value.array),
            value.name,
            getattr(value, "freqstr", None) if kind is not pd.PeriodIndex else None,
        )
    raise _NotDataError


def _column(values: Any) -> Any:
    """Return the parts of a pandas array: an array by itself, others as a tuple."""
    import numpy as np
    import pandas as pd

    if type(values) is pd.arrays.NumpyExtensionArray:
        values = values.to_numpy()
    dtype = values.dtype
    if isinstance(dtype, np.dtype):
        if dtype.kind == "O":
            return "objects", list(np.asarray(values))
        if dtype.kind in ARRAY_KINDS:
            return np.asarray(values)
    if isinstance(dtype, pd.DatetimeTZDtype):
        return "zoned", np.asarray(values.tz_convert("UTC").tz_localize(None)), str(dtype.tz)
    if isinstance(dtype, pd.CategoricalDtype):
        return "category", np.asarray(values.codes), _parts(values.categories), values.ordered
    if isinstance(dtype, pd.StringDtype):
        texts = [None if text is dtype.na_value or text != text else text for text in values.to_numpy(object)]
        return "string", dtype.storage, dtype.na_value is pd.NA, texts
    if isinstance(values, pd.arrays.IntegerArray | pd.arrays.FloatingArray | pd.arrays.BooleanArray):
        return "masked", values.to_numpy(dtype.numpy_dtype, na_value=0), np.asarray(values.isna())
    if isinstance(dtype, pd.PeriodDtype):
        return "period", values.asi8, str(dtype).removeprefix("period[").removesuffix("]")
    raise _NotDataError


def decode(decoder: Decoder, tree: list[Tree], *, is_exact: bool) -> Any:
    """Return the object of a tree.

    Args:
        decoder: Registers mutable objects.
        tree: The parts.
        is_exact: Whether numbers of at most 16 bits are widened to 64 bits.

    Raises:
        MalformedError: If the tree is malformed.
    """
    scalar = decoder.adapt

    def adapt(value: Any) -> Any:
        import numpy as np

        return value if isinstance(value, np.ndarray) else scalar(value)

    def part(inner: Decoder, nested: Tree) -> Any:
        if type(nested) is not list or nested[:1] != [Tag.TABLE]:
            message = "a part of a table that is not data"
            raise MalformedError(message)
        return decode(inner, nested, is_exact=is_exact)

    (_, encoded) = tree
    parts = Decoder(part, adapt=adapt).decode(encoded)
    try:
        value = _object(parts, is_exact)
    except MalformedError:
        raise
    except Exception as error:  # noqa: BLE001 - pandas raises many
        message = f"a table: {type(error).__name__}: {error}"
        raise MalformedError(message) from None
    return decoder.new(value) if parts[0] in ("DataFrame", "Series") or (parts[0] == "objects" and len(parts) == 3) else value


def _object(parts: Any, is_exact: bool) -> Any:
    import numpy as np

    match parts:
        case ["objects", tuple(shape), list(items)]:
            array = np.empty(len(items), object)
            for number, item in enumerate(items):
                array[number] = item
            return array.reshape(shape)
    import pandas as pd

    match parts:
        case ["NaT"]:
            return pd.NaT
        case ["<NA>"]:
            return pd.NA
        case ["element", column]:
            return pd.array(_array(column, is_exact))[0]
        case ["Series", column, index, name]:
            return pd.Series(_array(column, is_exact), _object(index, is_exact), name=name, copy=False)
        case ["DataFrame", columns, index, list(values)]:
            arrays = {number: _array(column, is_exact) for number, column in enumerate(values)}
            frame = pd.DataFrame(arrays, index=_object(index, is_exact))
            frame.columns = _object(columns, is_exact)
            return frame
        case ["RangeIndex", int(start), int(stop), int(step), name]:
            return pd.RangeIndex(start, stop, step, name=name)
        case ["MultiIndex", list(levels), list(codes), list(names)]:
            return pd.MultiIndex([_object(level, is_exact) for level in levels], codes, names=names)
        case ["Index", column, name, freq]:
            index = pd.Index(_array(column, is_exact), name=name)
            if isinstance(index, pd.DatetimeIndex | pd.TimedeltaIndex):
                index.freq = freq
            return index
    message = "an unknown table"
    raise MalformedError(message)


def _array(column: Any, is_exact: bool) -> Any:
    import numpy as np
    import pandas as pd

    match column:
        case np.ndarray(ndim=1):
            return exact_numbers.widened(column) if is_exact else column
        case ["objects", list(items)]:
            return _object(("objects", (len(items),), items), is_exact)
        case ["zoned", np.ndarray() as times, str(zone)] if _ZONE.fullmatch(zone):
            return pd.DatetimeIndex(times).tz_localize("UTC").tz_convert(zone).array
        case ["category", np.ndarray() as codes, categories, bool(ordered)]:
            return pd.Categorical.from_codes(codes, _object(categories, is_exact), ordered=ordered)
        case ["string", "python" | "pyarrow" as storage, bool(has_na), list(texts)]:
            dtype = pd.StringDtype(storage, na_value=pd.NA if has_na else np.nan)
            return pd.array([dtype.na_value if text is None else text for text in texts], dtype=dtype)
        case ["masked", np.ndarray() as data, np.ndarray() as mask]:
            kinds = {"b": pd.arrays.BooleanArray, "f": pd.arrays.FloatingArray}
            return kinds.get(data.dtype.kind, pd.arrays.IntegerArray)(exact_numbers.widened(data) if is_exact else data, mask)
        case ["period", np.ndarray() as ordinals, str(freq)]:
            return pd.PeriodIndex.from_ordinals(ordinals, freq=freq).array
    message = "an unknown column"
    raise MalformedError(message)
