"""Encoding of values: round trips are exact, and arbitrary input decodes to builtin data only."""

from __future__ import annotations

import contextlib
import datetime
import decimal
import fractions
import math
import pathlib
import re
import uuid
from collections import Counter, OrderedDict, defaultdict, deque
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coding_gym_server.remote_objects.decoder import Decoder, replace_contents
from coding_gym_server.remote_objects.values import Encoder, MalformedError, Tag
from tests.support.timing import promptly

_ATOMS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.complex_numbers()
    | st.text(st.characters())
    | st.text(st.characters(categories=["Cs"]), max_size=3)
    | st.binary()
    | st.decimals()
    | st.fractions()
    | st.dates()
    | st.times(timezones=st.none() | st.just(datetime.UTC))
    | st.datetimes(timezones=st.none() | st.just(datetime.timezone(datetime.timedelta(hours=-3), "X")))
    | st.timedeltas()
    | st.uuids()
    | st.builds(bytearray, st.binary())
    | st.builds(range, st.integers(), st.integers(), st.integers(1))
    | st.sampled_from([..., NotImplemented, int, dict, slice(1, None, 2), pathlib.Path("a/b"), re.compile("a+", re.I)])
)
_KEYS = st.none() | st.integers() | st.text() | st.binary() | st.tuples(st.integers(), st.text())
_VALUES = st.recursive(
    _ATOMS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(_KEYS, inner, max_size=4)
        | st.dictionaries(_KEYS, inner, max_size=4).map(OrderedDict)
        | st.dictionaries(_KEYS, inner, max_size=4).map(lambda pairs: defaultdict(list, pairs))
        | st.lists(inner, max_size=4).map(lambda items: deque(items, maxlen=9))
        | st.sets(_KEYS, max_size=4)
        | st.frozensets(_KEYS, max_size=4)
        | st.lists(_KEYS, max_size=4).map(Counter)
    ),
    max_leaves=20,
)
_TREES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 40) | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=5) | st.tuples(st.sampled_from([*map(int, Tag)]), inner, inner).map(list),
    max_leaves=15,
)


def _refuse(*_: object) -> Any:
    raise MalformedError


def _encode(value: Any) -> Any:
    def no_object(_: Encoder, value: object) -> Any:
        raise AssertionError(type(value))

    return Encoder(no_object).encode(value)


def _travel(value: Any) -> Any:
    return Decoder(_refuse).decode(msgspec.msgpack.decode(msgspec.msgpack.encode(_encode(value))))


def _same(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, list | tuple | deque):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict):
        return _same(list(one), list(other)) and _same([*one.values()], [*other.values()])
    return repr(one) == repr(other) if isinstance(one, float | complex | decimal.Decimal) else one == other


@given(_VALUES)
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_values_round_trip(value: Any) -> None:
    assert _same(_travel(value), value)


@given(_TREES)
@settings(max_examples=200, deadline=5000, suppress_health_check=[HealthCheck.too_slow])
def test_random_trees_decode_or_are_malformed(tree: Any) -> None:
    with contextlib.suppress(MalformedError):
        Decoder(_refuse).decode(tree)


