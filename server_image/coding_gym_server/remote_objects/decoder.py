"""Decoding of trees into values; malformed trees raise ``MalformedError``."""

from __future__ import annotations

import datetime
import decimal
import fractions
import pathlib
import re
import sys
import uuid
import zoneinfo
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from typing import Any

from coding_gym_server.remote_objects.values import ARRAY_KINDS, PRIMITIVES, TYPES, VALUE_ERRORS, MalformedError, Tag, Tree

__all__ = ["Decoder", "replace_contents"]

_VIEWS_BY_NAME: dict[str, Callable[[dict[Any, Any]], Any]] = {"keys": dict.keys, "values": dict.values, "items": dict.items}


_TYPES_BY_NAME = {name: kind for kind, name in TYPES.items()}


class Decoder:
    """Decodes trees into values.

    Args:
        on_object: Resolves trees whose tags are not known here.
        known: Containers that the sender already knows, in the order of their numbers.
        adapt: Converts NumPy scalars and arrays to the form that the receiver uses.

    Attributes:
        adapt: Converts NumPy scalars and arrays.
        mutables: The numbered containers, in the order of their numbers.
    """

    def __init__(
        self,
        on_object: Callable[[Decoder, Tree], Any],
        known: Iterable[Any] = (),
        *,
        adapt: Callable[[Any], Any] = lambda value: value,
    ) -> None:
        self._on_object = on_object
        self.adapt = adapt
        self.mutables: list[Any] = list(known)

    def decode(self, tree: Tree) -> Any:
        """Return the value of a tree.

        Raises:
            MalformedError: If the tree is malformed.
        """
        kind = type(tree)
        if kind is list:
            try:
                return self._read(tree)
            except MalformedError:
                raise
            except (*VALUE_ERRORS, re.error) as error:
                message = f"{type(error).__name__}: {error}"
                raise MalformedError(message) from error
        if kind in PRIMITIVES or kind in (int, str, bytes):
            return tree
        message = f"a {kind.__name__}"
        raise MalformedError(message)

    def items(self, trees: list[Tree]) -> Iterable[Any]:
        """Return an iterator over the values of trees."""
        if type(trees) is not list:
            message = "no list"
            raise MalformedError(message)
        return map(self.decode, trees)

    def _read(self, tree: list[Tree]) -> Any:
        tag, *parts = tree
        reader = _READERS.get(tag)
        if reader is None:
            return self._on_object(self, tree)
        return reader(self, *parts)

    def new(self, container: Any) -> Any:
        """Register a new container under the next number."""
        self.mutables.append(container)
        return container

    def fill(self, mapping: dict[Any, Any], keys: list[Tree], values: list[Tree]) -> dict[Any, Any]:
        """Insert decoded keys and values into a dict."""
        for key, value in zip(self.items(keys), self.items(values), strict=True):
            mapping[key] = value
        return mapping

    def add(self, add: Callable[[Any, Iterable[Any]], None], container: Any, items: list[Tree]) -> Any:
        """Add decoded items to a new container."""
        add(self.new(container), self.items(items))
        return container


def _read_default_dict(decoder: Decoder, keys: list[Tree], values: list[Tree], factory: Tree) -> defaultdict[Any, Any]:
    container: defaultdict[Any, Any] = decoder.new(defaultdict())
    decoder.fill(container, keys, values)
    container.default_factory = decoder.decode(factory)
    return container


def _read_datetime(decoder: Decoder, *parts: Tree) -> datetime.datetime:
    year, month, day, *time = parts
    return datetime.datetime.combine(datetime.date(year, month, day), _read_time(decoder, *time))


def _read_time(decoder: Decoder, hour: int, minute: int, second: int, microsecond: int, zone: Tree, fold: int) -> datetime.time:
    return datetime.time(hour, minute, second, microsecond, decoder.decode(zone), fold=fold)


def _read_array(decoder: Decoder, dtype: str, shape: list[int], data: bytes) -> Any:
    import numpy as np

    return decoder.new(decoder.adapt(np.frombuffer(data, _dtype(dtype)).reshape(shape).copy()))


def _read_scalar(decoder: Decoder, dtype: str, data: bytes) -> Any:
    import numpy as np

    return decoder.adapt(np.frombuffer(data, _dtype(dtype))[0])


def _dtype(name: str) -> Any:
    import numpy as np

    dtype = np.dtype(name)
    if dtype.kind not in ARRAY_KINDS:
        message = f"an array of {name}"
        raise MalformedError(message)
    return dtype


