"""``PackedArray``: an array as episodes contain it, compressed; read without NumPy."""

from __future__ import annotations

import struct
from typing import NamedTuple, Self

__all__ = ["ARRAY_CODE", "COMPRESSION_LEVEL", "PackedArray"]

ARRAY_CODE = 1
"""MessagePack extension type code of arrays."""

COMPRESSION_LEVEL = 1
_HEAD = struct.Struct("<BB")


class PackedArray(NamedTuple):
    """Array with its type and its compressed items.

    Attributes:
        dtype: NumPy's type string, such as ``|u1``.
        shape: The shape.
        data: The items in C order, compressed with Zstandard.
    """

    dtype: str
    shape: tuple[int, ...]
    data: bytes

    @classmethod
    def pack(cls, dtype: str, shape: tuple[int, ...], items: bytes | memoryview) -> Self:
        """Compress the items of an array, in C order."""
        import zstandard

        return cls(dtype, shape, zstandard.ZstdCompressor(COMPRESSION_LEVEL).compress(items))

    @classmethod
    def parse(cls, code: int, data: memoryview) -> Self:
        """Return the array in a MessagePack extension.

        Raises:
            ValueError: If the extension is not an array.
        """
        if code != ARRAY_CODE:
            message = f"Expected the extension {ARRAY_CODE}, got {code}"
            raise ValueError(message)
        try:
            length, dimensions = _HEAD.unpack_from(data)
            at = _HEAD.size + length
            dtype = bytes(data[_HEAD.size : at]).decode()
            shape = struct.unpack_from(f"<{dimensions}I", data, at)
        except struct.error as error:
            message = f"Expected an array, got an extension of {len(data)} bytes that ends too early"
            raise ValueError(message) from error
        return cls(dtype, shape, bytes(data[at + 4 * dimensions :]))

    def encode(self) -> bytes:
        """Return the content of the MessagePack extension."""
        kind = self.dtype.encode()
        dimensions = len(self.shape)
        return _HEAD.pack(len(kind), dimensions) + kind + struct.pack(f"<{dimensions}I", *self.shape) + self.data

    def items(self) -> bytes:
        """Return the items, in C order.

        Raises:
            ValueError: If they are damaged.
        """
        import zstandard

        try:
            return zstandard.ZstdDecompressor().decompress(self.data)
        except (zstandard.ZstdError, MemoryError) as error:
            message = f"Expected the items of an array: {error or 'they claim to be larger than the memory'}"
            raise ValueError(message) from error
