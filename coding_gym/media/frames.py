"""Screenshots.

Most screenshots are black: those are allocated without touching their memory, and can be recognized without reading it. The
others are transferred compressed.
"""

from __future__ import annotations

import functools
import mmap
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coding_gym.errors import ProtocolError
from coding_gym_server.protocol import MAX_SCREEN_SIDE, Pixels

__all__ = ["black_frame", "black_frames", "decode_pixels", "is_black"]

_BATCH = 16
"""Number of frames per memory mapping, which is only unmapped when none of its frames is in use."""


def black_frames(count: int, height: int, width: int) -> NDArray[np.uint8]:
    """Return fresh black frames: uint8, shape (count, height, width, 3).

    They occupy no memory until they are accessed, whereas ``np.zeros`` may reuse and clear memory.
    """
    memory = mmap.mmap(-1, count * height * width * 3, flags=mmap.MAP_PRIVATE)
    frames: NDArray[np.uint8] = np.ndarray((count, height, width, 3), np.uint8, memory)
    return frames


class _BlackFrames(np.ndarray[Any, np.dtype[np.uint8]]):
    """Frames that stay black: nothing can write to their memory, which does not exist before it is read."""


def black_frame(height: int, width: int) -> NDArray[np.uint8]:
    """Return a black frame that shares no memory with others: uint8, shape (height, width, 3), read-only."""
    spares = _spare_frames(height, width)
    try:
        return spares.pop()
    except IndexError:
        # Map several at once: ``mmap`` costs more than everything else that the client does in a step.
        memory = mmap.mmap(-1, _BATCH * height * width * 3, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)
        spares.extend(one.view(np.ndarray) for one in _BlackFrames((_BATCH, height, width, 3), np.uint8, memory))
        return spares.pop()


@functools.cache
def _spare_frames(height: int, width: int) -> list[NDArray[np.uint8]]:
    return []


def is_black(array: NDArray[Any]) -> bool:
    """Return whether ``array``, of any shape, is known to be black without being read."""
    return isinstance(array.base, _BlackFrames)


def decode_pixels(pixels: str | Pixels) -> NDArray[np.uint8]:
    """Decode an image from the server to a new, writable array: uint8, shape (height, width, 3).

    Raises:
        ProtocolError: If the image is not compressed RGB, or its size is invalid or does not match its data.
    """
    import zstandard

    if not isinstance(pixels, Pixels):
        message = f"Expected a picture as compressed RGB, got {type(pixels).__name__}, as servers send it in JSON"
        raise ProtocolError(message)
    if not (0 < pixels.width <= MAX_SCREEN_SIDE and 0 < pixels.height <= MAX_SCREEN_SIDE):
        message = f"Expected a picture of 1 to {MAX_SCREEN_SIDE} pixels each way, got {pixels.width} x {pixels.height}"
        raise ProtocolError(message)
    expected = f"Expected a picture of {pixels.width} x {pixels.height} pixels"
    frame = np.empty((pixels.height, pixels.width, 3), np.uint8)
    try:
        # Decompress directly into the array, which also bounds the size of decompressed data.
        with zstandard.ZstdDecompressor().stream_reader(pixels.rgb) as reader:
            is_whole = reader.readinto(frame.data.cast("B")) == frame.nbytes and not reader.read(1)
    except zstandard.ZstdError as error:
        message = f"{expected}, got data that Zstandard cannot read: {error}"
        raise ProtocolError(message) from error
    if not is_whole:
        message = f"{expected}, got data of another size"
        raise ProtocolError(message)
    return frame
