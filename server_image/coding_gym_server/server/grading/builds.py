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

__all__ = ["Build", "Builds"]

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

    async def get(
        self, language: Language, files: Mapping[str, str | FileContent], make: Callable[[], Awaitable[Build]]
    ) -> Build:
        """Return a compiled program; the first of several concurrent callers makes it. If that fails, the next one tries.

        Args:
            language: Its language.
            files: Its source code, and the files beside it.
            make: Compiles it.
        """
        key = hashlib.sha256(_encoder.encode((language.compile, files))).digest()
        lock = self._locks.setdefault(key, asyncio.Lock())
        async with lock:
            if key in self._builds:
                self._builds.move_to_end(key)
                return self._builds[key]
            build = await make()
            if build.run.exit_code < 0:
                # A limit has ended the compiler, perhaps that of one request.
                return build
            self._builds[key] = build
            self._bytes += _size(build)
            while self._bytes > self._max_bytes:
                _, dropped = self._builds.popitem(last=False)
                self._bytes -= _size(dropped)
            return build


def _size(build: Build) -> int:
    return len(build.product) + len(build.run.stdout) + len(build.run.stderr) + _OVERHEAD_BYTES
