"""One connection for many sessions, each in its own channel; see ``coding_gym_server.protocol.shared``."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec

from coding_gym.client.address import Address
from coding_gym.client.connection import Connection, MessageDecoder
from coding_gym.errors import CodingGymError, ProtocolError, TransportError
from coding_gym_server.protocol import MAX_FRAME_BYTES
from coding_gym_server.protocol.shared import MAX_PART_BYTES, Packet, PacketKind, frames_of

__all__ = ["Channel", "SharedConnection"]

_LOOK_SECONDS = 1.0
"""Maximum number of seconds for which a thread reads before it looks whether its channel has been aborted."""

_MAX_UNREAD_PACKETS = 64
"""Maximum number of packets that a server may send to a channel ahead of its requests."""

_Message = TypeVar("_Message")

_encoder = msgspec.msgpack.Encoder()
_decoder: MessageDecoder[list[Packet]] = MessageDecoder(list[Packet])


class SharedConnection:
    """One connection to ``/ws/shared``, which ends with its last channel. Thread-safe.

    A thread that waits for a message reads those of all channels; the others sleep until theirs has arrived, or it is their
    turn to read.

    Args:
        address: Address of the server.
        timeout: Connection timeout in seconds.

    Raises:
        TransportError: If the server cannot be reached.
        ProtocolVersionError: If the server speaks another version.
        ProtocolError: If the endpoint does not accept the connection.
    """

    def __init__(self, address: Address, *, timeout: float) -> None:
        self._address = address
        self._connection = Connection(address, timeout=timeout, path="/shared")
        self._owner = os.getpid()
        self._numbers = itertools.count()
        # Reentrant: garbage collection closes channels at any point.
        self._lock = threading.RLock()
        self._channels: dict[int, Channel] = {}
        self._is_closed = False
        self._is_reading = False
        self._error: CodingGymError | None = None
        self._outbox: deque[Packet] = deque()
        self._sending = threading.Lock()
        self._batches = 0

    @property
    def is_open(self) -> bool:
        """Whether channels can be opened."""
        return not self._is_closed and self._error is None and self._is_own

    @property
    def is_lost(self) -> bool:
        """Whether the server or this side has ended the connection."""
        return self._is_closed or self._error is not None or self._connection.is_lost

    def open(self, *, timeout: float) -> Channel | None:
        """Open a channel; return None if the connection has been closed with its last channel.

        Raises:
            TransportError: If the server does not respond.
        """
        channel = Channel(self, next(self._numbers), self._lock)
        with self._lock:
            self._channels[channel.number] = channel
            if not self.is_open:
                return None
        try:
            self.send(Packet(channel.number, PacketKind.OPEN))
            channel.session_id = self.wait(channel, timeout).body.decode("ascii") or None
        except BaseException:
            channel.close()
            raise
        return channel

    @contextlib.contextmanager
    def batch(self) -> Iterator[None]:
        """Send what the threads send in the block together, at its end, or when one of them waits for a message."""
        with self._lock:
            self._batches += 1
        try:
            yield
        finally:
            with self._lock:
                self._batches -= 1
            self._flush()

    def send(self, *packets: Packet) -> None:
        """Send packets, in order. If the connection is broken, ``wait`` raises the error."""
        self._outbox.extend(packets)
        if not self._batches:
            self._flush()

    def wait(self, channel: Channel, timeout: float) -> Packet:
        """Wait for the next packet of a channel.

        Raises:
            TransportTimeoutError: If none arrives in time.
            TransportError: If the connection is broken, or the channel closed.
            ProtocolError: If the server breaks the protocol.
        """
        try:
            return channel.inbox.popleft()
        except IndexError:
            pass
        if not self._is_own:
            message = f"The connection to {self._address} belongs to the process that opened it. Make environments after a fork"
            raise TransportError(message)
        self._flush()
        deadline = time.monotonic() + timeout
        while (packet := self._take_or_read(channel, deadline)) is None:
            if time.monotonic() >= deadline:
                raise self._connection.late(timeout)
        return packet

    def _take_or_read(self, channel: Channel, deadline: float) -> Packet | None:
        """Return the next packet of a channel; without one, read, or sleep while another thread reads."""
        with self._lock:
            must_sleep = self._is_reading and not channel.is_ready
            try:
                if must_sleep:
                    channel.sleep(deadline - time.monotonic())
                if channel.inbox:
                    return channel.inbox.popleft()
                self._check(channel)
                if self._is_reading:
                    return None
                self._is_reading = True
            finally:
                # It may have been woken up to read.
                if must_sleep and not self._is_reading:
                    self._wake_next()
        try:
            self._read(channel, deadline)
        finally:
            with self._lock:
                self._is_reading = False
                self._wake_next()
        return None

    def close(self, channel: Channel) -> None:
        """Close a channel, and the connection with the last one."""
        if not self._is_own:
            return
        with self._lock:
            if self._channels.pop(channel.number, None) is None:
                return
            channel.inbox.clear()
            channel.closure = channel.closure or "it was closed"
            self._is_closed = self._is_closed or not self._channels
        if self._is_closed:
            self._connection.abort()
            self._connection.close()
        else:
            self._outbox.append(Packet(channel.number, PacketKind.CLOSE))
            self._flush()

    def abort(self, channel: Channel) -> None:
        """End a channel from another thread."""
        if not self._is_own:
            return
        with self._lock:
            channel.is_aborted = True
            channel.wake()
            is_last = all(other.is_aborted for other in self._channels.values())
        if is_last:
            self._connection.abort()
        else:
            # The response wakes up the thread that reads.
            self._outbox.append(Packet(channel.number, PacketKind.CLOSE))
            self._flush()

    @property
    def _is_own(self) -> bool:
        return os.getpid() == self._owner

    def _check(self, channel: Channel) -> None:
        """Raise if no more messages can arrive."""
        reason = channel.closure or ("closed by another thread" if channel.is_aborted or self._is_closed else None)
        if reason is not None:
            message = f"The connection to {self._address} broke: {reason}"
            raise TransportError(message)
        if self._error is not None:
            # A copy: each thread adds its own traceback.
            raise type(self._error)(str(self._error)) from self._error

    def _read(self, channel: Channel, deadline: float) -> None:
        """Read for all channels until a channel is ready, or the time is up."""
        while not channel.is_ready:
            timeout = min(_LOOK_SECONDS, deadline - time.monotonic())
            if timeout <= 0:
                return
            try:
                data = self._connection.read(timeout)
                if data is None:
                    continue
                with self._sending:
                    messages = self._connection.feed(data)
                for content, is_text in messages:
                    self._deliver(_decoder.decode(content, is_text=is_text))
            except (TransportError, ProtocolError) as error:
                with self._lock:
                    self._error = error
                    for other in self._channels.values():
                        other.wake()
                return
            # What another thread, or garbage collection, has left to the one that held the lock.
            self._flush()

    def _deliver(self, packets: list[Packet]) -> None:
        with self._lock:
            for packet in packets:
                channel = self._channels.get(packet.channel)
                if channel is None:
                    # It was closed before.
                    continue
                if packet.kind is PacketKind.CLOSE:
                    channel.closure = f"closed by the server ({packet.body.decode(errors='replace')})"
                else:
                    channel.inbox.append(packet)
                    if len(channel.inbox) > _MAX_UNREAD_PACKETS:
                        message = f"{self._address} sent more answers than there were requests"
                        raise ProtocolError(message)
                channel.wake()

    def _wake_next(self) -> None:
        """Let another thread read."""
        for channel in self._channels.values():
            if channel.is_sleeping:
                channel.wake()
                return

    def _flush(self) -> None:
        """Send the outbox, unless another thread does, which looks at it again afterwards."""
        while self._outbox and self._is_own and self._sending.acquire(blocking=False):
            try:
                packets = []
                while self._outbox:
                    packets.append(self._outbox.popleft())
                for frame in frames_of(packets):
                    self._connection.send_bytes(_encoder.encode(frame))
            except BaseException:
                # A part of a frame may have been sent.
                self._connection.abort()
                raise
            finally:
                self._sending.release()


class Channel:
    """One session's part of a connection, with the methods of ``Connection``. Not thread-safe, except for ``abort``.

    Args:
        connection: The connection.
        number: Number of the channel.
        lock: The lock of the connection.

    Attributes:
        inbox: Packets that have arrived.
        session_id: See ``Connection``.
        closure: Why the server or this side has closed the channel, None if neither has.
        is_aborted: Whether another thread has ended it.
        is_sleeping: Whether a thread sleeps until a packet arrives, or it is to read.
    """

    def __init__(self, connection: SharedConnection, number: int, lock: Any) -> None:
        self._connection = connection
        self._condition = threading.Condition(lock)
        self.number = number
        self.inbox: deque[Packet] = deque()
        self.session_id: str | None = None
        self.closure: str | None = None
        self.is_aborted = False
        self.is_sleeping = False

    @property
    def is_ready(self) -> bool:
        """Whether a packet has arrived, or none can arrive."""
        return bool(self.inbox) or self.closure is not None or self.is_aborted

    @property
    def is_lost(self) -> bool:
        """Whether the server or this side has ended the channel."""
        return self.closure is not None or self.is_aborted or self._connection.is_lost

    def send(self, message: msgspec.Struct) -> None:
        """Send one message; see ``Connection.send``."""
        body = _encoder.encode(message)
        if len(body) <= MAX_PART_BYTES:
            self._connection.send(Packet(self.number, PacketKind.MESSAGE, body))
            return
        parts = [
            body[start : start + MAX_PART_BYTES] for start in range(0, min(len(body), MAX_FRAME_BYTES + 1), MAX_PART_BYTES)
        ]
        kinds = [PacketKind.PART] * (len(parts) - 1) + [PacketKind.MESSAGE]
        self._connection.send(*(Packet(self.number, kind, part) for kind, part in zip(kinds, parts, strict=True)))

    def receive(self, decoder: MessageDecoder[_Message], *, timeout: float) -> _Message:
        """Wait for the next message; see ``Connection.receive``."""
        packet = self._connection.wait(self, timeout)
        return decoder.decode(packet.body, is_text=packet.kind is PacketKind.TEXT)

    def abort(self) -> None:
        """End the channel from another thread: a ``receive`` that waits raises a ``TransportError``."""
        self._connection.abort(self)

    def close(self) -> None:
        """Close the channel without waiting for the server. Idempotent."""
        self._connection.close(self)

    # For the connection, which holds the lock.

    def sleep(self, seconds: float) -> None:
        """Sleep until a packet arrives, it is the thread's turn to read, or the time is up."""
        self.is_sleeping = True
        try:
            self._condition.wait(max(seconds, 0))
        finally:
            self.is_sleeping = False

    def wake(self) -> None:
        """Wake up the thread that sleeps."""
        if self.is_sleeping:
            self.is_sleeping = False
            self._condition.notify()
