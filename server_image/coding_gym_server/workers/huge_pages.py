"""Huge pages for the zygote's heap: a fork copies an entry for each page, so fewer pages make faster forks and exits."""

from __future__ import annotations

import ctypes

__all__ = ["collapse_heap"]

_HUGE_PAGE_BYTES = 2 << 20
_MADV_COLLAPSE = 25

_libc = ctypes.CDLL(None)
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def collapse_heap() -> None:
    """Gather this process's anonymous memory into huge pages where it is aligned well enough.

    A hint and no more: a kernel without MADV_COLLAPSE (before Linux 6.1) or without free huge pages leaves all as it was.
    """
    with open("/proc/self/maps") as maps:
        regions = [line.split() for line in maps]
    for addresses, permissions, *_, inode, path in (region if len(region) > 5 else [*region, ""] for region in regions):
        if permissions == "rw-p" and inode == "0" and path in ("", "[heap]"):
            start, end = (int(address, 16) for address in addresses.split("-"))
            first = -(-start // _HUGE_PAGE_BYTES) * _HUGE_PAGE_BYTES
            last = end // _HUGE_PAGE_BYTES * _HUGE_PAGE_BYTES
            if first < last:
                _libc.madvise(first, last - first, _MADV_COLLAPSE)
