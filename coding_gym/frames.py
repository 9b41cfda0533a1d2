"""Pictures of the screen.

Nearly all screens are black: those are made without touching their memory, and recognised without looking at it. The others
come compressed.
"""

from __future__ import annotations

import functools
import mmap

import numpy as np
from numpy.typing import NDArray

from coding_gym.errors import ProtocolError
from coding_gym_server.protocol import MAX_SCREEN_SIDE, Pixels

__all__ = ["black_frame", "black_frames", "decode_pixels", "is_shared_black", "shared_black"]

_FRAMES_AT_A_TIME = 16
"""Of one mapping: what was written to one of them is freed when none of them is in use any more."""


def black_frames(count: int, height: int, width: int) -> NDArray[np.uint8]:
    """Return fresh black frames: uint8, shape (count, height, width, 3).

    The kernel's zero pages back them until somebody writes or reads: ``np.zeros`` clears memory that was used before.
    """
    memory = mmap.mmap(-1, count * height * width * 3, flags=mmap.MAP_PRIVATE)
    frames: NDArray[np.uint8] = np.ndarray((count, height, width, 3), np.uint8, memory)
    return frames


def black_frame(height: int, width: int) -> NDArray[np.uint8]:
    """Return a fresh black frame: uint8, shape (height, width, 3)."""
    spares = _spare_frames(height, width)
    try:
        return spares.pop()
    except IndexError:
        # Asking the kernel costs more than everything else that happens on this side of a step.
        frame: NDArray[np.uint8]
        frame, *others = black_frames(_FRAMES_AT_A_TIME, height, width)
        spares.extend(others)
        return frame


@functools.cache
def _spare_frames(height: int, width: int) -> list[NDArray[np.uint8]]:
    return []


@functools.cache
def shared_black(height: int, width: int) -> NDArray[np.uint8]:
    """Return the one black frame of this size, uint8, shape (height, width, 3), read-only."""
    frame: NDArray[np.uint8] = black_frames(1, height, width)[0]
    frame.flags.writeable = False
    return frame


def is_shared_black(frame: NDArray[np.uint8]) -> bool:
    """Say whether ``frame`` is what ``shared_black`` returns."""
    return frame is shared_black(*frame.shape[:2])


def decode_pixels(pixels: str | Pixels) -> NDArray[np.uint8]:
    """Return a picture as it comes from the server: uint8, shape (height, width, 3), writable, the caller's own.

    Raises:
        ProtocolError: It is no picture of the size that it says.
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
        # Straight into the array, which also bounds what a few bytes can grow to.
        with zstandard.ZstdDecompressor().stream_reader(pixels.rgb) as reader:
            is_whole = reader.readinto(frame.data.cast("B")) == frame.nbytes and not reader.read(1)
    except zstandard.ZstdError as error:
        message = f"{expected}, got data that Zstandard cannot read: {error}"
        raise ProtocolError(message) from error
    if not is_whole:
        message = f"{expected}, got data of another size"
        raise ProtocolError(message)
    return frame
