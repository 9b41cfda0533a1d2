"""Values on their way between a submission and its tests: an encoding from which nothing but builtin data can come out.

A value becomes a tree of what msgpack knows: atoms stand for themselves, everything else is a list that begins with a tag.
Numbers are exact. Objects that are no data are left to a ``Peer``, which keeps them, and sends a number. Containers that can be
changed have numbers in the order in which they are met, so that aliases and cycles survive the journey.

Unlike ``pickle`` and ``marshal``, decoding runs no code that the sender chooses.
"""

from __future__ import annotations

import builtins
import datetime
import decimal
import fractions
import pathlib
import re
import uuid
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import Any

__all__ = ["Decoder", "Encoder", "MalformedError", "Tag", "Tree", "replace_contents"]

Tree = Any
"""What msgpack encodes: None, bool, int, float, str, bytes, or a list of a tag and trees."""


class Tag(IntEnum):
    """What a list stands for."""

    LIST = 0
    TUPLE = 1
    DICT = 2
    SET = 3
    FROZENSET = 4
    AGAIN = 5
    """A container that was met before, by its number."""
    INT = 6
    COMPLEX = 7
    BYTEARRAY = 8
    TEXT = 9
    """Text with lone surrogates."""
    DECIMAL = 10
    FRACTION = 11
    DATE = 12
    TIME = 13
    DATETIME = 14
    TIMEDELTA = 15
    TIMEZONE = 16
    ARRAY = 17
    SCALAR = 18
    """One of numpy's numbers."""
    DEQUE = 19
    COUNTER = 20
    ORDERED_DICT = 21
    DEFAULT_DICT = 22
    RANGE = 23
    SLICE = 24
    ELLIPSIS = 25
    NOT_IMPLEMENTED = 26
    VIEW = 27
    """The keys, values or items of a dict."""
    UUID = 28
    PATH = 29
    PATTERN = 30
    TYPE = 31
    """A builtin type, by its name."""
    OBJECT = 32
    """An object that its owner keeps, as a number."""
    BACK = 33
    """An object that the receiver keeps, as the number that it gave."""
    CLASS = 34
    """A class that its owner keeps, as a number, and what there is to know of it when it is told of for the first time."""
    NAMED = 35
    """A function, class or module of the standard library, by its name: to a submission, which may import what it likes."""


class MalformedError(ValueError):
    """A tree that no value was encoded to."""


_FAULTS = (ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError, ValueError)
"""What reading a tree raises that is none; a regular expression that is none has an exception of its own."""

_NoneType = type(None)
_PLAIN = frozenset((_NoneType, bool, float))
_SMALLEST, _LARGEST = -(1 << 63), (1 << 64) - 1
_ARRAY_KINDS = "biufcSUmM"
_VIEWS = {type({}.keys()): "keys", type({}.values()): "values", type({}.items()): "items"}
_VIEWS_BY_NAME: dict[str, Callable[[dict[Any, Any]], Any]] = {"keys": dict.keys, "values": dict.values, "items": dict.items}

_TYPES: dict[type, str] = {
    kind: kind.__name__
    for kind in (
        *(object, type, int, float, complex, bool, str, bytes, bytearray, list, tuple, dict, set, frozenset, range, slice),
        *(Counter, OrderedDict, defaultdict, deque, decimal.Decimal, fractions.Fraction),
        *(datetime.date, datetime.time, datetime.datetime, datetime.timedelta, datetime.timezone, _NoneType),
        *(kind for kind in vars(builtins).values() if isinstance(kind, type) and issubclass(kind, BaseException)),
    )
}
"""The types that mean the same to both sides. No functions: what they do when they are called is not the sender's to choose."""

_TYPES_BY_NAME = {name: kind for kind, name in _TYPES.items()}


class Encoder:
    """Turns values into trees.

    Args:
        on_object: Returns the tree of what is no data.
        known: Containers that the receiver has already, in the order of their numbers.

    Attributes:
        on_object: The same.
        mutables: The containers that have a number, in the order of these.
    """

    def __init__(self, on_object: Callable[[Any], Tree], known: Iterable[Any] = ()) -> None:
        self.on_object = on_object
        self.mutables: list[Any] = list(known)
        self._numbers = {id(container): number for number, container in enumerate(self.mutables)}

    def encode(self, value: Any) -> Tree:
        """Return the tree of a value."""
        kind = type(value)
        if kind in _PLAIN:
            return value
        writer = _WRITERS.get(kind)
        if writer is not None:
            return writer(self, value)
        if kind.__module__ == "numpy" and (tree := _numpy(self, value)) is not None:
            return tree
        return self.on_object(value)

    def encode_contents(self, container: Any) -> Tree:
        """Return the tree of a container that is known, with what it has now."""
        # The receiver numbers all that it reads, this copy, too.
        self.mutables.append(None)
        return _MUTABLE[type(container)](self, container) if type(container) in _MUTABLE else _array(container)

    def number(self, container: Any) -> Tree | None:
        """Return the tree of a container that was met before; give any other one a number."""
        number = self._numbers.setdefault(id(container), len(self.mutables))
        if number < len(self.mutables):
            return [Tag.AGAIN, number]
        self.mutables.append(container)
        return None

    def items(self, values: Iterable[Any]) -> list[Tree]:
        """Return the trees of some values."""
        values = list(values)
        kinds = set(map(type, values))
        if kinds <= _PLAIN:
            return values
        if kinds == {int} and min(values) >= _SMALLEST and max(values) <= _LARGEST:
            return values
        if kinds == {str} and all(map(str.isascii, values)):
            return values
        return [self.encode(value) for value in values]

    def pairs(self, mapping: dict[Any, Any]) -> list[Tree]:
        """Return the trees of the keys and of the values of a dict."""
        return [self.items(dict.keys(mapping)), self.items(dict.values(mapping))]


