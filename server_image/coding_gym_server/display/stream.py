"""Buffered, non-blocking socket streams for the X11 proxy."""

from __future__ import annotations

import fcntl
import selectors
import socket
import sys
import termios
import time
from collections.abc import Callable

__all__ = ["Stream", "unread_bytes"]

_READ_BYTES = 262_144
_MAX_BUFFERED = 1 << 20
"""Maximum number of unsent bytes; above it, no more data is read from the other side."""

_FLUSH_TIMEOUT = 0.5


class Stream:
    """Buffered, non-blocking socket.

    Args:
        selector: Selector to register the socket with.
        connection: The socket.
        on_ready: Called with the events when the socket is ready.
    """

    def __init__(self, selector: selectors.BaseSelector, connection: socket.socket, on_ready: Callable[[int], None]) -> None:
        self.socket = connection
        self._selector = selector
        self._on_ready = on_ready
        self._unsent = bytearray()
        self._events = 0
        connection.setblocking(False)

    @property
    def is_closed(self) -> bool:
        return self.socket.fileno() < 0

    @property
    def is_full(self) -> bool:
        return len(self._unsent) > _MAX_BUFFERED

    @property
    def has_unsent(self) -> bool:
        """Whether data waits for space in the socket's buffer."""
        return bool(self._unsent)

    def has_unread(self) -> bool:
        """Return whether the other end has not yet read all data sent to it."""
        return bool(self._unsent) or unread_bytes(self.socket) > 0

    def watch(self, *, reading: bool) -> None:
        """Watch for incoming data if ``reading``, and for buffer space while there is unsent data."""
        if self.is_closed:
            return
        if self._unsent:
            self._send()
        events = (selectors.EVENT_READ if reading else 0) | (selectors.EVENT_WRITE if self._unsent else 0)
        if events == self._events:
            return
        if not self._events:
            self._selector.register(self.socket, events, self._on_ready)
        elif events:
            self._selector.modify(self.socket, events, self._on_ready)
        else:
            self._selector.unregister(self.socket)
        self._events = events

    def read(self) -> bytes | None:
        """Return the available data, which may be empty; None at the end of the stream."""
        try:
            return self.socket.recv(_READ_BYTES) or None
        except BlockingIOError:
            return b""
        except OSError:
            return None

    def write(self, data: bytes) -> None:
        if data and not self.is_closed:
            self._unsent += data
            self._send()

    def flush(self) -> bool:
        """Send all data and wait until the other end has read it, for a limited time; return whether it has."""
        deadline = time.monotonic() + _FLUSH_TIMEOUT
        while not self.is_closed and self.has_unread():
            if time.monotonic() > deadline:
                return False
            self._send()
            time.sleep(0)
        return not self.is_closed

    def close(self) -> None:
        if not self.is_closed:
            if self._events:
                self._selector.unregister(self.socket)
            self.socket.close()

    def _send(self) -> None:
        try:
            while self._unsent:
                del self._unsent[: self.socket.send(self._unsent)]
        except BlockingIOError:
            pass
        except OSError:
            # The next read reports the lost connection.
            self._unsent.clear()


def unread_bytes(connection: socket.socket) -> int:
    """Return the amount of data that the other end has not yet read, in bytes of kernel memory (see unix(7), SIOCOUTQ)."""
    return int.from_bytes(fcntl.ioctl(connection, termios.TIOCOUTQ, bytes(4)), sys.byteorder)
