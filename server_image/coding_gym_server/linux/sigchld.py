"""Pollable notification of child process exits."""

from __future__ import annotations

import contextlib
import os
import signal

__all__ = ["ChildExits"]


class ChildExits:
    """Descriptor that becomes readable when a child of the calling, single-threaded process exits."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)

    def fileno(self) -> int:
        """Return the descriptor, for polling."""
        return self._read

    def clear(self) -> None:
        """Reset the descriptor until the next exit."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._read, 4096)

    def renew(self) -> None:
        """Report the exits of the calling process's own children, in a forked child."""
        os.close(self._read)
        os.close(self._write)
        self._read, self._write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)

    def close(self) -> None:
        """Restore the default signal handling and close the descriptors, in a forked child."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        if self._write == self._read + 1:
            # With one system call, because every worker does it.
            os.closerange(self._read, self._write + 1)
        else:
            os.close(self._read)
            os.close(self._write)
