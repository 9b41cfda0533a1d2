"""``CompiledPrograms``: keeps compiled programs, because trainers send the same one once per test case."""

from __future__ import annotations

import hashlib
from collections import OrderedDict

__all__ = ["CompiledPrograms"]


class CompiledPrograms:
    """Cache of compiled programs, of which the least recently used are dropped.

    A program is compiled in the process of a submission, before that executes any of it or of its files, and is loaded by such
    processes only.

    Args:
        max_bytes: Maximum total size.
    """

    def __init__(self, *, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._codes: OrderedDict[bytes, bytes] = OrderedDict()

    def get(self, source: str, file: str) -> bytes | None:
        """Return the compiled program, None if there is none.

        Args:
            source: The source code.
            file: Name of its file, which tracebacks show.
        """
        key = _key(source, file)
        if key in self._codes:
            self._codes.move_to_end(key)
        return self._codes.get(key)

    def put(self, source: str, file: str, code: bytes) -> None:
        """Keep a compiled program; one that was kept before remains.

        Args:
            source: The source code.
            file: Name of its file, which tracebacks show.
            code: The compiled program.
        """
        key = _key(source, file)
        if key in self._codes or len(code) > self._max_bytes:
            return
        self._codes[key] = code
        self._bytes += len(code)
        while self._bytes > self._max_bytes:
            _, dropped = self._codes.popitem(last=False)
            self._bytes -= len(dropped)


def _key(source: str, file: str) -> bytes:
    return hashlib.sha256(f"{file}\0{source}".encode("utf-8", "surrogatepass")).digest()
