"""Byte streams of doors, in an event loop of their own: connections of a session, and those to targets."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import ssl
import struct
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol, TypeVar

from websockets.client import ClientProtocol
from websockets.exceptions import WebSocketException
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.uri import parse_uri

from coding_gym.client.address import Address
from coding_gym.client.connection import MAX_MESSAGE_BYTES
from coding_gym.errors import TransportError
from coding_gym_server.protocol.doors import FRAME_HEADER, NUMBER, WINDOW_BYTES, FrameKind

__all__ = ["ByteStream", "DoorLink", "DoorStream", "SocketStream", "call_in_loop", "relay"]

_OPEN_SECONDS = 10.0
_READ_BYTES = 256 * 1024

_T = TypeVar("_T")
_log = logging.getLogger(__name__)


class ByteStream(Protocol):
    """A bidirectional stream of bytes, each of whose directions ends separately."""

    @property
    def has_ended(self) -> bool:
        """Whether the other side sends no more, or is gone."""

    async def read(self) -> bytes:
        """Return the next bytes, empty at the end.

        Raises:
            ConnectionError: If the stream is broken.
        """

    async def write(self, data: bytes) -> None:
        """Send bytes; wait while the other side reads too few.

        Raises:
            ConnectionError: If the stream is broken.
        """

    async def write_eof(self) -> None:
        """Send the end."""

    def abort(self) -> None:
        """End both directions at once. Idempotent."""


async def relay(first: ByteStream, second: ByteStream) -> None:
    """Pass on bytes between two streams until both directions have ended, or one of the streams is broken."""

    async def pass_on(source: ByteStream, sink: ByteStream) -> None:
        while data := await source.read():
            await sink.write(data)
        await sink.write_eof()

    directions = [asyncio.ensure_future(pass_on(first, second)), asyncio.ensure_future(pass_on(second, first))]
    try:
        await asyncio.gather(*directions)
    except OSError:
        first.abort()
        second.abort()
    finally:
        for direction in directions:
            direction.cancel()


class SocketStream:
    """Stream of a socket.

    Args:
        reader: Its reader.
        writer: Its writer.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, host: str, port: int, **options: Any) -> SocketStream:
        """Connect to an address.

        Args:
            host: Name or address of the host.
            port: The port.
            options: Arguments of ``asyncio.open_connection``.

        Raises:
            OSError: If it cannot be reached in time.
        """
        async with asyncio.timeout(_OPEN_SECONDS):
            return cls(*await asyncio.open_connection(host, port, limit=_READ_BYTES, **options))

    @property
    def has_ended(self) -> bool:
        """See ``ByteStream.has_ended``."""
        return self._reader.at_eof() or self._writer.is_closing()

    async def read(self) -> bytes:
        """See ``ByteStream.read``."""
        return await self._reader.read(_READ_BYTES)

    async def write(self, data: bytes) -> None:
        """See ``ByteStream.write``."""
        self._writer.write(data)
        await self._writer.drain()

    async def write_eof(self) -> None:
        """See ``ByteStream.write_eof``."""
        with contextlib.suppress(OSError, RuntimeError):
            if self._writer.can_write_eof():
                self._writer.write_eof()

    def abort(self) -> None:
        """See ``ByteStream.abort``."""
        self._writer.transport.abort()


class DoorStream:
    """Connection of a program of the session.

    Args:
        link: What it belongs to.
        number: Its number.

    Attributes:
        on_end: Called once the program sends no more, or is gone; None if nobody wants to know.
    """

    def __init__(self, link: DoorLink, number: int) -> None:
        self.on_end: Callable[[], None] | None = None
        self._link = link
        self._number = number
        self._received: deque[bytes] = deque()
        self._unconfirmed = 0
        self._credit = WINDOW_BYTES
        self._changed = asyncio.Event()
        self._has_end = self._has_sent_end = self._is_broken = False

    async def read(self) -> bytes:
        """See ``ByteStream.read``."""
        while not self._received:
            if self._is_broken:
                raise ConnectionResetError
            if self._has_end:
                return b""
            await self._wait()
        # Of a broken stream, what has arrived can still be read.
        data = self._received.popleft()
        self._unconfirmed += len(data)
        if self._unconfirmed >= WINDOW_BYTES // 4 and not self._is_broken:
            confirmed, self._unconfirmed = self._unconfirmed, 0
            self._link.write(FrameKind.WINDOW, self._number, NUMBER.pack(confirmed))
        return data

    async def write(self, data: bytes) -> None:
        """See ``ByteStream.write``."""
        view = memoryview(data)
        while view:
            while self._credit <= 0 and not self._is_broken:
                await self._wait()
            if self._is_broken:
                raise ConnectionResetError
            part, view = view[:_READ_BYTES], view[_READ_BYTES:]
            self._credit -= len(part)
            self._link.write(FrameKind.DATA, self._number, part)
            await self._link.drain()

    async def write_eof(self) -> None:
        """See ``ByteStream.write_eof``."""
        if not (self._has_sent_end or self._is_broken):
            self._has_sent_end = True
            self._link.write(FrameKind.END, self._number)

    def abort(self) -> None:
        """See ``ByteStream.abort``."""
        if not (self._is_broken or (self._has_end and self._has_sent_end)):
            self.lose()
            self._link.write(FrameKind.RESET, self._number)

    @property
    def has_ended(self) -> bool:
        """See ``ByteStream.has_ended``."""
        return self._has_end

    def receive(self, kind: FrameKind, content: bytes) -> None:
        """Handle a frame of the server."""
        match kind:
            case FrameKind.DATA:
                self._received.append(content)
            case FrameKind.END:
                self._end()
            case FrameKind.WINDOW:
                self._credit += NUMBER.unpack(content)[0]
            case _:
                self.lose()
        self._changed.set()

    def lose(self) -> None:
        """Break the stream."""
        self._is_broken = True
        self._end()
        self._changed.set()

    def _end(self) -> None:
        self._has_end = True
        if self.on_end is not None:
            self.on_end()

    async def _wait(self) -> None:
        self._changed.clear()
        await self._changed.wait()


