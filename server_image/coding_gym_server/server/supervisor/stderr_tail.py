"""``StderrTail``: what the processes of a sandbox print when they fail, for the log and for errors."""

from __future__ import annotations

import asyncio
import contextlib
import os

__all__ = ["StderrTail"]

_MAX_BYTES = 2000


class StderrTail:
    """Passes what processes print to the stderr of this one, and keeps the end of it.

    Attributes:
        descriptor: The stderr of the processes.
    """

    def __init__(self) -> None:
        self._reader, self.descriptor = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._reader, False)
        self._kept = b""

    def attach(self) -> None:
        """Begin to read, in the running event loop. Until then, the pipe holds what was printed."""
        asyncio.get_running_loop().add_reader(self._reader, self._read)

    def last_lines(self) -> str:
        """Return what was printed last, at most 2,000 bytes of whole lines."""
        self._read()
        lines = self._kept.decode(errors="replace").strip()
        return lines if len(self._kept) < _MAX_BYTES else lines.partition("\n")[2]

    def close(self) -> None:
        """Stop reading. Idempotent."""
        if self._reader >= 0:
            with contextlib.suppress(RuntimeError):
                asyncio.get_running_loop().remove_reader(self._reader)
            os.close(self._reader)
            os.close(self.descriptor)
            self._reader = self.descriptor = -1

    def _read(self) -> None:
        # Nothing is there yet, or it has been closed.
        with contextlib.suppress(OSError):
            while found := os.read(self._reader, 65_536):
                self._kept = (self._kept + found)[-_MAX_BYTES:]
                with contextlib.suppress(OSError):
                    os.write(2, found)
