from __future__ import annotations

import itertools

import numpy as np
import pytest

from coding_gym.errors import ProtocolError
from coding_gym.media.frames import black_frame, black_frames, decode_pixels, is_black
from coding_gym_server.protocol import Pixels
from tests.support.pictures import pixels, striped

PICTURE = pixels(striped(64, 48))


@pytest.mark.parametrize("size", [(64, 48), (1, 1), (4096, 1), (641, 479)])
def test_picture_round_trips_as_fresh_array(size):
    sent = pixels(striped(*size))
    first, second = decode_pixels(sent), decode_pixels(sent)
    assert first.dtype == np.uint8
    assert np.array_equal(first, striped(*size))
    first[:] = 0
    assert np.array_equal(second, striped(*size))


@pytest.mark.parametrize(
    "bad",
    [
        Pixels(64, 47, PICTURE.rgb),
        Pixels(64, 49, PICTURE.rgb),
        Pixels(64, 48, PICTURE.rgb[:-9]),
        Pixels(64, 48, PICTURE.rgb + b"junk"),
        Pixels(64, 48, PICTURE.rgb * 2),
        Pixels(64, 48, b""),
        Pixels(64, 48, b"no zstandard"),
        Pixels(0, 48, PICTURE.rgb),
        Pixels(-64, -48, PICTURE.rgb),
        Pixels(2**40, 1, PICTURE.rgb),
        "iVBORw0KGgo=",
    ],
    ids=lambda bad: repr(bad)[:40],
)
def test_malformed_picture_is_refused(bad):
    with pytest.raises(ProtocolError, match=r"Expected a picture .*, got "):
        decode_pixels(bad)


def test_decompression_is_limited_to_declared_size():
    bomb = pixels(np.zeros((4096, 4096, 3), np.uint8))
    assert len(bomb.rgb) < 10_000
    with pytest.raises(ProtocolError, match="of another size"):
        decode_pixels(Pixels(16, 16, bomb.rgb))


def test_batches_of_black_frames_are_writable_and_fresh():
    frames = black_frames(2, 48, 64)
    assert frames.shape == (2, 48, 64, 3)
    frames[:] = 1
    assert not black_frames(2, 48, 64).any()
    assert not is_black(black_frames(1, 48, 64)[0])


def test_black_frames_stay_black_and_share_no_memory():
    frames = [black_frame(48, 64) for _ in range(40)]
    assert all(is_black(frame) and not frame.any() and frame.shape == (48, 64, 3) for frame in frames)
    assert all(type(frame) is np.ndarray for frame in frames)
    assert not any(np.shares_memory(one, other) for one, other in itertools.combinations(frames, 2))
    for way in (lambda frame: frame.__setitem__(0, 1), lambda frame: frame.setflags(write=True)):
        with pytest.raises(ValueError, match=r"read-only|WRITEABLE"):
            way(frames[0])
    assert black_frame(16, 17).shape == (16, 17, 3)
    assert not is_black(frames[0].copy())


@pytest.mark.parametrize("shape", [(), (0,), (0, 0, 0), (4, 0, 3), (48, 64, 4), (1, 2, 3, 4)])
def test_arrays_of_any_shape_are_not_shared(shape):
    assert not is_black(np.zeros(shape, np.uint8))
