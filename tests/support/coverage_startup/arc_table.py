"""Table of executed arcs in shared memory.

A sandbox process has no writable file and no spare descriptor, and it is usually killed. A mapping created before confinement
remains usable, also in forks, and its contents outlive the process.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import zlib
from collections.abc import Iterator
from pathlib import Path

__all__ = ["PATH", "ROOT", "ArcTable", "product_files"]

ROOT = Path(__file__).resolve().parents[3]
PATH = ROOT / ".coverage_arcs"

_PRODUCT = ("coding_gym", "envs_registry", "server_image/coding_gym_server")

_SLOT_BITS = 18
_SLOTS = 1 << _SLOT_BITS
_BYTES = _SLOTS * 8

# A key is a file's checksum and two line numbers, which are negative for the entry and the exit of a code object.
_LINE_BITS = 16
_LINE_OFFSET = 1 << (_LINE_BITS - 1)
_LINE_MASK = (1 << _LINE_BITS) - 1
_HASH_FACTOR = 0x9E3779B97F4A7C15
_HASH_SHIFT = 64 - _SLOT_BITS

Arc = tuple[int, int]


class ArcTable:
    """Hash table with open addressing, shared by all processes that map it.

    There is no lock. Of two processes that fill one empty slot in the same instant, one loses its arc; as most arcs are
    executed by many processes, that hardly ever matters.

    Args:
        descriptor: The open file; may be closed afterwards.
    """

    def __init__(self, descriptor: int) -> None:
        address = _map(descriptor)
        self._slots = memoryview((ctypes.c_uint64 * _SLOTS).from_address(address)).cast("B").cast("Q")

    @staticmethod
    def create() -> None:
        """Create an empty file."""
        with PATH.open("wb") as file:
            file.truncate(_BYTES)

    @classmethod
    def open(cls) -> tuple[ArcTable, int]:
        """Return the table and a descriptor to pass on to child processes."""
        descriptor = os.open(PATH, os.O_RDWR | os.O_CLOEXEC)
        return cls(descriptor), descriptor

    def add(self, checksum: int, arc: Arc) -> None:
        """Store that an arc was executed."""
        first, second = (line + _LINE_OFFSET for line in arc)
        key = checksum << 2 * _LINE_BITS | first << _LINE_BITS | second
        slots = self._slots
        position = (key * _HASH_FACTOR & (1 << 64) - 1) >> _HASH_SHIFT
        while slots[position] not in (0, key):
            position = (position + 1) % _SLOTS
        slots[position] = key

    def arcs(self) -> Iterator[tuple[int, Arc]]:
        """Yield all arcs, each with the checksum of its file."""
        for key in filter(None, self._slots):
            yield key >> 2 * _LINE_BITS, ((key >> _LINE_BITS & _LINE_MASK) - _LINE_OFFSET, (key & _LINE_MASK) - _LINE_OFFSET)


def product_files() -> dict[str, int]:
    """Return the measured files, by absolute path, and their checksums."""
    paths = [path for package in _PRODUCT for path in (ROOT / package).rglob("*.py")]
    checksums = {str(path): zlib.crc32(str(path.relative_to(ROOT)).encode()) for path in paths}
    assert len(set(checksums.values())) == len(checksums), "two files have one checksum: rename one"
    return checksums


def _map(descriptor: int) -> int:
    # mmap.mmap would keep a duplicate of the descriptor, which user code could write to.
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    address: int = libc.mmap(None, _BYTES, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, descriptor, 0)
    if address == ctypes.c_void_p(-1).value:
        number = ctypes.get_errno()
        raise OSError(number, f"mmap: {os.strerror(number)}")
    return address
