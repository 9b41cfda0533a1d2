"""The end of a child as something to poll for."""

from __future__ import annotations

import contextlib
import os
import signal

__all__ = ["ChildExits"]


class ChildExits:
    """A descriptor that becomes readable when a child of the calling, single-threaded process ends."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)

    def fileno(self) -> int:
        return self._read

    def clear(self) -> None:
        """Make it wait for the next end."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._read, 4096)

    def close(self) -> None:
        """Undo it all: for a fork, which has children of its own."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.close(self._read)
        os.close(self._write)
