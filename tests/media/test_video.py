from __future__ import annotations

import pickle

import numpy as np
import pytest

from coding_gym import Video
from coding_gym.errors import ProtocolError
from coding_gym_server.protocol import Frame
from tests.support.pictures import frame, plain, striped

VIDEO = Video([frame(0.5, plain(64, 48, 0)), frame(0.75, striped(64, 48)), frame(2, plain(64, 48, 255))])


def test_video_is_sequence_of_timed_pictures():
    assert len(VIDEO) == 3
    assert VIDEO.times == (0.5, 0.75, 2)
    assert np.array_equal(VIDEO[1], striped(64, 48))
    assert np.array_equal(VIDEO[-1], plain(64, 48, 255))
    assert [int(picture.max()) for picture in VIDEO] == [0, 255, 255]
    assert np.stack(VIDEO).shape == (3, 48, 64, 3)
    assert np.stack(VIDEO).dtype == np.uint8
    with pytest.raises(IndexError):
        VIDEO[3]


def test_slice_is_video():
    part = VIDEO[1:]
    assert isinstance(part, Video)
    assert part.times == (0.75, 2)
    assert np.array_equal(part[0], striped(64, 48))


def test_returned_pictures_are_copies():
    VIDEO[1][:] = 7
    assert np.array_equal(VIDEO[1], striped(64, 48))


def test_video_supports_equality_and_pickle():
    again = pickle.loads(pickle.dumps(VIDEO))
    assert again == VIDEO
    assert hash(again) == hash(VIDEO)
    assert VIDEO[:2] != VIDEO
    assert Video([frame(time + 1, picture) for time, picture in zip(VIDEO.times, VIDEO, strict=True)]) != VIDEO
    assert Video() == Video()
    assert list(VIDEO.times) != VIDEO


def test_repr():
    assert repr(VIDEO) == "<Video: 3 frames, 0.50 s to 2.00 s>"
    assert repr(Video()) == "<Video: no frames>"


def test_malformed_picture_raises_on_access():
    video = Video([Frame(0.0, "a PNG")])
    assert len(video) == 1
    with pytest.raises(ProtocolError, match="compressed RGB"):
        video[0]
