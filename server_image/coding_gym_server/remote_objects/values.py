"""Encoding of values exchanged between a submission and its tests; only builtin data can be decoded from it.

A value is encoded as a tree of msgpack types: atoms stand for themselves, everything else is a list that starts with a tag.
Numbers are exact. Other objects are kept by a ``RemoteObjectEndpoint``, which sends a number. Mutable containers are
numbered in order of first occurrence, so that aliases and cycles are preserved.

Unlike with ``pickle`` and ``marshal``, decoding does not execute code chosen by the sender.
"""

from __future__ import annotations

import datetime
import decimal
import fractions
import pathlib
import re
import uuid
import zoneinfo
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import Any

__all__ = ["MUTABLE", "Encoder", "MalformedError", "Tag", "Tree"]

Tree = Any
"""A msgpack tree: None, bool, int, float, str, bytes, or a list of a tag and its parts."""


class Tag(IntEnum):
    """Type tag of a list."""

    LIST = 0
    TUPLE = 1
    DICT = 2
    SET = 3
    FROZENSET = 4
    AGAIN = 5
    """A reference to a container that occurred before, by its number."""
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
    """A NumPy scalar."""
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
    """A type of data, by its name."""
    OBJECT = 32
    """An object kept by the sender, as a number."""
    BACK = 33
    """An object kept by the receiver, as the number that the receiver assigned."""
    CLASS = 34
    """A class kept by the sender, as a number."""
    NAMED = 35
    """A function, class or module of a library, by name: only sent to a submission, which may import anything."""
    EXCEPTION = 36
    """An exception of a class that both sides have."""
    EXCEPTION_CLASS = 37
    """A class of exceptions, by its name."""
    TABLE = 38
    """A pandas object or an array of objects, by its parts."""
    ZONE = 39


class MalformedError(ValueError):
    """The tree is malformed."""


VALUE_ERRORS = (ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError, ValueError)
"""Exceptions that reading a malformed tree may raise; regular expressions have their own, ``re.error``."""

_NoneType = type(None)
PRIMITIVES = frozenset((_NoneType, bool, float))
_MIN_INT, _MAX_INT = -(1 << 63), (1 << 64) - 1
ARRAY_KINDS = "biufcSUmM"
_VIEWS = {type({}.keys()): "keys", type({}.values()): "values", type({}.items()): "items"}

TYPES: dict[type, str] = {
    kind: kind.__name__
    for kind in (
        *(int, float, complex, bool, str, bytes, bytearray, list, tuple, dict, set, frozenset, range, slice, _NoneType),
        *(Counter, OrderedDict, defaultdict, deque, decimal.Decimal, fractions.Fraction),
        *(datetime.date, datetime.time, datetime.datetime, datetime.timedelta, datetime.timezone),
    )
}
"""Types of data. Other types, and functions, have no names here: the sender must not choose what a call executes."""


