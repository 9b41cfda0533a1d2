from __future__ import annotations

import av
import numpy as np
import pytest
from PIL import Image

from coding_gym import Video
from coding_gym.errors import ConfigurationError
from coding_gym.media import export as movies
from coding_gym.media.export import check_movie_path, write_movie
from tests.support.pictures import frame, plain, striped

VIDEO = Video([frame(1.0, plain(63, 47, 0)), frame(1.5, plain(63, 47, 100)), frame(1.51, plain(63, 47, 200))])
"""The second picture lasts less than one frame of the movie."""


def brightness(picture):
    return round(float(picture.mean()), -1)


@pytest.mark.parametrize("suffix", [".mp4", ".webm", ".MP4"])
def test_videos_have_constant_frame_rate(tmp_path, suffix):
    path = tmp_path / f"a{suffix}"
    assert write_movie(path, VIDEO, rate=30, end=2.0) == 30
    with av.open(path) as container:
        stream = container.streams.video[0]
        assert stream.average_rate == 30
        assert (stream.width, stream.height) == (64, 48)
        frames = list(container.decode(video=0))
    assert [float(frame.time) for frame in frames] == pytest.approx(np.arange(30) / 30, abs=0.001)
    assert [brightness(frame.to_ndarray(format="rgb24")) for frame in frames] == [0] * 15 + [200] * 15


def test_decoded_video_shows_original_picture(tmp_path):
    picture = plain(640, 480, 230)
    picture[100:200, 100:300] = (200, 30, 30)
    write_movie(tmp_path / "a.mp4", Video([frame(0, picture)]), rate=29.97, end=0.5)
    with av.open(tmp_path / "a.mp4") as container:
        shown = next(container.decode(video=0)).to_ndarray(format="rgb24").astype(int)
    assert np.abs(shown - picture).max(axis=2).mean() < 3


def test_gif_frames_have_durations(tmp_path):
    pictures = [striped(64, 48), plain(64, 48, 200), plain(64, 48, 0)]
    video = Video([frame(time, picture) for time, picture in zip((0.0, 1 / 3, 2 / 3), pictures, strict=True)])
    assert write_movie(tmp_path / "a.gif", video, rate=30, end=1.0) == 3
    with Image.open(tmp_path / "a.gif") as image:
        shown = []
        for index in range(image.n_frames):
            image.seek(index)
            shown.append((image.info["duration"], np.asarray(image.convert("RGB"))))
    assert [duration for duration, _ in shown] == [330, 340, 330]
    assert all(brightness(array) == brightness(picture) for (_, array), picture in zip(shown, pictures, strict=True))


def test_png_shows_last_picture(tmp_path):
    assert write_movie(tmp_path / "a.png", Video([frame(0, plain(64, 48, 1)), frame(1, striped(64, 48))]), rate=30, end=2) == 1
    with Image.open(tmp_path / "a.png") as image:
        assert np.array_equal(np.asarray(image), striped(64, 48))


@pytest.mark.parametrize("suffix", [".mp4", ".gif"])
def test_single_picture_becomes_one_frame_video(tmp_path, suffix):
    assert write_movie(tmp_path / f"a{suffix}", VIDEO[:1], rate=30, end=0.0) == 1


@pytest.mark.parametrize("name", ["a.avi", "a", "mp4", ".mp4.txt"])
def test_unknown_suffix_is_refused(tmp_path, name):
    with pytest.raises(ConfigurationError, match=r"ends in \.mp4, \.webm, \.gif, \.png, got "):
        check_movie_path(tmp_path / name)


def test_missing_directory_is_refused(tmp_path):
    with pytest.raises(ConfigurationError, match="no directory"):
        check_movie_path(tmp_path / "nowhere" / "a.mp4")


def test_missing_pyav_is_reported_for_videos_only(tmp_path, monkeypatch):
    monkeypatch.setattr(movies.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ConfigurationError, match=r"pip install 'coding-gym\[video\]'"):
        check_movie_path(tmp_path / "a.webm")
    check_movie_path(tmp_path / "a.gif")


def test_empty_video_writes_no_file(tmp_path):
    with pytest.raises(ConfigurationError, match="no pictures"):
        write_movie(tmp_path / "a.mp4", Video(), rate=30, end=1)
    assert not list(tmp_path.iterdir())