class DoorLink(asyncio.Protocol):
    """Connection to a server through which the connections of one session to its doors arrive.

    The protocol is the ``websockets`` package's, without its I/O, as in ``coding_gym.client.connection``.

    Args:
        address: Address of the server.
        session_id: Id of the session.
        serve: Serves a connection, given the port of its door and its stream, which is aborted when it returns.

    Raises:
        TransportError: If the server does not accept it.
    """

    def __init__(self, address: Address, session_id: str, serve: Callable[[int, DoorStream], Awaitable[None]]) -> None:
        self._address = address
        self._serve = serve
        self._streams: dict[int, DoorStream] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        url = address.url.replace("http", "ws", 1) + f"/sessions/{session_id}/doors"
        self._protocol = ClientProtocol(parse_uri(url), max_size=MAX_MESSAGE_BYTES)
        self._transport: asyncio.Transport
        self._loop: asyncio.AbstractEventLoop
        self._accepted: asyncio.Future[None]
        self._writable = asyncio.Event()
        self._writable.set()
        self.is_lost = False
        call_in_loop(self._open())

    def close(self) -> None:
        """End the connection, and those through it. Idempotent."""
        # The owner may be collected in any thread, also while the interpreter ends.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._transport.abort)

    async def _open(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._accepted = self._loop.create_future()
        try:
            async with asyncio.timeout(_OPEN_SECONDS):
                if self._address.socket_path is not None:
                    await self._loop.create_unix_connection(lambda: self, self._address.socket_path)
                else:
                    context = ssl.create_default_context() if self._address.is_encrypted else None
                    await self._loop.create_connection(lambda: self, *self._address.host_and_port, ssl=context)
                await self._accepted
        except (OSError, WebSocketException) as error:
            if hasattr(self, "_transport"):
                self._transport.abort()
            message = f"{self._address} does not accept the connections of doors: {error or type(error).__name__}"
            raise TransportError(message) from error

    # Transport

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport
        request = self._protocol.connect()
        request.headers.update(self._address.headers)
        self._protocol.send_request(request)
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        self._writable.set()
        if not self._accepted.done():
            self._accepted.set_exception(exc or ConnectionResetError("it ended the connection"))
        for stream in self._streams.values():
            stream.lose()
        for task in self._tasks:
            task.cancel()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        self._protocol.receive_data(data)
        for event in self._protocol.events_received():
            if isinstance(event, Frame):
                self._on_frame(event)
        if not self._accepted.done():
            if self._protocol.handshake_exc is not None:
                self._accepted.set_exception(self._protocol.handshake_exc)
            elif self._protocol.state is State.OPEN:
                self._accepted.set_result(None)
        self._flush()
        if self._protocol.state in (State.CLOSING, State.CLOSED) and self._accepted.done():
            self._transport.abort()

    def _flush(self) -> None:
        for data in self._protocol.data_to_send():
            if data:
                self._transport.write(data)

    # Connections

    def _on_frame(self, frame: Frame) -> None:
        if frame.opcode is not Opcode.BINARY:
            return
        data = frame.data
        try:
            kind, number = FRAME_HEADER.unpack_from(data)
            content = bytes(data[FRAME_HEADER.size :])
            if kind == FrameKind.OPEN:
                self._begin(number, NUMBER.unpack(content)[0])
            elif (stream := self._streams.get(number)) is not None:
                stream.receive(FrameKind(kind), content)
        except (ValueError, struct.error):
            _log.exception("%s sent a malformed frame", self._address)
            self._transport.abort()

    def _begin(self, number: int, port: int) -> None:
        stream = self._streams[number] = DoorStream(self, number)
        task = self._loop.create_task(self._run(number, port, stream))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, number: int, port: int, stream: DoorStream) -> None:
        try:
            await self._serve(port, stream)
        except OSError:
            # The program sees the end of its connection.
            pass
        except Exception:  # noqa: BLE001 - reported, and the other connections go on
            _log.exception("a connection to door %d failed", port)
        finally:
            stream.abort()
            del self._streams[number]

    def write(self, kind: FrameKind, number: int, content: bytes | memoryview = b"") -> None:
        """Send a frame; without effect if the connection has ended."""
        if not self.is_lost and self._protocol.state is State.OPEN:
            self._protocol.send_binary(b"".join([FRAME_HEADER.pack(kind, number), content]))
            self._flush()

    async def drain(self) -> None:
        """Wait until the server has read most of what was sent, or the connection has ended."""
        await self._writable.wait()


def call_in_loop(call: Coroutine[Any, Any, _T]) -> _T:
    """Return the result of a coroutine in the event loop of all doors of this process."""
    return asyncio.run_coroutine_threadsafe(call, _loop(os.getpid())).result()


@functools.cache
def _loop(_process: int) -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        loop = asyncio.new_event_loop()
    else:
        loop = uvloop.new_event_loop()
    threading.Thread(target=loop.run_forever, name="coding_gym_doors", daemon=True).start()
    return loop
