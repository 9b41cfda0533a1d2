"""pandas objects and arrays of objects cross by value, with their types, names and order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from coding_gym_server.remote_objects.decoder import Decoder, replace_contents
from coding_gym_server.remote_objects.tables import decode, is_data
from coding_gym_server.remote_objects.values import Encoder, MalformedError, Tag
from tests.grading.travel import travel

pd = pytest.importorskip("pandas")
testing = pytest.importorskip("pandas.testing")

_TIMES = ["2020-01-01", "2021-06-01"]
_COLUMNS = {
    "integers": np.array([1, 2]),
    "floats": [1.5, None],
    "of 32 bits": np.array([1, 2], "i4"),
    "floats of 32 bits": np.array([1, np.nan], "f4"),
    "truth values": [True, False],
    "texts": ["x", None],
    "times": pd.to_datetime([_TIMES[0], None]),
    "times of a zone": pd.to_datetime(_TIMES).tz_localize("Europe/Berlin"),
    "times of UTC": pd.to_datetime(_TIMES, utc=True),
    "times of an offset": pd.to_datetime([f"{time}T00:00:00+02:00" for time in _TIMES]),
    "durations": pd.to_timedelta([1, 2], "D"),
    "categories": pd.Categorical(["a", None], ["b", "a"], ordered=True),
    "nullable integers": pd.array([1, None], dtype="Int64"),
    "nullable floats": pd.array([1.5, None], dtype="Float64"),
    "nullable truth values": pd.array([True, None], dtype="boolean"),
    "strings": pd.array(["x", None], dtype="string"),
    "periods": pd.period_range("2020-01", periods=2, freq="M"),
    "objects": pd.Series([{"a": [1]}, (2, pd.NaT)], dtype=object),
    "scalars": pd.Series([pd.Timestamp("2020", tz="UTC"), pd.NA], dtype=object),
}
_INDEXES = {
    "range": pd.RangeIndex(3, name="n"),
    "numbers": pd.Index([1, 2, 4]),
    "texts": pd.Index(["a", "b"], name=("a", 1)),
    "dates": pd.date_range("2020", periods=3, freq="h"),
    "durations": pd.timedelta_range("1D", periods=2),
    "categories": pd.CategoricalIndex(["a", "b"]),
    "periods": pd.period_range("2020", periods=3, freq="D"),
    "tuples": pd.MultiIndex.from_tuples([("a", 1), ("b", 2)], names=["x", None]),
    "nothing": pd.Index([]),
}


@pytest.mark.parametrize("to_tests", [False, True])
@pytest.mark.parametrize("name", _COLUMNS)
def test_columns_round_trip(name: str, to_tests: bool) -> None:
    series = pd.Series(_COLUMNS[name], name=name)
    testing.assert_series_equal(travel(series, to_tests=to_tests), series)
    frame = pd.DataFrame({"first": series, "second": series})
    testing.assert_frame_equal(travel(frame, to_tests=to_tests), frame)


@pytest.mark.parametrize("name", _INDEXES)
def test_indexes_round_trip(name: str) -> None:
    index = _INDEXES[name]
    got = travel(index)
    testing.assert_index_equal(got, index)
    assert getattr(got, "freq", None) == getattr(index, "freq", None)
    frame = pd.DataFrame([[0] * len(index)] * len(index), index=index, columns=index)
    testing.assert_frame_equal(travel(frame), frame)


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame(),
        pd.DataFrame(columns=["a", "b"]),
        pd.DataFrame(index=[1, 2]),
        pd.DataFrame([[1, 2.5]], columns=["a", "a"]),
        pd.DataFrame({"b": [1], "a": [2]}).rename_axis(index="i", columns="c"),
        pd.DataFrame({"k": ["a", "b", "a"], "v": [1, 2, 3]}).groupby("k").agg({"v": ["sum", "mean"]}),
    ],
    ids=["empty", "no rows", "no columns", "equal names", "named axes", "grouped"],
)
def test_frames_round_trip(frame: Any) -> None:
    testing.assert_frame_equal(travel(frame, to_tests=True), frame)


def test_scalars_round_trip() -> None:
    for value in (pd.Timestamp("2020-01-01 03:04", tz="Asia/Tokyo"), pd.Timestamp("2020"), pd.Timedelta(5, "s")):
        assert travel(value) == value
        assert type(travel(value)) is type(value)
    assert travel(pd.NaT) is pd.NaT
    assert travel(pd.NA) is pd.NA


def test_arrays_of_objects_round_trip() -> None:
    array = np.array([[1, "a"], [None, 2.5]], dtype=object)
    got = travel(array)
    assert got.shape == (2, 2)
    assert got.tolist() == array.tolist()


def test_aliases_stay_aliases() -> None:
    frame, array = pd.DataFrame({"a": [1]}), np.array([None], dtype=object)
    got = travel([frame, array, frame, array])
    assert got[0] is got[2]
    assert got[1] is got[3]


def test_narrow_numbers_are_widened_for_tests() -> None:
    frame = pd.DataFrame({"a": np.array([-28], "i1"), "b": np.array(["inf"], "f2"), "c": np.array([100 - (1 << 31)], "i4")})
    got = travel(frame, to_tests=True)
    assert not (got["a"] - 100).abs().lt(1e-6).any()
    assert not (got["b"] == 123456.75).any()
    assert not (got["c"] - 100).abs().lt(1e-6).any()
    assert abs(got["c"].iloc[0] - 100) > 1
    assert got["a"].sum() == -28
    testing.assert_frame_equal(travel(frame), frame)


def test_contents_of_frames_are_replaced() -> None:
    frame, series = pd.DataFrame({"a": [1]}), pd.Series([1])
    replace_contents(frame, pd.DataFrame({"b": ["x", "y"]}))
    replace_contents(series, pd.Series([2, 3], name="s"))
    testing.assert_frame_equal(frame, pd.DataFrame({"b": ["x", "y"]}))
    testing.assert_series_equal(series, pd.Series([2, 3], name="s"))
    with pytest.raises(MalformedError):
        replace_contents(frame, series)


def test_objects_in_columns_are_not_data() -> None:
    assert is_data(pd.DataFrame({"a": [[1]]}))
    assert not is_data(pd.DataFrame({"a": [object()]}))
    assert not is_data(np.array([len], dtype=object))
    assert not is_data(type("Frame", (pd.DataFrame,), {})())


@pytest.mark.parametrize(
    "parts",
    [
        (),
        None,
        ("eval",),
        ("Series",),
        ("Series", np.array([1]), ("RangeIndex", 0, 2, 1, None), None),
        ("Series", np.array([[1]]), ("RangeIndex", 0, 1, 1, None), None),
        ("DataFrame", ("RangeIndex", 0, 2, 1, None), ("RangeIndex", 0, 1, 1, None), [np.array([1])]),
        ("RangeIndex", 0, 1, 0, None),
        ("MultiIndex", [("RangeIndex", 0, 1, 1, None)], [np.array([5])], [None]),
        ("Index", np.array([0, 5, 6], "M8[D]"), None, "D"),
        ("Index", np.array([1]), [], None),
        ("array", ("zoned", np.array([0], "M8[s]"), "dateutil//etc/passwd")),
        ("array", ("zoned", np.array([0], "M8[s]"), "../../etc/passwd")),
        ("array", ("zoned", np.array([0], "M8[s]"), "Nowhere/At_All")),
        ("array", ("category", np.array([7]), ("RangeIndex", 0, 1, 1, None), True)),
        ("array", ("string", "elsewhere", True, ["a"])),
        ("array", ("masked", np.array([1]), np.array([1]))),
        ("array", ("period", np.array([1]), "eval")),
        ("objects", (5,), [1]),
        ("objects", (-1, -1), [1]),
        ("element", ("objects", [])),
    ],
    ids=repr,
)
def test_malformed_tables_are_refused(parts: Any) -> None:
    def refuse(encoder: Encoder, value: object) -> Any:
        raise AssertionError

    with pytest.raises(MalformedError):
        Decoder(lambda decoder, tree: decode(decoder, tree, is_exact=True)).decode([Tag.TABLE, Encoder(refuse).encode(parts)])