@pytest.mark.parametrize(
    "tree",
    [
        [],
        [99],
        [None],
        [[]],
        {},
        [Tag.LIST],
        [Tag.LIST, 5],
        [Tag.LIST, [], []],
        [Tag.DICT, [1], []],
        [Tag.DICT, [[Tag.LIST, []]], [1]],
        [Tag.SET, [[Tag.DICT, [], []]]],
        [Tag.AGAIN, 0],
        [Tag.INT, "1"],
        [Tag.INT, [1, 2]],
        [Tag.COMPLEX, "1", "2"],
        [Tag.BYTEARRAY, 10**12],
        [Tag.TEXT, b"\xff\xff"],
        [Tag.DECIMAL, "x"],
        [Tag.DECIMAL, [0, [1], 5]],
        [Tag.FRACTION, 1, 0],
        [Tag.FRACTION, "1e999999999"],
        [Tag.DATE, 0, 0, 0],
        [Tag.TIMEZONE, [Tag.TIMEDELTA, 5, 0, 0], "x"],
        [Tag.ARRAY, "O", [1], b"12345678"],
        [Tag.ARRAY, "f8,O", [1], b"1" * 16],
        [Tag.ARRAY, "f8", [3], b"1" * 16],
        [Tag.ARRAY, "f8", [-1, -1], b"1" * 16],
        [Tag.ARRAY, "S1000000000000", [1], b""],
        [Tag.SCALAR, "V4", b"1234"],
        [Tag.DEQUE, [], -1],
        [Tag.RANGE, 1.5, 2, 3],
        [Tag.RANGE, 1, 2, 0],
        [Tag.VIEW, "pop", [], []],
        [Tag.UUID, b"1"],
        [Tag.PATH, 5],
        [Tag.PATTERN, "(", 0],
        [Tag.PATTERN, "(" * 100_000, 0],
        [Tag.TYPE, "eval"],
        [Tag.TYPE, "type"],
        [Tag.TYPE, "super"],
        [Tag.TYPE, []],
        [Tag.OBJECT, 1, 2],
        [Tag.BACK, 1],
    ],
    ids=repr,
)
def test_malformed_trees_are_refused_quickly(tree: Any) -> None:
    with promptly(), pytest.raises(MalformedError):
        Decoder(_refuse).decode(tree)


def test_deep_trees_are_malformed() -> None:
    tree: Any = []
    for _ in range(100_000):
        tree = [Tag.LIST, [tree]]
    with pytest.raises(MalformedError):
        Decoder(_refuse).decode(tree)
    # Free the lists one by one: recursive deallocation would overflow the interpreter's stack.
    while isinstance(tree, list) and tree:
        tree = tree[1][0]


def test_aliases_and_cycles_round_trip() -> None:
    shared: list[Any] = [1]
    value = {"a": shared, "b": (shared, [shared])}
    shared.append(value)
    arrived = _travel(value)
    assert arrived["a"] is arrived["b"][0] is arrived["b"][1][0]
    assert arrived["a"][1] is arrived


@pytest.mark.parametrize("dtype", ["?", "i1", "u8", "f2", "<f8", ">f8", "c16", "U3", "S2", "M8[s]", "m8[ms]"])
def test_arrays_round_trip(dtype: str) -> None:
    array = np.zeros((2, 0, 3), dtype), np.arange(6).reshape(2, 3)[:, ::2].astype(dtype if dtype[-1] != "]" else "i8").view()
    for one in array:
        arrived = _travel(one)
        assert arrived.dtype == one.dtype
        assert arrived.shape == one.shape
        assert np.array_equal(arrived, one)
        arrived.flags.writeable = True
    assert type(_travel(np.float32(1.5))) is np.float32


@pytest.mark.parametrize("number", [0, -1, 2**63, 2**64, -(2**63), -(2**63) - 1, 10**500, -(10**500)])
def test_integers_are_exact(number: int) -> None:
    assert _travel(number) == number
    assert _travel([number, True]) == [number, True]


def test_special_numbers_round_trip() -> None:
    assert math.copysign(1, _travel(-0.0)) == -1
    assert math.isnan(_travel(math.nan))
    assert str(_travel(decimal.Decimal("sNaN"))) == "sNaN"
    assert _travel(fractions.Fraction(10**50, 3)) == fractions.Fraction(10**50, 3)
    assert _travel(uuid.UUID(int=5)) == uuid.UUID(int=5)


def test_dict_views_round_trip() -> None:
    assert list(_travel({1: 2}.items())) == [(1, 2)]
    assert _travel({1: 2}.keys()) == {1: 0}.keys()


@pytest.mark.parametrize(
    ("container", "new"),
    [
        ([1], [2, 3]),
        ({1: 2}, {3: 4}),
        ({1}, {2}),
        (bytearray(b"a"), bytearray(b"bc")),
        (deque([1]), deque([2])),
        (Counter("a"), Counter("b")),
    ],
)
def test_contents_are_replaced(container: Any, new: Any) -> None:
    replace_contents(container, new)
    assert container == new
    with pytest.raises(MalformedError):
        replace_contents(container, ())
