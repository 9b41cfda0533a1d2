"""Details of episodes that differ between identical runs, kept apart from the episodes: times, and verdicts with each test.

They are in ``details.jsonl``, one line per episode. Tests are hidden from agents, so nothing is exported from this file.
"""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Self

import msgspec

from coding_gym.datasets.dataset_files import DETAILS_FILE
from coding_gym_server.protocol.errors import DECODING_ERRORS

__all__ = [
    "ARRAY_CODE",
    "COMPRESSION_LEVEL",
    "DetailsLog",
    "EpisodeDetails",
    "PackedArray",
    "StepDetails",
    "read_details",
]


class StepDetails(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Details of a step.

    Attributes:
        seconds: Wall-clock time of ``step``, or of ``reset`` for the first step, in seconds.
        policy_seconds: Wall-clock time that the policy took to choose the action, in seconds.
        verdict: The fields of the ``Verdict`` on the step, with the result of each test; None if it was not graded.
    """

    seconds: float = 0.0
    policy_seconds: float = 0.0
    verdict: Any = None


class EpisodeDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Details of an episode.

    Attributes:
        episode: Index of the episode.
        started: Time of its reset in UTC, in ISO 8601 format.
        steps: Details of the reset and of each step.
    """

    episode: int
    started: str
    steps: tuple[StepDetails, ...]


class DetailsLog:
    """Thread-safe writer of the details of a dataset.

    Args:
        directory: Directory of the dataset.
    """

    def __init__(self, directory: Path) -> None:
        self._lock = threading.Lock()
        path = directory / DETAILS_FILE
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        size = os.fstat(self._file).st_size
        if size and os.pread(self._file, 1, size - 1) != b"\n":
            # A line that a killed process left incomplete.
            os.write(self._file, b"\n")

    def append(self, details: EpisodeDetails) -> None:
        """Append the details of an episode; the last line of an episode counts."""
        line = memoryview(msgspec.json.encode(details) + b"\n")
        with self._lock:
            while line:
                line = line[os.write(self._file, line) :]

    def close(self) -> None:
        """Close the file. Idempotent."""
        with self._lock:
            if self._file >= 0:
                os.close(self._file)
                self._file = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_details(directory: Path) -> Iterator[EpisodeDetails]:
    """Iterate over the details of the episodes in a directory, in the order in which they ended. Damaged lines are skipped."""
    decoder = msgspec.json.Decoder(EpisodeDetails)
    try:
        file = (directory / DETAILS_FILE).open("rb")
    except FileNotFoundError:
        return
    with file:
        for line in file:
            try:
                yield decoder.decode(line)
            except DECODING_ERRORS:
                continue


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
