"""WebSocket endpoint ``/ws/shared``: many sessions on one connection, each in its own channel."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Protocol

import msgspec

from coding_gym_server.ipc.channel import MALFORMED
from coding_gym_server.protocol import MAX_FRAME_BYTES, PROTOCOL_VERSION, PROTOCOL_VERSION_HEADER
from coding_gym_server.protocol.processes import SESSION_HEADER
from coding_gym_server.protocol.shared import MAX_CHANNELS, Packet, PacketKind, frames_of

__all__ = ["FRAME_WRITER", "FrameWriter", "SharedEndpoint"]

_Event = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Event]]
_Send = Callable[[_Event], Awaitable[None]]
_Application = Callable[[_Event, _Receive, _Send], Awaitable[None]]

_HOLD_SECONDS = 0.002
"""Maximum number of seconds for which an answer waits for those to the other messages of the same frame."""

_MAX_UNREAD_BYTES = 2 * MAX_FRAME_BYTES
"""Maximum number of bytes that a channel may receive before its session reads them; above it, the channel is closed."""

FRAME_WRITER = "coding_gym.frame_writer"
"""Name of the extension of the ASGI scope that has a ``FrameWriter``."""

_PACKET_OVERHEAD = 100
_NORMAL_CLOSURE = 1000
_POLICY_VIOLATION = 1008
_TOO_BIG = 1009
_INTERNAL_ERROR = 1011
_VERSION_HEADER = PROTOCOL_VERSION_HEADER.lower().encode(), str(PROTOCOL_VERSION).encode()
_SESSION_HEADER = SESSION_HEADER.lower().encode()

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[Packet])

_log = logging.getLogger(__name__)


class FrameWriter(Protocol):
    """Output of a WebSocket connection, without the turn of the event loop that ASGI's ``send`` may take."""

    def write_frame(self, content: bytes) -> None:
        """Send a binary frame at once; without effect if the connection is closed."""

    async def drain(self) -> None:
        """Wait until the client has read most of what was sent, or the connection is lost."""


class SharedEndpoint:
    """ASGI application that serves each channel of a connection by another application, as if it was its own connection.

    Args:
        sessions: The application for the channels.
    """

    def __init__(self, sessions: _Application) -> None:
        self._sessions = sessions

    async def __call__(self, scope: _Event, receive: _Receive, send: _Send) -> None:
        await receive()
        await send({"type": "websocket.accept", "headers": [_VERSION_HEADER]})
        code = await _Connection(self._sessions, scope, receive).run()
        if code is not None:
            await send({"type": "websocket.close", "code": code})


class _Batch:
    """The messages of one frame.

    Args:
        unanswered: Number of the messages without an answer.
    """

    __slots__ = ("unanswered",)

    def __init__(self, unanswered: int) -> None:
        self.unanswered = unanswered


class _Connection:
    """Distributes the packets of the client to channels, and collects theirs in frames.

    Args:
        sessions: The application for the channels.
        scope: The ASGI scope of the connection.
        receive: The ASGI receive callable of the connection.
    """

    def __init__(self, sessions: _Application, scope: _Event, receive: _Receive) -> None:
        self._sessions = sessions
        self._scope = scope
        self._receive = receive
        self._writer: FrameWriter = scope["extensions"][FRAME_WRITER]
        self.loop = asyncio.get_running_loop()
        self._channels: dict[int, _Channel] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._outbox: list[Packet] = []
        self._hold: asyncio.TimerHandle | None = None
        self.is_lost = False

    async def run(self) -> int | None:
        """Serve channels until the client disconnects, and all sessions have ended.

        Returns:
            The code to close the connection with, or None if it is already closed.
        """
        try:
            return await self._read()
        finally:
            self.is_lost = True
            if self._hold is not None:
                self._hold.cancel()
            for channel in self._channels.values():
                channel.disconnect()
            try:
                await asyncio.gather(*self._tasks, return_exceptions=True)
            finally:
                for task in self._tasks:
                    task.cancel()

    async def _read(self) -> int | None:
        while True:
            event = await self._receive()
            if event["type"] != "websocket.receive":
                return None
            try:
                packets = _decoder.decode(event["bytes"])
            except (KeyError, *MALFORMED):
                return _POLICY_VIOLATION
            batch = _Batch(len(packets))
            for packet in packets:
                if not self._dispatch(packet, batch):
                    return _POLICY_VIOLATION

    def _dispatch(self, packet: Packet, batch: _Batch) -> bool:
        """Pass a packet to its channel; return whether the connection may continue."""
        channel = self._channels.get(packet.channel)
        match packet.kind:
            case PacketKind.OPEN if channel is None and len(self._channels) < MAX_CHANNELS:
                channel = self._channels[packet.channel] = _Channel(packet.channel, self, batch)
                task = self.loop.create_task(self._serve(channel, packet.body))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            case PacketKind.MESSAGE | PacketKind.PART:
                # The server may have closed the channel at the same time.
                if channel is not None:
                    channel.accept(packet, batch)
            case PacketKind.CLOSE:
                if channel is not None:
                    channel.disconnect()
            case _:
                return False
        return True

    async def _serve(self, channel: _Channel, query: bytes) -> None:
        scope = {**self._scope, "query_string": query}
        try:
            await self._sessions(scope, channel.receive, channel.send)
        except _DisconnectedError:
            # The client does not wait for an answer.
            pass
        except Exception:  # noqa: BLE001 - an internal error of one session does not end the others
            _log.exception("a channel failed")
            channel.close(_INTERNAL_ERROR)
        finally:
            channel.close(_NORMAL_CLOSURE)
            del self._channels[channel.number]

    async def post(self, packet: Packet, batch: _Batch | None) -> None:
        """Send a packet, with others if more answers to the batch are due soon; wait while the client does not read.

        Raises:
            _DisconnectedError: If the client is gone.
        """
        self.post_soon(packet, batch)
        await self._writer.drain()
        if self.is_lost:
            raise _DisconnectedError

    def post_soon(self, packet: Packet, batch: _Batch | None) -> None:
        """Send a packet; see ``post``."""
        self._outbox.append(packet)
        if batch is not None:
            batch.unanswered -= 1
        if batch is None or batch.unanswered <= 0:
            self._flush()
        elif self._hold is None:
            self._hold = self.loop.call_later(_HOLD_SECONDS, self._flush)

    def _flush(self) -> None:
        if self._hold is not None:
            self._hold.cancel()
            self._hold = None
        packets, self._outbox = self._outbox, []
        for frame in frames_of(packets):
            self._writer.write_frame(_encoder.encode(frame))