class Encoder:
    """Encodes values as trees.

    Args:
        on_object: Encodes objects that are not data.
        known: Containers that the receiver already has, in the order of their numbers.

    Attributes:
        on_object: Encodes objects that are not data.
        mutables: The numbered containers, in the order of their numbers.
    """

    def __init__(self, on_object: Callable[[Encoder, Any], Tree], known: Iterable[Any] = ()) -> None:
        self.on_object = on_object
        self.mutables: list[Any] = list(known)
        self._numbers = {id(container): number for number, container in enumerate(self.mutables)}

    def encode(self, value: Any) -> Tree:
        """Encode a value."""
        kind = type(value)
        if kind in PRIMITIVES:
            return value
        writer = _WRITERS.get(kind)
        if writer is not None:
            return writer(self, value)
        if kind.__module__ == "numpy" and (tree := _numpy(self, value)) is not None:
            return tree
        return self.on_object(self, value)

    def attempt(self, value: Any, default: Any) -> Tree:
        """Encode a value, or a default if it does not cross."""
        count = len(self.mutables)
        try:
            return self.encode(value)
        except (TypeError, RecursionError):
            self._numbers = {key: number for key, number in self._numbers.items() if number < count}
            del self.mutables[count:]
            return self.encode(default)

    def encode_contents(self, container: Any) -> Tree:
        """Encode the current contents of a known container."""
        # The receiver numbers every container it reads, including this copy.
        if writer := MUTABLE.get(type(container)):
            self.mutables.append(None)
            return writer(self, container)
        number = self._numbers.pop(id(container))
        tree = self.encode(container)
        self._numbers[id(container)] = number
        return tree

    def number(self, container: Any) -> Tree | None:
        """Return the reference to a container that occurred before; None, after assigning a number, for a new one."""
        number = self._numbers.setdefault(id(container), len(self.mutables))
        if number < len(self.mutables):
            return [Tag.AGAIN, number]
        self.mutables.append(container)
        return None

    def items(self, values: Iterable[Any]) -> list[Tree]:
        """Encode a sequence of values."""
        values = list(values)
        kinds = set(map(type, values))
        if kinds <= PRIMITIVES:
            return values
        if kinds == {int} and min(values) >= _MIN_INT and max(values) <= _MAX_INT:
            return values
        if kinds == {str} and all(map(str.isascii, values)):
            return values
        return [self.encode(value) for value in values]

    def pairs(self, mapping: dict[Any, Any]) -> list[Tree]:
        """Encode the keys and the values of a dict."""
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
    if _MIN_INT <= value <= _MAX_INT:
        return value
    return [Tag.INT, value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)]


def _numbered(writer: Callable[[Encoder, Any], Tree]) -> Callable[[Encoder, Any], Tree]:
    def write(encoder: Encoder, container: Any) -> Tree:
        return encoder.number(container) or writer(encoder, container)

    return write


MUTABLE: dict[type, Callable[[Encoder, Any], Tree]] = {
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
    datetime.timezone: lambda encoder, value: [Tag.TIMEZONE, *map(encoder.encode, value.__getinitargs__())],
    zoneinfo.ZoneInfo: lambda encoder, value: [Tag.ZONE, value.key] if value.key else encoder.on_object(encoder, value),
    range: lambda encoder, value: [Tag.RANGE, *map(encoder.encode, (value.start, value.stop, value.step))],
    slice: lambda encoder, value: [Tag.SLICE, *map(encoder.encode, (value.start, value.stop, value.step))],
    type(...): lambda _, value: [Tag.ELLIPSIS],
    type(NotImplemented): lambda _, value: [Tag.NOT_IMPLEMENTED],
    uuid.UUID: lambda _, value: [Tag.UUID, value.bytes],
    type(pathlib.Path()): lambda _, value: [Tag.PATH, str(value)],
    re.Pattern: lambda encoder, value: [Tag.PATTERN, encoder.encode(value.pattern), value.flags],
    type: lambda encoder, value: [Tag.TYPE, TYPES[value]] if value in TYPES else encoder.on_object(encoder, value),
    **{kind: _numbered(writer) for kind, writer in MUTABLE.items()},
    **dict.fromkeys(_VIEWS, lambda encoder, value: [Tag.VIEW, _VIEWS[type(value)], *encoder.pairs(dict(value.mapping))]),
}


def _time(encoder: Encoder, value: Any) -> list[Tree]:
    return [value.hour, value.minute, value.second, value.microsecond, encoder.encode(value.tzinfo), value.fold]


def _numpy(encoder: Encoder, value: Any) -> Tree | None:
    """Encode a NumPy scalar or array; None if its data is not plain."""
    import numpy as np

    if type(value) is np.ndarray and value.dtype.kind in ARRAY_KINDS:
        return encoder.number(value) or [Tag.ARRAY, value.dtype.str, list(value.shape), value.tobytes()]
    if isinstance(value, np.generic) and value.dtype.kind in ARRAY_KINDS:
        return [Tag.SCALAR, value.dtype.str, value.tobytes()]
    return None
