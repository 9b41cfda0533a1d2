"""Files that show a video: mp4 and webm, gif, and png for its last picture."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from coding_gym.errors import ConfigurationError
from coding_gym.video import Video

__all__ = ["check_movie_path", "write_movie"]

_GIF_RATE = 50
"""Frames a second of a gif, at most: viewers slow down those that are faster."""

_GIF_TICK = 10
"""The unit of a gif's durations, in milliseconds."""


@dataclass(frozen=True)
class _Codec:
    """What encodes a movie, chosen for speed on pictures of windows: 8 ms a frame of 640 x 480, and text stays sharp."""

    name: str
    options: dict[str, str]


_CODECS = {
    ".mp4": _Codec("libx264", {"preset": "veryfast", "crf": "20"}),
    ".webm": _Codec("libvpx-vp9", {"deadline": "realtime", "cpu-used": "8", "crf": "24", "b": "0"}),
}
_SUFFIXES = (*_CODECS, ".gif", ".png")


def check_movie_path(path: Path) -> None:
    """Raise if no movie can be written there.

    Raises:
        ConfigurationError: The suffix is unknown, what encodes it is not installed, or there is no such directory.
    """
    if path.suffix.lower() not in _SUFFIXES:
        message = f"Expected a file that ends in {', '.join(_SUFFIXES)}, got {path}"
        raise ConfigurationError(message)
    if path.suffix.lower() in _CODECS and importlib.util.find_spec("av") is None:
        message = f"{path.suffix} wants PyAV: pip install 'coding-gym[video]', or write a .gif"
        raise ConfigurationError(message)
    if not path.parent.is_dir():
        message = f"There is no directory {path.parent}"
        raise ConfigurationError(message)


def write_movie(path: Path, video: Video, *, rate: float, end: float) -> int:
    """Write a video to a file whose suffix says how; returns how many frames the file has.

    It begins with the first picture, and shows each until the next, at a constant frame rate.

    Args:
        path: The file; it is replaced if it exists.
        video: The pictures, at least one.
        rate: Frames a second.
        end: When the last picture is no longer shown, on the clock of ``video.times``.

    Raises:
        ConfigurationError: No movie can be written there, or there are no pictures.
    """
    check_movie_path(path)
    if not video:
        message = f"There are no pictures to write to {path}: was anything on the screen?"
        raise ConfigurationError(message)
    match path.suffix.lower():
        case ".png":
            return _write_png(path, video)
        case ".gif":
            return _write_gif(path, video, min(rate, _GIF_RATE), end)
        case suffix:
            return _write_encoded(path, video, rate, end, _CODECS[suffix])


def _shown(video: Video, rate: float, end: float) -> Iterator[tuple[NDArray[np.uint8], int]]:
    """Return the pictures, and for how many frames of a constant rate each is shown."""
    begin = video.times[0]
    ticks = [round((time - begin) * rate) for time in video.times]
    ticks.append(max(math.ceil((end - begin) * rate), ticks[-1] + 1))
    for index, (tick, following) in enumerate(pairwise(ticks)):
        if following > tick:
            yield video[index], following - tick


def _write_encoded(path: Path, video: Video, rate: float, end: float, codec: _Codec) -> int:
    import av

    time_base = 1 / Fraction(rate).limit_denominator(1000)
    written = 0
    with av.open(path, "w") as container:
        stream = container.add_stream(codec.name, rate=1 / time_base, options=codec.options)
        assert isinstance(stream, av.VideoStream)
        stream.height, stream.width = _even(video[0]).shape[:2]
        stream.pix_fmt = "yuv420p"
        for picture, count in _shown(video, rate, end):
            even = _even(picture)
            for _ in range(count):
                frame = av.VideoFrame.from_ndarray(even, format="rgb24")
                frame.pts, frame.time_base = written, time_base
                container.mux(stream.encode(frame))
                written += 1
        container.mux(stream.encode(None))
    return written


def _write_gif(path: Path, video: Video, rate: float, end: float) -> int:
    from PIL import Image

    pictures, ends, ticks = [], [0], 0
    for picture, count in _shown(video, rate, end):
        pictures.append(Image.fromarray(picture))
        ticks += count
        # Of the sum, so that what is rounded away does not add up.
        ends.append(round(ticks / rate * 1000 / _GIF_TICK) * _GIF_TICK)
    durations = [end - begin for begin, end in pairwise(ends)]
    pictures[0].save(path, save_all=True, append_images=pictures[1:], duration=durations, loop=0)
    return len(pictures)


def _write_png(path: Path, video: Video) -> int:
    from PIL import Image

    Image.fromarray(video[-1]).save(path)
    return 1


def _even(picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Repeat the last row and column where there is an odd number of them: colours are encoded for two by two pixels."""
    height, width = picture.shape[:2]
    return np.pad(picture, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")