class _DisconnectedError(ConnectionError):
    """The client has closed the connection."""


class _Channel:
    """One channel: its own connection for the application that serves it.

    Args:
        number: Its number.
        connection: The connection that it belongs to.
        batch: The messages of the frame that opened it.
    """

    def __init__(self, number: int, connection: _Connection, batch: _Batch) -> None:
        self.number = number
        self._connection = connection
        self._batch: _Batch | None = batch
        self._events: deque[_Event] = deque([{"type": "websocket.connect"}])
        self._unread_bytes = _PACKET_OVERHEAD
        self._parts = bytearray()
        self._waiter: asyncio.Future[None] | None = None
        self._is_disconnected = False
        self._is_closed = False

    def accept(self, packet: Packet, batch: _Batch) -> None:
        """Take a message, or a part of one, from the client."""
        if self._is_disconnected:
            return
        body = packet.body
        if self._parts or packet.kind is PacketKind.PART:
            self._parts += body
            if len(self._parts) > MAX_FRAME_BYTES:
                self._refuse(_TOO_BIG)
            if packet.kind is PacketKind.PART:
                return
            body = bytes(self._parts)
            self._parts.clear()
        self._unread_bytes += len(body) + _PACKET_OVERHEAD
        if self._unread_bytes > _MAX_UNREAD_BYTES:
            self._refuse(_POLICY_VIOLATION)
            return
        self._batch = batch
        self._events.append({"type": "websocket.receive", "bytes": body})
        self._wake()

    def disconnect(self) -> None:
        """Called when the client has closed the channel."""
        self._is_disconnected = True
        self._events.clear()
        self._wake()

    async def receive(self) -> _Event:
        """Return the next event, as the ASGI receive callable of a connection."""
        while not self._events:
            if self._is_disconnected:
                return {"type": "websocket.disconnect", "code": _NORMAL_CLOSURE}
            # A canceled call may still wait for its turn to end: it must not take this future away.
            waiter = self._waiter = self._connection.loop.create_future()
            await waiter
        event = self._events.popleft()
        self._unread_bytes -= len(event.get("bytes", b"")) + _PACKET_OVERHEAD
        return event

    async def send(self, event: _Event) -> None:
        """Send an event, as the ASGI send callable of a connection."""
        if self._is_disconnected or self._is_closed:
            raise _DisconnectedError
        match event["type"]:
            case "websocket.send":
                text = event.get("text")
                kind = PacketKind.MESSAGE if text is None else PacketKind.TEXT
                await self._post(kind, event["bytes"] if text is None else text.encode())
            case "websocket.accept":
                await self._post(PacketKind.OPEN, dict(event["headers"]).get(_SESSION_HEADER, b""))
            case "websocket.close":
                self.close(event["code"])

    def close(self, code: int) -> None:
        """Tell the client that the channel is closed. Idempotent."""
        if not self._is_closed:
            self._is_closed = True
            if not self._connection.is_lost:
                self._connection.post_soon(Packet(self.number, PacketKind.CLOSE, b"%d" % code), None)

    async def _post(self, kind: PacketKind, body: bytes) -> None:
        batch, self._batch = self._batch, None
        await self._connection.post(Packet(self.number, kind, body), batch)

    def _refuse(self, code: int) -> None:
        self.close(code)
        self._parts.clear()
        self.disconnect()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
