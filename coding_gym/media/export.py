"""Export of videos to MP4, WebM and GIF, and of the last frame to PNG."""

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
from coding_gym.media.representation import animated_gif
from coding_gym.media.video import Video

__all__ = ["check_movie_path", "write_movie"]

_GIF_RATE = 50
"""Maximum frame rate of a GIF: viewers slow down faster ones."""

_GIF_TICK = 10
"""Resolution of frame durations in a GIF, in milliseconds."""


@dataclass(frozen=True)
class _Codec:
    """Encoder and its options, chosen for speed and sharp text on images of windows: 8 ms per frame of 640 x 480."""

    name: str
    options: dict[str, str]


_CODECS = {
    ".mp4": _Codec("libx264", {"preset": "veryfast", "crf": "20"}),
    ".webm": _Codec("libvpx-vp9", {"deadline": "realtime", "cpu-used": "8", "crf": "24", "b": "0"}),
}
_SUFFIXES = (*_CODECS, ".gif", ".png")


def check_movie_path(path: Path) -> None:
    """Check that a movie can be written to a path.

    Raises:
        ConfigurationError: If the suffix is unknown, its encoder is not installed, or the directory does not exist.
    """
    if path.suffix.lower() not in _SUFFIXES:
        message = f"Expected a file that ends in {', '.join(_SUFFIXES)}, got {path}"
        raise ConfigurationError(message)
    if path.suffix.lower() in _CODECS and importlib.util.find_spec("av") is None:
        message = f"{path.suffix} requires PyAV: pip install 'coding-gym[video]', or write a .gif"
        raise ConfigurationError(message)
    if not path.parent.is_dir():
        message = f"There is no directory {path.parent}"
        raise ConfigurationError(message)


def write_movie(path: Path, video: Video, *, rate: float, end: float) -> int:
    """Write a video to a file in the format of its suffix, and return the number of frames in the file.

    The movie begins with the first frame of the video, and shows each until the next, at a constant frame rate.

    Args:
        path: Output file; replaced if it exists.
        video: Video with at least one frame.
        rate: Frames per second; a GIF has at most 50.
        end: Time at which the last frame disappears, on the clock of ``video.times``.

    Raises:
        ConfigurationError: If the suffix is unknown, its encoder is not installed, the directory does not exist, or the video
            is empty.
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
    """Yield each visible frame, with the number of frames that it lasts at a constant rate."""
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
    pictures, ends, ticks = [], [0], 0
    for picture, count in _shown(video, rate, end):
        pictures.append(picture)
        ticks += count
        # Round the cumulative time rather than each duration, so that rounding errors do not accumulate.
        ends.append(round(ticks / rate * 1000 / _GIF_TICK) * _GIF_TICK)
    durations = [end - begin for begin, end in pairwise(ends)]
    path.write_bytes(animated_gif(pictures, durations))
    return len(pictures)


def _write_png(path: Path, video: Video) -> int:
    from PIL import Image

    Image.fromarray(video[-1]).save(path)
    return 1


def _even(picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Pad an image to even width and height, as 4:2:0 chroma subsampling requires."""
    height, width = picture.shape[:2]
    return np.pad(picture, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")
