"""Encodings of pictures: compressed pixels for coding_gym's client, base64-encoded PNG for text protocols."""

from __future__ import annotations

import base64
import functools
import io

import zstandard
from PIL import Image

from coding_gym_server.protocol import Pixels

__all__ = ["black_picture", "compress", "png"]

_LEVEL = 1


def compress(image: Image.Image) -> Pixels:
    """Return an RGB image as compressed pixels."""
    return Pixels(image.width, image.height, zstandard.ZstdCompressor(level=_LEVEL).compress(image.tobytes()))


@functools.lru_cache(maxsize=8)
def black_picture(width: int, height: int) -> Pixels:
    """Return a black picture."""
    return compress(Image.new("RGB", (width, height)))


def png(pixels: Pixels) -> str:
    """Return a picture as a base64-encoded PNG."""
    data = zstandard.ZstdDecompressor().decompress(pixels.rgb)
    image = Image.frombytes("RGB", (pixels.width, pixels.height), data)
    file = io.BytesIO()
    image.save(file, "PNG", compress_level=1)
    return base64.b64encode(file.getvalue()).decode()
