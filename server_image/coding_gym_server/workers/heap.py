"""The zygote's heap, laid out so that forks of it are cheap.

A fork copies an entry for each page, an exit drops it again, and the first write to a page after a fork copies the page. So
pages are to be few and huge, which wants objects to lie side by side; and a fork that only uses an object is not to write to
it, not even to count the references to it.
"""

from __future__ import annotations

import ctypes
import gc
import mmap
import sys
import types

__all__ = ["collapse", "immortalize", "reserve"]

_HUGE_PAGE_BYTES = 2 << 20
_MADV_COLLAPSE = 25

# CPython's allocator has objects of one size, of at most half a kilobyte, in one pool; see Objects/obmalloc.c.
_MAX_BLOCK_BYTES = 512
_ARENA_BYTES = 1 << 20
_BYTES_OVERHEAD = b"".__sizeof__()

_MOST_GAPS = 64
"""More than there are between the libraries of an interpreter."""

_keepers: list[object] = []

_libc = ctypes.CDLL(None)
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def reserve(size: int) -> None:
    """Have Python take its next ``size`` bytes for small objects from the kernel at once, in one piece.

    Taken while modules are imported, they would be scattered among the libraries that are loaded.
    """
    # The kernel fills the gaps between libraries first.
    plugs = [mmap.mmap(-1, _ARENA_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) for _ in range(_MOST_GAPS)]
    # A list that grew would move, and leave gaps itself.
    blocks: list[object] = [None] * (size // _MAX_BLOCK_BYTES)
    for number in range(len(blocks)):
        blocks[number] = bytes(_MAX_BLOCK_BYTES - _BYTES_OVERHEAD)
    for plug in plugs:
        plug.close()
    # So that no part of it is given back.
    _keepers.extend(blocks[:: _ARENA_BYTES // _MAX_BLOCK_BYTES // 2])


def collapse() -> None:
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


def immortalize() -> None:
    """Make all objects that there are immortal (PEP 683): from now on nobody counts the references to them.

    The interpreter does so for None and the like only, and offers it to nobody; so each gets the count that None has. Does
    nothing where None has one that counts (before CPython 3.12), or where it is not kept in one place (without the GIL).
    """
    if sys.version_info < (3, 12) or not getattr(sys, "_is_gil_enabled", lambda: True)():
        return
    tracked = gc.get_objects()
    others = gc.get_referents(*tracked)
    # The garbage collector knows nothing of what code refers to.
    code = [thing for thing in others if type(thing) is types.CodeType]
    while code:
        constants = [constant for one in code for constant in one.co_consts]
        others += constants
        code = [constant for constant in constants if type(constant) is types.CodeType]
    count = ctypes.c_uint32.from_address
    immortal = count(id(None)).value
    for address in {*map(id, tracked), *map(id, others)}:
        count(address).value = immortal
