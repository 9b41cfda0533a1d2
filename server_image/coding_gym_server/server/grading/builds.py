"""``Builds``: keeps programs that were compiled, so that each source is compiled once for all its cases and submissions."""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple
from weakref import WeakValueDictionary

import msgspec

from coding_gym_server.languages import Language
from coding_gym_server.protocol.grading import FileContent
from coding_gym_server.server.grading.program_run import ProgramRun

__all__ = ["Build", "Builds", "build_key"]

_OVERHEAD_BYTES = 1 << 10

_encoder = msgspec.msgpack.Encoder(order="deterministic")


class Build(NamedTuple):
    """A compiled program.

    Attributes:
        product: What the compiler has made; empty if it has failed.
        run: How the compiler has run.
    """

    product: bytes
    run: ProgramRun


class Builds:
    """Cache of compiled programs, of which the least recently used are dropped. Concurrent requests for one share its making.

    No submission can write it: the compiler runs as submissions do, before anything of the program is executed, and what it has
    made is written into the empty directory of each run.

    Args:
        max_bytes: Maximum total size.
    """

    def __init__(self, *, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._builds: OrderedDict[bytes, Build] = OrderedDict()
        self._locks: WeakValueDictionary[bytes, asyncio.Lock] = WeakValueDictionary()

    async def get(self, key: bytes, make: Callable[[], Awaitable[Build]]) -> Build:
        """Return a compiled program; the first of several concurrent callers makes it. If that fails, the next one tries.

        Args:
            key: Its key; see ``build_key``.
            make: Compiles it.
        """
        lock = self._locks.setdefault(key, asyncio.Lock())
        async with lock:
            found = self.find(key)
            if found is None:
                found = await make()
                self.keep(key, found)
            return found

    def find(self, key: bytes) -> Build | None:
        """Return a program that has been compiled before; None if there is none."""
        if key not in self._builds:
            return None
        self._builds.move_to_end(key)
        return self._builds[key]

    def keep(self, key: bytes, build: Build) -> None:
        """Keep a program, unless a limit has ended its compiler, perhaps that of one request."""
        if build.run.exit_code < 0 or key in self._builds:
            return
        self._builds[key] = build
        self._bytes += _size(build)
        while self._bytes > self._max_bytes:
            _, dropped = self._builds.popitem(last=False)
            self._bytes -= _size(dropped)


def build_key(language: Language, files: Mapping[str, str | FileContent]) -> bytes:
    """Return the key of a program among those that are kept.

    Args:
        language: Its language.
        files: Its source code, and the files beside it.
    """
    return hashlib.sha256(_encoder.encode((language.compile, files))).digest()


def _size(build: Build) -> int:
    return len(build.product) + len(build.run.stdout) + len(build.run.stderr) + _OVERHEAD_BYTES
