"""What a worker holds that is not memory, and whether a copy of it would be faithful."""

from __future__ import annotations

import contextlib
import fcntl
import gc
import os
import signal
import stat
import struct
import sys
import threading
from collections.abc import Collection
from typing import Any, NamedTuple

__all__ = ["Held", "OpenFile", "remember_inherited", "take_census"]

_ADDRESS = struct.Struct("=9Q4I2Q")
# ioctl PROCMAP_QUERY of <linux/fs.h>, since Linux 6.11: the next mapping of a kind, without reading hundreds of lines.
_PROCMAP_QUERY = 3 << 30 | _ADDRESS.size << 16 | 0x66 << 8 | 17
_NEXT_SHARED = 0x18
_SQLITE_HEADER = b"SQLite format 3\0"
_TIMERS = {signal.ITIMER_REAL: "real", signal.ITIMER_VIRTUAL: "virtual", signal.ITIMER_PROF: "profiling"}

_inherited_descriptors: frozenset[str] = frozenset()
_inherited_mappings: frozenset[tuple[int, int]] = frozenset()


class OpenFile(NamedTuple):
    """Open file or directory.

    Attributes:
        descriptor: Its descriptor.
        path: Its path.
        flags: The flags that it was opened with.
        offset: Its position in bytes.
        identity: Device and inode.
    """

    descriptor: int
    path: str
    flags: int
    offset: int
    identity: tuple[int, int]


class Held(NamedTuple):
    """What a worker holds that is not memory.

    Attributes:
        reasons: Why a copy would not be faithful, empty if it would be.
        outputs: Number of the standard stream, 1 or 2, of each descriptor that refers to its pipe.
        files: Files and directories that can be opened again.
        directory: The working directory.
        loops: Idle event loops of asyncio.
    """

    reasons: list[str]
    outputs: dict[int, int]
    files: list[OpenFile]
    directory: str
    loops: list[Any]


def remember_inherited() -> None:
    """Record what the calling process, the zygote, has open: each worker inherits it, and none changes it."""
    global _inherited_descriptors, _inherited_mappings
    _inherited_mappings = frozenset(_shared_mappings())
    _inherited_descriptors = frozenset(_descriptors().values())


def take_census(own: Collection[int], writable: Collection[str]) -> Held:
    """Return what the calling process holds.

    Args:
        own: Descriptors of the worker itself.
        writable: Directories whose files are copied along, so that files open for writing can be opened again.
    """
    reasons = [*_threads(), *_children(), *_timers()]
    if mappings := _shared_mappings() - _inherited_mappings:
        reasons.append(f"{len(mappings)} shared memory mappings")
    descriptors = _descriptors()
    loops = _idle_loops() if "anon_inode:[eventpoll]" in descriptors.values() else {}
    streams = {os.readlink(f"/proc/self/fd/{number}"): number for number in (1, 2)}
    held = Held(reasons, {}, [], os.getcwd(), list({id(loop): loop for loop in loops.values()}.values()))
    for number, target in descriptors.items():
        if number in own or number in loops or target in _inherited_descriptors or target.startswith("/dev/"):
            continue
        if target in streams and target.startswith("pipe:"):
            held.outputs[number] = streams[target]
        elif target.startswith("/"):
            _add_file(held, number, target, writable)
        else:
            kind = target.partition(":")[0] if not target.startswith("anon_inode:") else target.partition(":")[2]
            reasons.append(f"descriptor {number}, a {kind}")
    return held


def _threads() -> list[str]:
    count = len(os.listdir("/proc/self/task")) - 1
    if not count:
        return []
    names = sorted(thread.name for thread in threading.enumerate() if thread is not threading.main_thread())
    return [f"{count} running threads ({', '.join(names) or 'not of Python'})"]


def _children() -> list[str]:
    with open(f"/proc/self/task/{os.getpid()}/children", "rb") as file:
        children = file.read().split()
    if not children:
        return []
    with contextlib.suppress(ChildProcessError):
        if os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            return [f"{len(children)} child processes, of which at least one has ended and was not waited for"]
    return [f"{len(children)} child processes"]


def _timers() -> list[str]:
    found = [f"a {name} interval timer" for timer, name in _TIMERS.items() if signal.getitimer(timer)[0]]
    with contextlib.suppress(OSError), open("/proc/self/timers", "rb") as file:
        if file.read(1):
            found.append("a POSIX timer")
    return found


def _add_file(held: Held, number: int, path: str, writable: Collection[str]) -> None:
    status = os.fstat(number)
    flags = fcntl.fcntl(number, fcntl.F_GETFL)
    is_file = stat.S_ISREG(status.st_mode)
    if path.endswith(" (deleted)"):
        held.reasons.append(f"the deleted file {path.removesuffix(' (deleted)')}, which is open (descriptor {number})")
    elif not is_file and not stat.S_ISDIR(status.st_mode):
        held.reasons.append(f"{path} (descriptor {number})")
    elif flags & os.O_ACCMODE and not any(path.startswith(f"{directory}/") for directory in writable):
        held.reasons.append(f"{path}, open for writing (descriptor {number})")
    elif is_file and flags & os.O_ACCMODE and _is_database(number):
        held.reasons.append(f"the SQLite database {path}, which is open (descriptor {number})")
    else:
        offset = os.lseek(number, 0, os.SEEK_CUR) if is_file else 0
        held.files.append(OpenFile(number, path, flags, offset, (status.st_dev, status.st_ino)))


def _is_database(number: int) -> bool:
    """Return whether a file that is open for reading and writing is a database of SQLite, which notices a new inode."""
    try:
        return os.pread(number, len(_SQLITE_HEADER), 0) == _SQLITE_HEADER
    except OSError:
        # Open for writing only, which SQLite never does.
        return False


def _descriptors() -> dict[int, str]:
    found = {}
    for name in os.listdir("/proc/self/fd"):
        # The descriptor of the listing itself is closed again.
        with contextlib.suppress(OSError):
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
    return found


def _shared_mappings() -> set[tuple[int, int]]:
    """Return the address ranges of memory that a fork shares instead of copying it."""
    with open("/proc/self/maps", "rb", buffering=0) as maps:
        try:
            return set(_query_shared(maps.fileno()))
        except OSError:
            # A kernel without the ioctl.
            lines = maps.readall().splitlines()
    shared = [line.split(b" ", 2)[0].split(b"-") for line in lines if line.split(b" ", 2)[1][3:4] == b"s"]
    return {(int(begin, 16), int(end, 16)) for begin, end in shared}


def _query_shared(maps: int) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    query = bytearray(_ADDRESS.size)
    address = 0
    while True:
        _ADDRESS.pack_into(query, 0, _ADDRESS.size, _NEXT_SHARED, address, *[0] * 12)
        try:
            fcntl.ioctl(maps, _PROCMAP_QUERY, query)
        except FileNotFoundError:
            return found
        begin, address = _ADDRESS.unpack(query)[3:5]
        found.append((begin, address))


def _idle_loops() -> dict[int, Any]:
    """Return the event loops of asyncio that do not run and watch nothing, by their descriptors."""
    events: Any = sys.modules.get("asyncio.selector_events")
    found: dict[int, Any] = {}
    if events is None:
        return found
    for loop in gc.get_objects():
        if not issubclass(type(loop), events.BaseSelectorEventLoop) or loop.is_closed() or loop.is_running():
            continue
        if len(loop._selector.get_map()) == 1:
            found |= dict.fromkeys((loop._selector.fileno(), loop._ssock.fileno(), loop._csock.fileno()), loop)
    return found
