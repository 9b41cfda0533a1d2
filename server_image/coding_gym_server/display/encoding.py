"""Encodings of pictures: compressed pixels for coding_gym's client, base64-encoded PNG for text protocols."""

from __future__ import annotations

import base64
import functools
import io
from typing import TYPE_CHECKING

import zstandard

from coding_gym_server.protocol import Pixels

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["black_picture", "compress", "png", "png_bytes"]

_LEVEL = 1


def compress(image: Image.Image) -> Pixels:
    """Return an RGB image as compressed pixels."""
    return _compress(image.width, image.height, image.tobytes())


@functools.lru_cache(maxsize=8)
def black_picture(width: int, height: int) -> Pixels:
    """Return a black picture."""
    return _compress(width, height, bytes(3 * width * height))


def png(pixels: Pixels) -> str:
    """Return a picture as a base64-encoded PNG."""
    return base64.b64encode(png_bytes(pixels)).decode()


def png_bytes(pixels: Pixels) -> bytes:
    """Return a picture as the content of a PNG file."""
    # Imported here because most servers have no pictures to convert.
    from PIL import Image

    data = zstandard.ZstdDecompressor().decompress(pixels.rgb)
    image = Image.frombytes("RGB", (pixels.width, pixels.height), data)
    file = io.BytesIO()
    image.save(file, "PNG", compress_level=1)
    return file.getvalue()


def _compress(width: int, height: int, rgb: bytes) -> Pixels:
    return Pixels(width, height, zstandard.ZstdCompressor(level=_LEVEL).compress(rgb))
