"""Cache of the index of a large dataset that is complete, so that it is read once."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from array import array
from pathlib import Path
from typing import Any

import msgspec
import zstandard

from coding_gym import __version__
from coding_gym.cache import cache_directory
from coding_gym.datasets.dataset_files import DETAILS_FILE, EPISODES_FILE
from coding_gym_server.protocol.errors import DECODING_ERRORS

__all__ = ["CachedIndex", "load_index", "save_index"]

_LAYOUT = 1
_COMPRESSION_LEVEL = 1


class CachedIndex(msgspec.Struct, kw_only=True):
    """Index of a dataset.

    Attributes:
        key: State of the files that were read, see ``_key``.
        columns: Columns of the summaries: name, type code and items.
        outcomes: Outcomes, to which a column refers by position.
        tasks: Tasks, likewise.
        details: Episode, offset and length in bytes of each line of details.
        ends: Number of bytes of the episodes and of the details that were read.
        inode: Inode of the episodes.
    """

    key: list[Any]
    columns: list[tuple[str, str, bytes]]
    outcomes: list[str]
    tasks: list[str]
    details: bytes
    ends: tuple[int, int]
    inode: int

    def arrays(self) -> dict[str, array[Any]]:
        """Return the columns by name."""
        found = {}
        for name, code, items in self.columns:
            found[name] = array(code)
            found[name].frombytes(items)
        return found


def load_index(dataset: Path) -> CachedIndex | None:
    """Return the cached index of a dataset; None if there is none for its current files."""
    try:
        data = zstandard.ZstdDecompressor().decompress(_path(dataset).read_bytes())
        cached = msgspec.msgpack.decode(data, type=CachedIndex)
        return cached if cached.key == _key(dataset) else None
    except (OSError, *DECODING_ERRORS, zstandard.ZstdError, ValueError):
        return None


def save_index(dataset: Path, **fields: Any) -> None:
    """Save the index of a dataset, if the disk permits. The fields are those of ``CachedIndex`` but ``key``."""
    with contextlib.suppress(OSError):
        path = _path(dataset)
        path.parent.mkdir(parents=True, exist_ok=True)
        encoded = msgspec.msgpack.encode(CachedIndex(key=_key(dataset), **fields))
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(zstandard.ZstdCompressor(_COMPRESSION_LEVEL).compress(encoded))
        os.replace(file.name, path)


def _path(dataset: Path) -> Path:
    cache = cache_directory() / "view"
    return cache / hashlib.sha256(os.fsencode(dataset.resolve())).hexdigest()[:32]


def _key(dataset: Path) -> list[Any]:
    """Return what changes when the files of a dataset change, or the version that reads them."""
    key: list[Any] = [_LAYOUT, __version__]
    for name in (EPISODES_FILE, DETAILS_FILE):
        try:
            status = (dataset / name).stat()
        except FileNotFoundError:
            key.append(None)
        else:
            key.append([status.st_size, status.st_mtime_ns, status.st_ino])
    return key