def _text(_: Encoder, value: str) -> Tree:
    if value.isascii():
        return value
    try:
        value.encode()
    except UnicodeEncodeError:
        return [Tag.TEXT, value.encode("utf-8", "surrogatepass")]
    return value


def _int(_: Encoder, value: int) -> Tree:
    if _SMALLEST <= value <= _LARGEST:
        return value
    return [Tag.INT, value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)]


def _numbered(writer: Callable[[Encoder, Any], Tree]) -> Callable[[Encoder, Any], Tree]:
    def write(encoder: Encoder, container: Any) -> Tree:
        return encoder.number(container) or writer(encoder, container)

    return write


_MUTABLE: dict[type, Callable[[Encoder, Any], Tree]] = {
    list: lambda encoder, value: [Tag.LIST, encoder.items(value)],
    dict: lambda encoder, value: [Tag.DICT, *encoder.pairs(value)],
    set: lambda encoder, value: [Tag.SET, encoder.items(value)],
    bytearray: lambda encoder, value: [Tag.BYTEARRAY, bytes(value)],
    deque: lambda encoder, value: [Tag.DEQUE, encoder.items(value), value.maxlen],
    Counter: lambda encoder, value: [Tag.COUNTER, *encoder.pairs(value)],
    OrderedDict: lambda encoder, value: [Tag.ORDERED_DICT, *encoder.pairs(value)],
    defaultdict: lambda encoder, value: [Tag.DEFAULT_DICT, *encoder.pairs(value), encoder.encode(value.default_factory)],
}

_WRITERS: dict[type, Callable[[Encoder, Any], Tree]] = {
    int: _int,
    str: _text,
    bytes: lambda _, value: value,
    tuple: lambda encoder, value: [Tag.TUPLE, encoder.items(value)],
    frozenset: lambda encoder, value: [Tag.FROZENSET, encoder.items(value)],
    complex: lambda _, value: [Tag.COMPLEX, value.real, value.imag],
    decimal.Decimal: lambda _, value: [Tag.DECIMAL, str(value)],
    fractions.Fraction: lambda encoder, value: [
        *(Tag.FRACTION, encoder.encode(value.numerator), encoder.encode(value.denominator)),
    ],
    datetime.date: lambda _, value: [Tag.DATE, value.year, value.month, value.day],
    datetime.time: lambda encoder, value: [Tag.TIME, *_time(encoder, value)],
    datetime.datetime: lambda encoder, value: [Tag.DATETIME, value.year, value.month, value.day, *_time(encoder, value)],
    datetime.timedelta: lambda _, value: [Tag.TIMEDELTA, value.days, value.seconds, value.microseconds],
    datetime.timezone: lambda encoder, value: [Tag.TIMEZONE, encoder.encode(value.utcoffset(None)), value.tzname(None)],
    range: lambda encoder, value: [Tag.RANGE, *map(encoder.encode, (value.start, value.stop, value.step))],
    slice: lambda encoder, value: [Tag.SLICE, *map(encoder.encode, (value.start, value.stop, value.step))],
    type(...): lambda _, value: [Tag.ELLIPSIS],
    type(NotImplemented): lambda _, value: [Tag.NOT_IMPLEMENTED],
    uuid.UUID: lambda _, value: [Tag.UUID, value.bytes],
    type(pathlib.Path()): lambda _, value: [Tag.PATH, str(value)],
    re.Pattern: lambda encoder, value: [Tag.PATTERN, encoder.encode(value.pattern), value.flags],
    type: lambda encoder, value: [Tag.TYPE, _TYPES[value]] if value in _TYPES else encoder.on_object(value),
    **{kind: _numbered(writer) for kind, writer in _MUTABLE.items()},
    **dict.fromkeys(_VIEWS, lambda encoder, value: [Tag.VIEW, _VIEWS[type(value)], *encoder.pairs(dict(value.mapping))]),
}


def _time(encoder: Encoder, value: Any) -> list[Tree]:
    return [value.hour, value.minute, value.second, value.microsecond, encoder.encode(value.tzinfo), value.fold]


def _numpy(encoder: Encoder, value: Any) -> Tree | None:
    """Return the tree of one of numpy's numbers or arrays; None if it has no plain data."""
    import numpy as np

    if type(value) is np.ndarray and value.dtype.kind in _ARRAY_KINDS:
        return encoder.number(value) or _array(value)
    if isinstance(value, np.generic) and value.dtype.kind in _ARRAY_KINDS:
        return [Tag.SCALAR, value.dtype.str, value.tobytes()]
    return None


