"""Heap layout of the zygote that makes its forks cheap.

A fork copies a page table entry per page, an exit frees it, and the first write to a page after a fork copies the page.
Pages should therefore be few and huge, which requires contiguous objects; and a child that only reads an object should not
write to its page, not even to update the reference count.

``reserve`` and ``make_immortal`` rely on CPython internals. They are tuned for the interpreter of the image and have no effect
in any other; see ``is_tuned``.
"""

from __future__ import annotations

import ctypes
import gc
import mmap
import os
import sys
import types

__all__ = ["collapse", "freeze", "is_tuned", "make_immortal", "reserve"]

_TUNED_CACHE_TAG = "cpython-313"
_TUNED_MACHINES = {"x86_64", "aarch64"}

_HUGE_PAGE_BYTES = 2 << 20
_MADV_COLLAPSE = 25

# CPython's allocator groups objects of at most 512 bytes into pools by size; see Objects/obmalloc.c.
_MAX_BLOCK_BYTES = 512
_ARENA_BYTES = 1 << 20
_BYTES_OVERHEAD = b"".__sizeof__()

_MAX_GAPS = 64
"""Upper bound on the address space gaps between the libraries of an interpreter."""

_pinned_blocks: list[object] = []

_libc = ctypes.CDLL(None)
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def is_tuned() -> bool:
    """Return whether the interpreter is that of the image: CPython 3.13, default build, on x86-64 or AArch64 Linux."""
    return (
        sys.implementation.cache_tag == _TUNED_CACHE_TAG
        # "d" marks a debug build, "t" a free-threaded one; both have another object layout.
        and sys.abiflags == ""
        and sys.platform == "linux"
        and os.uname().machine in _TUNED_MACHINES
    )


def reserve(size: int) -> None:
    """Make Python allocate memory for small objects from the kernel in one contiguous region.

    Allocated during imports, the memory would be scattered between the loaded libraries. Has no effect unless ``is_tuned``.

    Args:
        size: Number of bytes to reserve.
    """
    if not is_tuned():
        return
    # The kernel fills the gaps between libraries first, so fill them.
    fillers = [mmap.mmap(-1, _ARENA_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) for _ in range(_MAX_GAPS)]
    # A growing list would be reallocated and leave gaps.
    blocks: list[object] = [None] * (size // _MAX_BLOCK_BYTES)
    for number in range(len(blocks)):
        blocks[number] = bytes(_MAX_BLOCK_BYTES - _BYTES_OVERHEAD)
    for filler in fillers:
        filler.close()
    # A live block per half arena keeps the arenas from being freed.
    _pinned_blocks.extend(blocks[:: _ARENA_BYTES // _MAX_BLOCK_BYTES // 2])


def freeze() -> None:
    """Exclude existing objects from garbage collection, and collapse their memory into huge pages."""
    gc.collect()
    gc.freeze()
    gc.enable()
    collapse()


def collapse() -> None:
    """Collapse this process's anonymous memory into huge pages where its alignment permits.

    Only a hint: kernels without MADV_COLLAPSE (before Linux 6.1) or without free huge pages ignore it.
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


def make_immortal() -> None:
    """Make all existing objects immortal (PEP 683), so that their reference counts are no longer updated.

    The interpreter has no function for this, so each object gets the reference count of None. Has no effect unless
    ``is_tuned``.
    """
    if not is_tuned():
        return
    tracked = gc.get_objects()
    others = gc.get_referents(*tracked)
    # The garbage collector does not track the constants of code objects.
    code = [referent for referent in others if type(referent) is types.CodeType]
    while code:
        constants = [constant for one in code for constant in one.co_consts]
        others += constants
        code = [constant for constant in constants if type(constant) is types.CodeType]
    count = ctypes.c_uint32.from_address
    immortal = count(id(None)).value
    for address in {*map(id, tracked), *map(id, others)}:
        count(address).value = immortal
