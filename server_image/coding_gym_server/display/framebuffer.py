"""What a screen shows, read from the file that Xvfb keeps it in (``-fbdir``), in the format of ``xwd`` (XWDFile.h)."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from coding_gym_server.display.pictures import compress
from coding_gym_server.protocol import Pixels, Rectangle

__all__ = ["Framebuffer", "Snapshot"]

_HEADER = struct.Struct(">25I")
_COLOR_BYTES = 12
_PIXEL_BYTES = 4
_COPY_ATTEMPTS = 5

Snapshot = NDArray[np.uint32]
"""A copy of the screen: blue, green, red and a byte of nothing for each pixel."""


class Framebuffer:
    """A screen of 24-bit colours, mapped into memory.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        header = _HEADER.unpack_from(self._map)
        size, self.width, self.height, self._stride, colors = header[0], header[4], header[5], header[12], header[19]
        count = self._stride // _PIXEL_BYTES * self.height
        self._live: Snapshot = np.frombuffer(self._map, np.uint32, count, size + colors * _COLOR_BYTES)
        self._last = self._live.copy()
        self._sent: tuple[Snapshot, Pixels] | None = None

    def has_changed(self) -> bool:
        """Say whether the screen differs from what it was at the last call."""
        if np.array_equal(self._live, self._last):
            return False
        self._last = self._live.copy()
        return True

    def is_blank(self) -> bool:
        """Say whether the screen is black."""
        return not self._live.any()

    def snapshot(self) -> Snapshot:
        """Return a copy of the screen, not torn unless it changes all the time."""
        copy = self._live.copy()
        for _ in range(_COPY_ATTEMPTS):
            if np.array_equal(self._live, copy):
                break
            copy = self._live.copy()
        return copy

    def picture(self, snapshot: Snapshot, region: Rectangle | None = None) -> Pixels:
        """Return a copy, or a part of it, as it is sent; what lies outside of the screen is black.

        Args:
            snapshot: The copy.
            region: The part; all if None.
        """
        if region is not None:
            corners = (region.x, region.y, region.x + region.width, region.y + region.height)
            return compress(self._image(snapshot).crop(corners))
        if self._sent is None or not np.array_equal(self._sent[0], snapshot):
            self._sent = snapshot, compress(self._image(snapshot))
        return self._sent[1]

    def _image(self, snapshot: Snapshot) -> Image.Image:
        return Image.frombuffer("RGB", (self.width, self.height), snapshot.tobytes(), "raw", "BGRX", self._stride, 1)