def _array(value: Any) -> Tree:
    return [Tag.ARRAY, value.dtype.str, list(value.shape), value.tobytes()]


class Decoder:
    """Turns trees into values.

    Args:
        on_object: Returns what a tree of ``Tag.OBJECT``, ``Tag.BACK`` or ``Tag.CLASS`` stands for.
        known: Containers that the sender knows already, in the order of their numbers.

    Attributes:
        mutables: The containers that have a number, in the order of these.
    """

    def __init__(self, on_object: Callable[[Decoder, Tree], Any], known: Iterable[Any] = ()) -> None:
        self._on_object = on_object
        self.mutables: list[Any] = list(known)

    def decode(self, tree: Tree) -> Any:
        """Return the value of a tree.

        Raises:
            MalformedError: There is none.
        """
        kind = type(tree)
        if kind is list:
            try:
                return self._read(tree)
            except MalformedError:
                raise
            except (*_FAULTS, re.error) as error:
                message = f"{type(error).__name__}: {error}"
                raise MalformedError(message) from error
        if kind in _PLAIN or kind in (int, str, bytes):
            return tree
        message = f"a {kind.__name__}"
        raise MalformedError(message)

    def items(self, trees: list[Tree]) -> Iterable[Any]:
        """Return the values of some trees, one after the other."""
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
        """Give a new container its number."""
        self.mutables.append(container)
        return container

    def fill(self, mapping: dict[Any, Any], keys: list[Tree], values: list[Tree]) -> dict[Any, Any]:
        """Put keys and values into a dict."""
        for key, value in zip(self.items(keys), self.items(values), strict=True):
            dict.__setitem__(mapping, key, value)
        return mapping


def _read_list(decoder: Decoder, items: list[Tree]) -> list[Any]:
    container: list[Any] = decoder.new([])
    container.extend(decoder.items(items))
    return container


def _read_set(decoder: Decoder, items: list[Tree]) -> set[Any]:
    container: set[Any] = decoder.new(set())
    container.update(decoder.items(items))
    return container


def _read_deque(decoder: Decoder, items: list[Tree], maxlen: int | None) -> deque[Any]:
    container: deque[Any] = decoder.new(deque(maxlen=maxlen))
    container.extend(decoder.items(items))
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

    return decoder.new(np.frombuffer(data, _dtype(dtype)).reshape(shape).copy())


def _read_scalar(_: Decoder, dtype: str, data: bytes) -> Any:
    import numpy as np

    return np.frombuffer(data, _dtype(dtype))[0]


def _dtype(name: str) -> Any:
    import numpy as np

    dtype = np.dtype(name)
    if dtype.kind not in _ARRAY_KINDS:
        message = f"an array of {name}"
        raise MalformedError(message)
    return dtype


def _read_pattern(decoder: Decoder, pattern: Tree, flags: int) -> re.Pattern[Any]:
    return re.compile(decoder.decode(pattern), flags)


def _exactly(kind: type, value: Any) -> Any:
    """Return a value of a type; what else its constructor takes may be anything, and take for ever."""
    if type(value) is not kind:
        message = f"a {type(value).__name__} for {kind.__name__}"
        raise MalformedError(message)
    return value


_READERS: dict[int, Callable[..., Any]] = {
    Tag.LIST: _read_list,
    Tag.TUPLE: lambda decoder, items: tuple(decoder.items(items)),
    Tag.DICT: lambda decoder, keys, values: decoder.fill(decoder.new({}), keys, values),
    Tag.SET: _read_set,
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
    Tag.TIMEZONE: lambda decoder, offset, name: datetime.timezone(decoder.decode(offset), name),
    Tag.ARRAY: _read_array,
    Tag.SCALAR: _read_scalar,
    Tag.DEQUE: _read_deque,
    Tag.COUNTER: lambda decoder, keys, values: decoder.fill(decoder.new(Counter()), keys, values),
    Tag.ORDERED_DICT: lambda decoder, keys, values: _read_ordered(decoder, keys, values),
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


def _read_ordered(decoder: Decoder, keys: list[Tree], values: list[Tree]) -> OrderedDict[Any, Any]:
    container: OrderedDict[Any, Any] = decoder.new(OrderedDict())
    for key, value in zip(decoder.items(keys), decoder.items(values), strict=True):
        container[key] = value
    return container


def replace_contents(container: Any, new: Any) -> None:
    """Make a container equal to another one of its type, without its becoming another object.

    Raises:
        MalformedError: The other one is of another type, or an array of another shape.
    """
    if type(container) is not type(new):
        message = f"a {type(new).__name__} for a {type(container).__name__}"
        raise MalformedError(message)
    if isinstance(container, list | bytearray):
        container[:] = new
    elif isinstance(container, dict | set):
        container.clear()
        container.update(new)
    elif isinstance(container, deque):
        container.clear()
        container.extend(new)
    else:
        try:
            container[...] = new
        except ValueError as error:
            raise MalformedError(str(error)) from error
