"""Blocking end of a channel, for the zygote, the session roots and the workers."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import socket
import struct
from array import array
from collections.abc import Collection, Iterable, Iterator
from typing import Generic, TypeVar, cast

import msgspec

from coding_gym_server.ipc.messages import ToProcess

__all__ = ["HEADER", "MAX_DESCRIPTORS", "Channel", "close_all", "close_others"]

HEADER = struct.Struct("<I")
MAX_DESCRIPTORS = 8
_READ_BYTES = 65_536
_FIRST = 3
_NUMBER_BYTES = array("i").itemsize
_CONTROL_BYTES = socket.CMSG_SPACE(MAX_DESCRIPTORS * _NUMBER_BYTES)

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(ToProcess)

_Request = TypeVar("_Request")


class Channel(Generic[_Request]):
    """Receive requests along with passed file descriptors, and send responses.

    Args:
        connection: A connected stream socket. The channel takes ownership of it.
        decoder: Decoder of the requests. Defaults to one for ``ToProcess``.
        max_bytes: Maximum size of a message, which ends the channel like its other end does; none for a trusted one.
    """

    def __init__(
        self,
        connection: socket.socket,
        decoder: msgspec.msgpack.Decoder[_Request] | None = None,
        *,
        max_bytes: int | None = None,
    ) -> None:
        self._socket = connection
        self._decoder = decoder or cast("msgspec.msgpack.Decoder[_Request]", _decoder)
        self._max_bytes = max_bytes
        self._buffer = bytearray()
        self._descriptors: list[int] = []

    def fileno(self) -> int:
        """Return the socket's descriptor, for polling."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close the socket, and descriptors that have been received beside messages."""
        self._socket.close()
        close_all(self._descriptors)
        self._descriptors.clear()

    def move_up(self, lowest: int) -> None:
        """Move the socket to a descriptor number of at least ``lowest``."""
        moved = fcntl.fcntl(self._socket.fileno(), fcntl.F_DUPFD_CLOEXEC, lowest)
        self._socket.close()
        self._socket = socket.socket(fileno=moved)

    def receive(self) -> _Request:
        """Wait for the next request.

        Raises:
            EOFError: If the other end is closed.
        """
        while (message := self._next()) is None:
            data = self._socket.recv(_READ_BYTES)
            if not data:
                raise EOFError
            self._buffer += data
        return message

    def has_request(self, timeout: float) -> bool:
        """Wait up to ``timeout`` seconds and return whether a request, or the end of the channel, can be received."""
        if self._end_of_message() is not None:
            return True
        return bool(select.select([self._socket], [], [], timeout)[0])

    def requests(self) -> Iterator[tuple[_Request, list[int]]]:
        """Wait for the next request and yield it with its descriptors, then all requests that are already buffered.

        Buffered requests must be consumed here: polling the socket does not report them.

        Raises:
            EOFError: If the other end is closed.
        """
        yield self.receive_with_descriptors()
        while self._end_of_message() is not None:
            yield self.receive_with_descriptors()

    def receive_with_descriptors(self) -> tuple[_Request, list[int]]:
        """Wait for the next request; return it with its descriptors.

        Raises:
            EOFError: If the other end is closed.
        """
        while (message := self._next()) is None:
            # Not recv_fds, which ignores flags: programs that are executed later would have the descriptors.
            data, controls, _, _ = self._socket.recvmsg(_READ_BYTES, _CONTROL_BYTES, socket.MSG_CMSG_CLOEXEC)
            if not data:
                raise EOFError
            self._buffer += data
            for _, _, content in controls:
                self._descriptors += array("i", content[: len(content) // _NUMBER_BYTES * _NUMBER_BYTES])
        count = getattr(message, "DESCRIPTORS", 0)
        descriptors, self._descriptors = self._descriptors[:count], self._descriptors[count:]
        return message, descriptors

    def send(self, message: msgspec.Struct, descriptors: tuple[int, ...] = ()) -> None:
        """Send a message; blocks while the socket's buffer is full.

        Args:
            message: The message.
            descriptors: File descriptors to pass along with it.
        """
        body = _encoder.encode(message)
        data = HEADER.pack(len(body)) + body
        sent = socket.send_fds(self._socket, [data], descriptors) if descriptors else 0
        self._socket.sendall(memoryview(data)[sent:])

    def _next(self) -> _Request | None:
        end = self._end_of_message()
        if end is None:
            return None
        message: _Request = self._decoder.decode(memoryview(self._buffer)[HEADER.size : end])
        del self._buffer[:end]
        return message

    def _end_of_message(self) -> int | None:
        if len(self._buffer) < HEADER.size:
            return None
        end: int = HEADER.size + HEADER.unpack_from(self._buffer)[0]
        if self._max_bytes is not None and end > self._max_bytes:
            raise EOFError
        return end if len(self._buffer) >= end else None


def close_others(kept: Collection[int]) -> None:
    """Close all descriptors but the standard streams and some, in a forked child: what its parent has open is not for it."""
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        if descriptor >= _FIRST and descriptor not in kept:
            # The last one was that of the directory.
            with contextlib.suppress(OSError):
                os.close(descriptor)


def close_all(descriptors: Iterable[int]) -> None:
    """Close descriptors that were passed with a request."""
    for descriptor in descriptors:
        os.close(descriptor)
