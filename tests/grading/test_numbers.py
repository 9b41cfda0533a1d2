"""NumPy's numbers from a submission compare and compute as Python numbers do, wherever they are."""

from __future__ import annotations

import math
import unittest
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.grading.travel import travel

_WRONG = {
    "infinity of 16 bits": (np.float16("inf"), 123456.75),
    "rounded to 16 bits": (np.float16(0.1), 0.1),
    "infinity of 32 bits": (np.float32("inf"), 1e39),
    "rounded to 32 bits": (np.float32(16777216), 16777217),
    "wrapped in 8 bits": (np.int8(-28), 100),
    "wrapped in 8 bits, unsigned": (np.uint8(44), 300),
    "wrapped in 16 bits": (np.int16(100 - (1 << 15)), 100),
    "wrapped in 32 bits": (np.int32(100 - (1 << 31)), 100),
    "wrapped in 64 bits": (np.int64(100 - (1 << 63)), 100),
}
_PLACES: dict[str, Callable[[Any], Any]] = {
    "scalar": lambda scalar: travel(scalar, to_tests=True),
    "in a list": lambda scalar: travel([scalar], to_tests=True)[0],
    "in a dict": lambda scalar: travel({"k": (scalar,)}, to_tests=True)["k"][0],
    "element": lambda scalar: travel(np.array([scalar]), to_tests=True)[0],
    "iterated element": lambda scalar: next(iter(travel(np.array([scalar]), to_tests=True))),
    "element of objects": lambda scalar: travel(np.array([scalar], dtype=object), to_tests=True)[0],
    "maximum": lambda scalar: travel(np.array([scalar]), to_tests=True).max(),
    "sum": lambda scalar: sum(travel([scalar], to_tests=True)),
    "array": lambda scalar: travel(np.array([scalar, scalar]), to_tests=True),
    "slice": lambda scalar: travel(np.array([scalar, scalar]), to_tests=True)[1:],
    "base array": lambda scalar: np.asarray(travel(np.array([scalar, scalar]), to_tests=True)),
    "array of a list": lambda scalar: np.array(travel([scalar, scalar], to_tests=True)),
    "mean": lambda scalar: np.mean(travel(np.array([scalar]), to_tests=True)),
}
_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "==": lambda x, y: x == y,
    "== reversed": lambda x, y: y == x,
    "not !=": lambda x, y: np.logical_not(x != y),
    "abs": lambda x, y: abs(x - y) < 1e-6,
    "abs reversed": lambda x, y: abs(y - x) < 1e-6,
    "between": lambda x, y: np.logical_and(y - 1e-9 < x, x < y + 1e-9),
    "isclose": lambda x, y: np.isclose(x, y, rtol=1e-9, atol=0),
    "isclose reversed": lambda x, y: np.isclose(y, x, rtol=1e-9, atol=0),
    "allclose": lambda x, y: np.allclose([x], [y], rtol=1e-9, atol=0),
    "assert_allclose": lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-9) is None,
    "assert_array_equal": lambda x, y: np.testing.assert_array_equal(x, y) is None,
}
_METHODS = unittest.TestCase()
_OF_SCALARS: dict[str, Callable[[Any, Any], Any]] = {
    "approx": lambda x, y: x == pytest.approx(y, rel=1e-9),
    "approx reversed": lambda x, y: pytest.approx(x, rel=1e-9) == y,
    "assertEqual": lambda x, y: _METHODS.assertEqual(x, y) is None,  # noqa: PT009
    "assertAlmostEqual": lambda x, y: _METHODS.assertAlmostEqual(x, y) is None,  # noqa: PT009
    "assertAlmostEqual, delta": lambda x, y: _METHODS.assertAlmostEqual(x, y, delta=1e-6) is None,  # noqa: PT009
    "math.isclose": lambda x, y: math.isclose(x, y),
    "round": lambda x, y: round(x, 7) == y,
    "sum": lambda x, y: sum([x, 1]) == y + 1,
    "minimum and maximum": lambda x, y: min(x, y) == max(x, y),
    "in": lambda x, y: x in (y, y + 1) and y in [x],
}


def _accepts(compare: Callable[[Any, Any], Any], got: Any, expected: float) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return bool(np.all(compare(got, expected)))
    except (AssertionError, TypeError, OverflowError):
        return False


@pytest.mark.parametrize("place", _PLACES)
def test_wrong_numbers_equal_nothing(place: str) -> None:
    accepted = []
    for name, (scalar, expected) in _WRONG.items():
        got = _PLACES[place](scalar)
        comparisons = _COMPARISONS if np.ndim(got) else _COMPARISONS | _OF_SCALARS
        accepted += [(name, test) for test, compare in comparisons.items() if _accepts(compare, got, expected)]
    if place in ("array of a list",):
        # An array that tests make themselves has NumPy's integers of 64 bits, and wraps around as these do.
        accepted = [case for case in accepted if case[0] != "wrapped in 64 bits"]
    assert accepted == []


@pytest.mark.parametrize("place", _PLACES)
def test_right_numbers_equal_python_numbers(place: str) -> None:
    refused = []
    for scalar in (np.float16(1.5), np.float32(-2.25), np.int8(100), np.uint8(200), np.int32(7), np.int64(-9), np.float64(0.1)):
        got = _PLACES[place](scalar)
        comparisons = _COMPARISONS if np.ndim(got) else _COMPARISONS | _OF_SCALARS
        refused += [(repr(scalar), test) for test, compare in comparisons.items() if not _accepts(compare, got, scalar.item())]
    assert refused == []


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "i4", "i8", "u8", "f2", "f4", "c8"])
def test_scalars_arrive_as_python_numbers(dtype: str) -> None:
    scalar = np.array([5], dtype)[0]
    got = travel(scalar, to_tests=True)
    assert type(got) is type(scalar.item())
    assert got == scalar


def test_integers_are_indexes() -> None:
    got = travel(np.int8(2), to_tests=True)
    assert "abcd"[got] == "c"
    assert list(range(got)) == [0, 1]
    assert [divmod(got, 2), divmod(5, got), -got, ~got, 2**got, got << 1] == [(1, 0), (2, 1), -2, -3, 4, 4]
    assert type(got + 1) is int
    with pytest.raises(TypeError):
        "abcd"[travel(np.float32(1), to_tests=True)]


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u4", "f4", "c8", ">i2"])
def test_narrow_arrays_arrive_with_64_bits(dtype: str) -> None:
    array = np.arange(6).astype(dtype).reshape(2, 3)
    got = travel(array, to_tests=True)
    assert got.dtype in (np.int64, np.float64, np.complex128)
    assert got.dtype.kind in (array.dtype.kind, "i")
    assert np.array_equal(got, array)
    assert got.tolist() == array.tolist()


def test_common_arrays_arrive_unchanged() -> None:
    for dtype in ("i8", "f8", "c16", "?", "U3", "M8[s]"):
        got = travel(np.zeros(3, dtype), to_tests=True)
        assert type(got) is np.ndarray
        assert got.dtype == dtype
    assert type(travel(np.float64(0.5), to_tests=True)) is np.float64
    assert type(travel(np.int64(5), to_tests=True)) is int
