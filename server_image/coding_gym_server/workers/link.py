"""The server's end of a channel, on the event loop."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar, cast

import msgspec

from coding_gym_server.workers.channel import HEADER
from coding_gym_server.workers.messages import FromProcess, WorkerExited

__all__ = ["Link", "LinkClosedError"]

_MAX_ANSWER_BYTES = 1 << 20
_READ_BYTES = 65_536

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(FromProcess)

_Message = TypeVar("_Message")


class LinkClosedError(ConnectionError):
    """The process at the other end is gone, or has sent something that is no message."""

    def __init__(self) -> None:
        super().__init__("one of its processes is gone")


class Link(Generic[_Message]):
    """Sends requests to one process and receives its messages.

    Args:
        connection: A connected stream socket; the link owns it from now on.
        on_message: Called with each message that no ``call`` waits for.
        on_closed: Called once, when the other end goes away; not after ``close``.
        max_bytes: The largest message to accept; the sender of a larger one is not listened to any more.
        decoder: Of the messages, where they are not ``FromProcess``.
        unasked: The type of messages that no call waits for.
    """

    def __init__(
        self,
        connection: socket.socket,
        *,
        on_message: Callable[[_Message], None] | None = None,
        on_closed: Callable[[], None] | None = None,
        max_bytes: int = _MAX_ANSWER_BYTES,
        decoder: msgspec.msgpack.Decoder[_Message] | None = None,
        unasked: type[msgspec.Struct] = WorkerExited,
    ) -> None:
        connection.setblocking(False)
        self._socket = connection
        self._loop = asyncio.get_running_loop()
        self._on_message = on_message
        self._on_closed = on_closed
        self._max_bytes = max_bytes
        self._decoder = decoder or cast("msgspec.msgpack.Decoder[_Message]", _decoder)
        self._unasked = unasked
        self._received = bytearray()
        self._unsent = bytearray()
        self._calls: deque[asyncio.Future[_Message]] = deque()
        self._loop.add_reader(connection.fileno(), self._read)

    def send(self, message: msgspec.Struct, descriptors: tuple[int, ...] = ()) -> None:
        """Send a message without waiting; what the socket does not take at once follows in the background.

        Raises:
            LinkClosedError: The link is closed.
        """
        if self._socket.fileno() < 0:
            raise LinkClosedError
        body = _encoder.encode(message)
        data = HEADER.pack(len(body)) + body
        if self._unsent:
            self._unsent += data
            return
        try:
            sent = socket.send_fds(self._socket, [data], descriptors) if descriptors else self._socket.send(data)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self._lose()
            raise LinkClosedError from error
        if sent < len(data):
            self._unsent += data[sent:]
            self._loop.add_writer(self._socket.fileno(), self._write)

    async def call(
        self, message: msgspec.Struct, descriptors: tuple[int, ...] = (), *, within: float | None = None
    ) -> _Message:
        """Send a request and wait for its answer.

        Args:
            message: The request.
            descriptors: What goes with it.
            within: How long to wait, in seconds; for ever if None.

        Raises:
            LinkClosedError: The other end went away first.
            TimeoutError: It took too long.
        """
        self.send(message, descriptors)
        answer = self.expect()
        if within is None:
            return await answer
        # Costs a fraction of asyncio.timeout.
        timer = self._loop.call_later(within, _give_up, answer)
        try:
            return await answer
        finally:
            timer.cancel()

    def expect(self) -> asyncio.Future[_Message]:
        """Return a future for the next message that no earlier call waits for."""
        answer: asyncio.Future[_Message] = self._loop.create_future()
        self._calls.append(answer)
        return answer

    def close(self) -> None:
        """Close this end; harmless when closed already."""
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket.fileno())
            self._loop.remove_writer(self._socket.fileno())
            self._socket.close()
        self._fail_calls()

    def _read(self) -> None:
        try:
            data = self._socket.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._lose()
            return
        self._received += data
        while len(self._received) >= HEADER.size:
            (size,) = HEADER.unpack_from(self._received)
            if size > self._max_bytes:
                self._lose()
                return
            if len(self._received) < HEADER.size + size:
                return
            body = bytes(self._received[HEADER.size : HEADER.size + size])
            del self._received[: HEADER.size + size]
            try:
                message = self._decoder.decode(body)
            except msgspec.MsgspecError:
                self._lose()
                return
            self._dispatch(message)

    def _dispatch(self, message: _Message) -> None:
        if self._calls and not isinstance(message, self._unasked):
            answer = self._calls.popleft()
            if not answer.done():
                answer.set_result(message)
        elif self._on_message is not None:
            self._on_message(message)

    def _write(self) -> None:
        try:
            sent = self._socket.send(self._unsent)
        except BlockingIOError:
            return
        except OSError:
            self._lose()
            return
        del self._unsent[:sent]
        if not self._unsent:
            self._loop.remove_writer(self._socket.fileno())

    def _lose(self) -> None:
        if self._socket.fileno() < 0:
            return
        self.close()
        if self._on_closed is not None:
            self._on_closed()

    def _fail_calls(self) -> None:
        while self._calls:
            answer = self._calls.popleft()
            if not answer.done():
                answer.set_exception(LinkClosedError())


def _give_up(answer: asyncio.Future[_Message]) -> None:
    if not answer.done():
        answer.set_exception(TimeoutError())