def _read_pattern(decoder: Decoder, pattern: Tree, flags: int) -> re.Pattern[Any]:
    return re.compile(decoder.decode(pattern), flags)


def _exactly(kind: type, value: Any) -> Any:
    """Check the exact type of a value: for other types, constructors may behave arbitrarily or not terminate."""
    if type(value) is not kind:
        message = f"a {type(value).__name__} for {kind.__name__}"
        raise MalformedError(message)
    return value


_READERS: dict[int, Callable[..., Any]] = {
    Tag.LIST: lambda decoder, items: decoder.add(list.extend, [], items),
    Tag.TUPLE: lambda decoder, items: tuple(decoder.items(items)),
    Tag.DICT: lambda decoder, keys, values: decoder.fill(decoder.new({}), keys, values),
    Tag.SET: lambda decoder, items: decoder.add(set.update, set(), items),
    Tag.FROZENSET: lambda decoder, items: frozenset(decoder.items(items)),
    Tag.AGAIN: lambda decoder, number: decoder.mutables[number],
    Tag.INT: lambda _, data: int.from_bytes(_exactly(bytes, data), "little", signed=True),
    Tag.COMPLEX: lambda _, real, imag: complex(real, imag),
    Tag.BYTEARRAY: lambda decoder, data: decoder.new(bytearray(_exactly(bytes, data))),
    Tag.TEXT: lambda _, data: data.decode("utf-8", "surrogatepass"),
    Tag.DECIMAL: lambda _, text: decimal.Decimal(_exactly(str, text)),
    Tag.FRACTION: lambda decoder, *parts: fractions.Fraction(*(_exactly(int, decoder.decode(part)) for part in parts)),
    Tag.DATE: lambda _, *parts: datetime.date(*parts),
    Tag.TIME: _read_time,
    Tag.DATETIME: _read_datetime,
    Tag.TIMEDELTA: lambda _, *parts: datetime.timedelta(*parts),
    Tag.TIMEZONE: lambda decoder, *parts: datetime.timezone(*map(decoder.decode, parts)),
    Tag.ZONE: lambda _, key: zoneinfo.ZoneInfo(_exactly(str, key)),
    Tag.ARRAY: _read_array,
    Tag.SCALAR: _read_scalar,
    Tag.DEQUE: lambda decoder, items, maxlen: decoder.add(deque.extend, deque(maxlen=maxlen), items),
    Tag.COUNTER: lambda decoder, keys, values: decoder.fill(decoder.new(Counter()), keys, values),
    Tag.ORDERED_DICT: lambda decoder, keys, values: decoder.fill(decoder.new(OrderedDict()), keys, values),
    Tag.DEFAULT_DICT: _read_default_dict,
    Tag.RANGE: lambda decoder, *parts: range(*map(decoder.decode, parts)),
    Tag.SLICE: lambda decoder, *parts: slice(*map(decoder.decode, parts)),
    Tag.ELLIPSIS: lambda _: ...,
    Tag.NOT_IMPLEMENTED: lambda _: NotImplemented,
    Tag.VIEW: lambda decoder, name, keys, values: _VIEWS_BY_NAME[name](decoder.fill({}, keys, values)),
    Tag.UUID: lambda _, data: uuid.UUID(bytes=data),
    Tag.PATH: lambda _, text: pathlib.Path(text),
    Tag.PATTERN: _read_pattern,
    Tag.TYPE: lambda _, name: _TYPES_BY_NAME[name],
}


def replace_contents(container: Any, new: Any) -> None:
    """Replace the contents of a container in place with those of another one of its type.

    Raises:
        MalformedError: If the other one is of a different type, or an array of an incompatible shape.
    """
    kind = type(container)
    if isinstance(container, list | bytearray) and kind is type(new):
        container[:] = new
    elif isinstance(container, dict | set) and kind is type(new):
        container.clear()
        container.update(new)
    elif isinstance(container, deque) and kind is type(new):
        container.clear()
        container.extend(new)
    elif _is_array(container) and _is_array(new) and container.shape == new.shape:
        container[...] = new
    elif kind.__module__.partition(".")[0] == "pandas" and kind is type(new):
        kind.__init__(container, new)
    else:
        message = f"a {type(new).__name__} for a {kind.__name__}"
        raise MalformedError(message)


def _is_array(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)
