"""Black screens, which nearly all screens are: made without touching their memory, recognised without looking at it."""

from __future__ import annotations

import functools
import mmap

import numpy as np
from numpy.typing import NDArray

__all__ = ["black_frames", "is_shared_black", "shared_black"]


def black_frames(count: int, height: int, width: int) -> NDArray[np.uint8]:
    """Return fresh black frames: uint8, shape (count, height, width, 3).

    The kernel's zero pages back them until somebody writes or reads: ``np.zeros`` clears memory that was used before.
    """
    memory = mmap.mmap(-1, count * height * width * 3, flags=mmap.MAP_PRIVATE)
    frames: NDArray[np.uint8] = np.ndarray((count, height, width, 3), np.uint8, memory)
    return frames


@functools.cache
def shared_black(height: int, width: int) -> NDArray[np.uint8]:
    """Return the one black frame of this size, uint8, shape (height, width, 3), read-only."""
    frame: NDArray[np.uint8] = black_frames(1, height, width)[0]
    frame.flags.writeable = False
    return frame


def is_shared_black(frame: NDArray[np.uint8]) -> bool:
    """Say whether ``frame`` is what ``shared_black`` returns."""
    return frame is shared_black(*frame.shape[:2])
