"""Memory mappings of files, which a copy of a process would share or see the changes of."""

from __future__ import annotations

import fcntl
import os
import re
import struct
from collections.abc import Collection

__all__ = ["describe_mappings", "remember_mappings"]

# struct procmap_query and the ioctl PROCMAP_QUERY of <linux/fs.h>, since Linux 6.11.
_QUERY = struct.Struct("=9Q4I2Q")
_PROCMAP_QUERY = 3 << 30 | _QUERY.size << 16 | ord("f") << 8 | 17
_NEXT_OF_FILE = 0x30

# User code may have replaced the builtin.
_open = open

# Ends of inherited areas without gaps by their beginnings, and inherited shared mappings.
_inherited: dict[int, int] = {}
_inherited_shared: frozenset[bytes] = frozenset()


def remember_mappings() -> None:
    """Record the mappings of the calling process, the zygote: each worker inherits them, and none changes them."""
    global _inherited, _inherited_shared
    mappings = _read()
    _inherited_shared = frozenset(_shared(mappings))
    _inherited = _areas_of_files(mappings)


def describe_mappings(writable: Collection[str]) -> list[str]:
    """Return the reasons why copies of the calling process's mappings would not be faithful.

    Args:
        writable: Directories whose files code of the session can change.
    """
    if not _has_new_files():
        return []
    mappings = _read()
    reasons = []
    if shared := _shared(mappings) - _inherited_shared:
        reasons.append(f"{len(shared)} shared memory mappings")
    # Private mappings show later changes of the file. Libraries do not change while they are loaded.
    directories = "|".join(re.escape(directory) for directory in writable)
    pattern = rf"^\S+ ..([x-])p \S+ \S+ \S+ +((?:{directories})/.*)$"
    files = re.findall(os.fsencode(pattern), mappings, re.MULTILINE)
    libraries = {path for is_executable, path in files if is_executable == b"x"}
    return reasons + [f"a memory mapping of {os.fsdecode(path)}" for path in sorted({path for _, path in files} - libraries)]


def _has_new_files() -> bool:
    """Return whether there may be mappings of files that were not inherited. Reading all mappings takes a millisecond."""
    query = bytearray(_QUERY.size)
    address = 0
    with _open("/proc/self/maps", "rb", buffering=0) as maps:
        while True:
            _QUERY.pack_into(query, 0, _QUERY.size, _NEXT_OF_FILE, address, *[0] * 12)
            try:
                fcntl.ioctl(maps, _PROCMAP_QUERY, query)
            except FileNotFoundError:
                return False
            except OSError:
                # A kernel without the ioctl.
                return True
            end = _inherited.get(_QUERY.unpack_from(query)[3])
            if end is None:
                return True
            address = end


def _read() -> bytes:
    with _open("/proc/self/maps", "rb", buffering=0) as maps:
        return maps.readall()


def _shared(mappings: bytes) -> set[bytes]:
    """Return the address ranges of memory that a fork shares instead of copying it."""
    return set(re.findall(rb"^(\S+) ...s ", mappings, re.MULTILINE))


def _areas_of_files(mappings: bytes) -> dict[int, int]:
    """Return the ends of areas without gaps that are mapped to files, by their beginnings."""
    areas: dict[int, int] = {}
    begin = end = 0
    for first, last, inode in re.findall(rb"^(\w+)-(\w+) \S+ \S+ \S+ (\d+)", mappings, re.MULTILINE):
        if inode == b"0":
            continue
        if int(first, 16) != end:
            begin = int(first, 16)
        end = int(last, 16)
        areas[begin] = end
    return areas
