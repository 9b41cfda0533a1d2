"""Framebuffer of Xvfb, a memory-mapped file (``-fbdir``) in the ``xwd`` format (XWDFile.h)."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from coding_gym_server.display.encoding import compress
from coding_gym_server.protocol import Pixels, Rectangle

__all__ = ["Framebuffer", "Snapshot"]

_HEADER = struct.Struct(">25I")
_COLOR_BYTES = 12
_PIXEL_BYTES = 4
_COPY_ATTEMPTS = 5

Snapshot = NDArray[np.uint32]
"""Copy of the screen: blue, green, red and a padding byte for each pixel."""


class Framebuffer:
    """Memory-mapped framebuffer with a color depth of 24 bits.

    Args:
        path: Framebuffer file of Xvfb.
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
        """Return whether the screen has changed since the last call."""
        if np.array_equal(self._live, self._last):
            return False
        self._last = self._live.copy()
        return True

    def is_blank(self) -> bool:
        """Return whether the screen is entirely black."""
        return not self._live.any()

    def snapshot(self) -> Snapshot:
        """Return a copy of the screen, without tearing unless the screen changes continuously."""
        copy = self._live.copy()
        for _ in range(_COPY_ATTEMPTS):
            if np.array_equal(self._live, copy):
                break
            copy = self._live.copy()
        return copy

    def picture(self, snapshot: Snapshot, region: Rectangle | None = None) -> Pixels:
        """Return a snapshot or a region of it as compressed pixels; areas outside of the screen are black.

        Args:
            snapshot: Copy of the screen.
            region: Region to return, None for the whole screen.
        """
        if region is not None:
            corners = (region.x, region.y, region.x + region.width, region.y + region.height)
            return compress(self._image(snapshot).crop(corners))
        if self._sent is None or not np.array_equal(self._sent[0], snapshot):
            self._sent = snapshot, compress(self._image(snapshot))
        return self._sent[1]

    def _image(self, snapshot: Snapshot) -> Image.Image:
        return Image.frombuffer("RGB", (self.width, self.height), snapshot.tobytes(), "raw", "BGRX", self._stride, 1)
