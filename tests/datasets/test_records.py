from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import zstandard
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from coding_gym import inputs
from coding_gym.datasets.episode import Episode, Step, decode_episode, encode_episode, episode_hash, plain, recordable_info
from coding_gym.errors import DatasetError
from coding_gym.media.frames import black_frame
from coding_gym.media.results import Result
from coding_gym.media.video import Video

_TEXT = st.text(st.characters(exclude_categories=["Cs"]))
_DATA = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | _TEXT | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=8,
)


def episode_of(*observations, index=0, **step):
    return Episode(index=index, seed=1, steps=tuple(Step(observation=observation, **step) for observation in observations))


def through(episode):
    return decode_episode(encode_episode(episode)[0])


@settings(max_examples=100, deadline=None)
@given(_DATA, _DATA)
def test_data_round_trips(observation, action):
    episode = episode_of(observation, action=action)
    assert through(episode) == episode
    assert episode_hash(through(episode)) == episode_hash(episode)


@settings(max_examples=50, deadline=None)
@given(arrays.arrays(arrays.scalar_dtypes(), arrays.array_shapes(min_dims=0, min_side=0, max_dims=4)))
@example(np.empty((0, 0, 0), np.uint8))
@example(np.empty((4, 0, 3), np.uint8))
def test_arrays_round_trip_exactly(array):
    found = through(episode_of(array)).steps[0].observation
    assert found.dtype == array.dtype
    assert found.shape == array.shape
    assert found.tobytes() == array.tobytes()
    assert found.flags.writeable
    assert episode_hash(episode_of(found)) == episode_hash(episode_of(array))


def test_black_frames_have_one_encoding():
    frames = [black_frame(48, 64), np.zeros((48, 64, 3), np.uint8)]
    assert len({encode_episode(episode_of(frame)) for frame in frames}) == 1
    other = np.zeros((48, 64, 3), np.uint8)
    other[-1, -1, -1] = 1
    assert episode_hash(episode_of(other)) != episode_hash(episode_of(frames[0]))
    assert (through(episode_of(other)).steps[0].observation == other).all()


def test_array_view_is_stored_by_visible_content():
    array = np.arange(60, dtype=np.uint8).reshape(4, 5, 3)[::-1, ::2]
    assert (through(episode_of(array)).steps[0].observation == array).all()


def test_hash_ignores_only_key_order():
    assert episode_hash(episode_of({"a": 1, "b": 2})) == episode_hash(episode_of({"b": 2, "a": 1}))
    hashes = {
        episode_hash(episode_of({"a": 1}, **step)) for step in ({}, {"reward": 1.0}, {"info": {"x": None}}, {"action": ""})
    }
    assert len(hashes) == 4


def test_lone_surrogates_become_replacement_characters():
    episode = episode_of({"stdout": "a\ud800b \N{GRINNING FACE}"}, info={"\udfff": ["\ud83d\ude00", "\ud83d"]})
    step = through(episode).steps[0]
    assert step.observation == {"stdout": "a\ufffdb \N{GRINNING FACE}"}
    # A surrogate pair is one character.
    assert step.info == {"\ufffd": ["\N{GRINNING FACE}", "\ufffd"]}
    assert encode_episode(episode)[1] == episode_hash(through(episode))


def test_input_events_become_mappings_accepted_as_actions():
    event = plain(inputs.click(np.int64(3), 4))
    assert event == {"type": "click", "x": 3, "y": 4}
    assert inputs.as_event(event) == inputs.click(3, 4)


def test_only_serializable_info_is_recorded():
    result = Result({"text/plain": "2", "image/png": b"\x89"}, is_value=True)
    info = {"frames": Video(), "outcome": "ok", "score": np.float32(0.5), "results": (result,), "lock": object(), "t": "\ud800"}
    assert recordable_info(info) == {
        "outcome": "ok",
        "score": 0.5,
        "results": [{"data": {"text/plain": "2", "image/png": b"\x89"}, "is_value": True}],
        "t": "\ufffd",
    }


def test_unserializable_parts_of_info_are_left_out_alone_and_said_once(caplog):
    info = {
        "paths": {"main": Path("/a/b"), "others": [Path("c"), object(), {"n": 2**64, "lock": object()}]},
        "large": -(2**70),
        "handle": object(),
        "kept": 1,
    }
    for _ in range(2):
        assert recordable_info(info) == {
            "paths": {"main": "/a/b", "others": ["c", None, {"n": "18446744073709551616"}]},
            "large": "-1180591620717411303424",
            "kept": 1,
        }
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 3
    assert "info['handle'] is not recorded: a value of type object is not serializable" in said
    circle = []
    circle.append(circle)
    assert recordable_info({"circle": circle, "kept": 1})["kept"] == 1


def test_keys_other_than_text_are_recorded():
    info = recordable_info({"votes": {3: "yes", 1: [{(0, 1): 2.5}]}, 7: "top", "lock": object()})
    assert info == {"votes": {3: "yes", 1: [{(0, 1): 2.5}]}, "7": "top"}
    assert recordable_info({1: 2}) == {"1": 2}
    recorded = episode_of({"board": {2: np.ones(3), 1: 0}}, info=info)
    assert through(recorded).steps[0].info == info
    assert through(recorded).steps[0].observation["board"][2].tolist() == [1, 1, 1]


def test_hash_of_keys_other_than_text_depends_on_contents_only():
    hashes = [
        episode_hash(episode_of(observation))
        for observation in (
            {1: "a", 2: {"x": 1, 3: 4}},
            {2: {3: 4, "x": 1}, 1: "a"},
            {1: "a", 2: {"x": 1, "3": 4}},
            {"1": "a", 2: 0},
        )
    ]
    assert hashes[0] == hashes[1]
    assert len(set(hashes)) == 3


def test_unserializable_data_is_refused():
    with pytest.raises(DatasetError, match="Episode 7 cannot be recorded: object is not serializable"):
        encode_episode(episode_of({"x": object()}, index=7))


DEEP = zstandard.ZstdCompressor().compress(b"\x81\xa7options\x81\xa1x" + b"\x91" * 5000 + b"\x00")


@pytest.mark.parametrize("data", [b"", b"junk", encode_episode(episode_of("x"))[0][:-3], DEEP])
def test_invalid_episode_bytes_are_refused(data):
    with pytest.raises(DatasetError, match="Expected a recorded episode"):
        decode_episode(data)


def test_solved_is_none_unless_reported():
    assert episode_of("x").solved is None
    assert Episode(index=0, seed=0, steps=(Step(observation=""), Step(observation="", info={"solved": False}))).solved is False
    assert Episode(index=0, seed=0, steps=(Step(observation="", info={"solved": True}),)).solved is True
