"""Non-blocking end of a channel, for the server's event loop."""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar, cast

import msgspec

from coding_gym_server.ipc.channel import HEADER, MAX_DESCRIPTORS, close_all
from coding_gym_server.ipc.messages import FromProcess, WorkerExited
from coding_gym_server.protocol.errors import DECODING_ERRORS

__all__ = ["AsyncChannel", "ChannelClosedError"]

_MAX_RESPONSE_BYTES = 1 << 20
_READ_BYTES = 65_536

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(FromProcess)

_Message = TypeVar("_Message")


class ChannelClosedError(ConnectionError):
    """The process at the other end exited, closed the channel or sent a malformed message.

    Args:
        detail: What is known of the reason; empty if nothing is.
    """

    def __init__(self, detail: str = "") -> None:
        message = "a process of the sandbox exited unexpectedly"
        super().__init__(f"{message}; {detail}" if detail else message)


class AsyncChannel(Generic[_Message]):
    """Send requests to one process and receive its messages.

    Args:
        connection: A connected stream socket. The channel takes ownership of it.
        on_message: Called with each message that is not the response to a ``call``.
        on_descriptors: Called with the descriptors of each message that passes any, before the message is handled. If None,
            which untrusted processes require, the kernel discards them.
        on_closed: Called once when the other end disconnects; not called after ``close``.
        max_bytes: Maximum size of a message in bytes. A larger message closes the channel.
        decoder: Decoder of the messages. Defaults to one for ``FromProcess``.
        unsolicited: Message types that are never the response to a call.
        is_trusted: Whether the other end reads what it is sent. From one that is not trusted, nothing is read while it does
            not: it could ask for more and more answers.
    """

    def __init__(
        self,
        connection: socket.socket,
        *,
        on_message: Callable[[_Message], None] | None = None,
        on_descriptors: Callable[[list[int]], None] | None = None,
        on_closed: Callable[[], None] | None = None,
        max_bytes: int = _MAX_RESPONSE_BYTES,
        decoder: msgspec.msgpack.Decoder[_Message] | None = None,
        unsolicited: type[msgspec.Struct] | tuple[type[msgspec.Struct], ...] = WorkerExited,
        is_trusted: bool = True,
    ) -> None:
        connection.setblocking(False)
        self._socket = connection
        self._loop = asyncio.get_running_loop()
        self._on_message = on_message
        self._on_descriptors = on_descriptors
        self._on_closed = on_closed
        self._max_bytes = max_bytes
        self._decoder = decoder or cast("msgspec.msgpack.Decoder[_Message]", _decoder)
        self._unsolicited = unsolicited
        self._is_trusted = is_trusted
        self._received = bytearray()
        self._unsent: deque[tuple[memoryview, tuple[int, ...]]] = deque()
        self._calls: deque[asyncio.Future[_Message]] = deque()
        self._loop.add_reader(connection.fileno(), self._read)

    def send(self, message: msgspec.Struct, descriptors: tuple[int, ...] = ()) -> None:
        """Send a message without blocking; data that exceeds the socket's buffer is sent in the background.

        Raises:
            ChannelClosedError: If the channel is closed.
        """
        if self._socket.fileno() < 0:
            raise ChannelClosedError
        body = _encoder.encode(message)
        data = HEADER.pack(len(body)) + body
        if self._unsent:
            self._unsent.append((memoryview(data), tuple(map(os.dup, descriptors))))
            return
        try:
            sent = socket.send_fds(self._socket, [data], descriptors) if descriptors else self._socket.send(data)
        except BlockingIOError:
            self._send_later(memoryview(data), tuple(map(os.dup, descriptors)))
            return
        except OSError as error:
            self._disconnect()
            raise ChannelClosedError from error
        if sent < len(data):
            self._send_later(memoryview(data)[sent:], ())

    async def call(
        self, message: msgspec.Struct, descriptors: tuple[int, ...] = (), *, timeout: float | None = None
    ) -> _Message:
        """Send a request and wait for its response.

        Args:
            message: The request.
            descriptors: File descriptors to pass along with the request.
            timeout: Timeout in seconds; None waits indefinitely.

        Raises:
            ChannelClosedError: If the channel is closed before the response arrives.
            TimeoutError: If no response arrives in time.
        """
        self.send(message, descriptors)
        response = self.expect()
        if timeout is None:
            return await response
        # A plain timer costs a fraction of asyncio.timeout.
        timer = self._loop.call_later(timeout, _expire, response)
        try:
            return await response
        finally:
            timer.cancel()

    def expect(self) -> asyncio.Future[_Message]:
        """Return a future for the response after those that earlier calls wait for."""
        response: asyncio.Future[_Message] = self._loop.create_future()
        self._calls.append(response)
        return response

    def close(self) -> None:
        """Close this end. Idempotent."""
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket.fileno())
            self._loop.remove_writer(self._socket.fileno())
            self._socket.close()
        while self._unsent:
            _, descriptors = self._unsent.popleft()
            close_all(descriptors)
        self._fail_calls()

    def _read(self) -> None:
        try:
            data = self._receive()
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._disconnect()
            return
        self._received += data
        while len(self._received) >= HEADER.size:
            (size,) = HEADER.unpack_from(self._received)
            if size > self._max_bytes:
                self._disconnect()
                return
            if len(self._received) < HEADER.size + size:
                return
            body = bytes(memoryview(self._received)[HEADER.size : HEADER.size + size])
            del self._received[: HEADER.size + size]
            try:
                message = self._decoder.decode(body)
            except DECODING_ERRORS:
                self._disconnect()
                return
            self._dispatch(message)

    def _receive(self) -> bytes:
        if self._on_descriptors is None:
            return self._socket.recv(_READ_BYTES)
        data, descriptors, _, _ = socket.recv_fds(self._socket, _READ_BYTES, MAX_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC)
        if descriptors:
            self._on_descriptors(descriptors)
        return data

    def _dispatch(self, message: _Message) -> None:
        if self._calls and not isinstance(message, self._unsolicited):
            response = self._calls.popleft()
            if not response.done():
                response.set_result(message)
        elif self._on_message is not None:
            self._on_message(message)

    def _send_later(self, data: memoryview, descriptors: tuple[int, ...]) -> None:
        self._unsent.append((data, descriptors))
        self._loop.add_writer(self._socket.fileno(), self._write)
        if not self._is_trusted:
            self._loop.remove_reader(self._socket.fileno())

    def _write(self) -> None:
        while self._unsent:
            data, descriptors = self._unsent[0]
            try:
                sent = socket.send_fds(self._socket, [data], descriptors) if descriptors else self._socket.send(data)
            except BlockingIOError:
                return
            except OSError:
                self._disconnect()
                return
            self._unsent.popleft()
            close_all(descriptors)
            if sent < len(data):
                self._unsent.appendleft((data[sent:], ()))
                return
        self._loop.remove_writer(self._socket.fileno())
        self._loop.add_reader(self._socket.fileno(), self._read)

    def _disconnect(self) -> None:
        if self._socket.fileno() < 0:
            return
        self.close()
        if self._on_closed is not None:
            self._on_closed()

    def _fail_calls(self) -> None:
        while self._calls:
            response = self._calls.popleft()
            if not response.done():
                response.set_exception(ChannelClosedError())


def _expire(response: asyncio.Future[_Message]) -> None:
    if not response.done():
        response.set_exception(TimeoutError())
