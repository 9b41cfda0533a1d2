"""The blocking end of a channel, as the zygote, the roots and the workers hold it."""

from __future__ import annotations

import fcntl
import os
import socket
import struct

import msgspec

from coding_gym_server.workers.messages import FromProcess, ToProcess

__all__ = ["HEADER", "MAX_DESCRIPTORS", "Channel", "close_all"]

HEADER = struct.Struct("<I")
MAX_DESCRIPTORS = 3
_READ_BYTES = 65_536

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(ToProcess)


class Channel:
    """Receives requests, with any descriptors that came along, and sends answers.

    Args:
        connection: A connected stream socket; the channel owns it from now on.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._buffer = bytearray()

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def move_up(self, lowest: int) -> None:
        """Move the socket to a descriptor of at least ``lowest``."""
        moved = fcntl.fcntl(self._socket.fileno(), fcntl.F_DUPFD_CLOEXEC, lowest)
        self._socket.close()
        self._socket = socket.socket(fileno=moved)

    def receive(self) -> ToProcess:
        """Wait for the next request.

        Raises:
            EOFError: The other end is gone.
        """
        while (message := self._next()) is None:
            data = self._socket.recv(_READ_BYTES)
            if not data:
                raise EOFError
            self._buffer += data
        return message

    def receive_with_descriptors(self) -> tuple[ToProcess, list[int]]:
        """Wait for the next request and the descriptors that come with it.

        Raises:
            EOFError: The other end is gone.
        """
        descriptors: list[int] = []
        while (message := self._next()) is None:
            data, received, _, _ = socket.recv_fds(self._socket, _READ_BYTES, MAX_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC)
            if not data:
                raise EOFError
            self._buffer += data
            descriptors += received
        return message, descriptors

    def send(self, message: FromProcess) -> None:
        body = _encoder.encode(message)
        self._socket.sendall(HEADER.pack(len(body)) + body)

    def _next(self) -> ToProcess | None:
        if len(self._buffer) < HEADER.size:
            return None
        end = HEADER.size + HEADER.unpack_from(self._buffer)[0]
        if len(self._buffer) < end:
            return None
        message: ToProcess = _decoder.decode(memoryview(self._buffer)[HEADER.size : end])
        del self._buffer[:end]
        return message


def close_all(descriptors: list[int]) -> None:
    """Close descriptors that came with a request."""
    for descriptor in descriptors:
        os.close(descriptor)
