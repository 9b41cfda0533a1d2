"""Video of a step, with frames that are decoded on access."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Self, overload

import numpy as np
from numpy.typing import NDArray

from coding_gym.media.frames import decode_pixels
from coding_gym_server.protocol import Frame

__all__ = ["Video"]


class Video(Sequence[NDArray[np.uint8]]):
    """Sequence of frames, each uint8 of shape (height, width, 3): one for each change of the screen.

    Frames are stored compressed; each access decodes one into a new array.

    Args:
        frames: Compressed frames with their times.

    Example:
        >>> video = Video()
        >>> len(video), video.times
        (0, ())
        >>> np.stack(env.step(code)[4]["frames"]).shape  # doctest: +SKIP
        (25, 480, 640, 3)
    """

    def __init__(self, frames: Iterable[Frame] = ()) -> None:
        self._frames = tuple(frames)

    @property
    def times(self) -> tuple[float, ...]:
        """Times at which the frames appeared, in seconds since the start of the step."""
        return tuple(frame.time for frame in self._frames)

    def __len__(self) -> int:
        return len(self._frames)

    @overload
    def __getitem__(self, index: int) -> NDArray[np.uint8]: ...

    @overload
    def __getitem__(self, index: slice) -> Self: ...

    def __getitem__(self, index: int | slice) -> NDArray[np.uint8] | Self:
        if isinstance(index, slice):
            return type(self)(self._frames[index])
        return decode_pixels(self._frames[index].pixels)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Video):
            return NotImplemented
        return self._frames == other._frames

    def __hash__(self) -> int:
        return hash(self._frames)

    def _repr_html_(self) -> str:
        from coding_gym.media.representation import video_html

        return video_html(self, self.times, repr(self).strip("<>"))

    def __repr__(self) -> str:
        if not self._frames:
            return "<Video: no frames>"
        first, last = self._frames[0].time, self._frames[-1].time
        return f"<Video: {len(self)} frames, {first:.2f} s to {last:.2f} s>"
