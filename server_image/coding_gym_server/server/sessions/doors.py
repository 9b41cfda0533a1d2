"""Doors of a session: ports of its loopback interface that lead to the client."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import struct
from collections.abc import Iterable
from typing import Protocol

from coding_gym_server.protocol.doors import (
    FRAME_HEADER,
    MAX_DOOR_CONNECTIONS,
    MAX_DOORS,
    MAX_PORT,
    NUMBER,
    WINDOW_BYTES,
    FrameKind,
)
from coding_gym_server.server.measurements import Measurements
from coding_gym_server.server.supervisor.executor import Executor
from coding_gym_server.workspace.file_errors import FilesError

__all__ = ["DoorsError", "DoorsLink", "SessionDoors"]

_MAX_NUMBER = 1 << 32
_RETRY_SECONDS = 0.1
_LINGER_NOT = struct.pack("ii", 1, 0)


class DoorsError(ValueError):
    """A session cannot have the requested doors."""


class DoorsLink(Protocol):
    """Connection to the client that the doors lead to."""

    def write_frame(self, content: bytes) -> None:
        """Send a frame; without effect if the connection is closed."""


class SessionDoors:
    """The doors of one session, which end with the episode.

    Args:
        measurements: Counts connections.
        are_private: Whether no other session can reach ports of the session.
    """

    def __init__(self, measurements: Measurements, *, are_private: bool) -> None:
        self._measurements = measurements
        self._are_private = are_private
        self._link: DoorsLink | None = None
        self._listeners: dict[int, socket.socket] = {}
        self._connections: dict[int, _DoorConnection] = {}
        self._accepting: set[asyncio.Task[None]] = set()
        self._numbers = itertools.count()
        self._episode = 0

    async def open(self, executor: Executor, ports: Iterable[int]) -> None:
        """Open doors in the network of an executor, before any code runs in it or later.

        Args:
            executor: The executor.
            ports: Their ports; those that are open already remain.

        Raises:
            DoorsError: If the session cannot have them.
            INFRASTRUCTURE_ERRORS: If the sandbox fails to open them.
        """
        wanted = [port for port in dict.fromkeys(ports) if port not in self._listeners]
        if not wanted:
            return
        if not self._are_private:
            message = (
                "Doors require sessions with a network of their own, which no other session can reach: start the sandbox "
                "without network=, and where user namespaces are permitted (see docs/sandboxes.md)"
            )
            raise DoorsError(message)
        if len(self._listeners) + len(wanted) > MAX_DOORS or not all(0 < port <= MAX_PORT for port in wanted):
            message = f"Expected at most {MAX_DOORS} doors with ports from 1 to {MAX_PORT}, got {wanted}"
            raise DoorsError(message)
        loop, episode = asyncio.get_running_loop(), self._episode
        async with executor.files_of_programs() as opener:
            for port in wanted:
                try:
                    listener = await executor.lease.run(opener.listen, port)
                except FilesError as error:
                    message = f"Door {port} cannot be opened: {error}"
                    raise DoorsError(message) from error
                if self._episode != episode or port in self._listeners:
                    # Another call was faster.
                    listener.close()
                    continue
                listener.setblocking(False)
                self._listeners[port] = listener
                loop.add_reader(listener, self._accept, port)

    def close(self) -> None:
        """Close all doors and their connections. Idempotent."""
        self._episode += 1
        self._pause()
        for listener in self._listeners.values():
            listener.close()
        self._listeners.clear()
        self._end_connections()

    def attach(self, link: DoorsLink) -> None:
        """Let the doors lead to a client from now on."""
        self._end_connections()
        self._link = link

    def detach(self, link: DoorsLink) -> None:
        """End the connections if the doors lead to this client."""
        if self._link is link:
            self._link = None
            self._end_connections()

    def receive(self, frame: bytes) -> None:
        """Handle a frame of the client.

        Raises:
            ValueError: If it is malformed.
            struct.error: If it is malformed.
        """
        kind, number = FRAME_HEADER.unpack_from(frame)
        kind = FrameKind(kind)
        connection = self._connections.get(number)
        # It may have ended at the same time.
        if connection is not None:
            connection.receive(kind, memoryview(frame)[FRAME_HEADER.size :])

    def _end_connections(self) -> None:
        for task in self._accepting:
            task.cancel()
        for connection in list(self._connections.values()):
            connection.abort()
        # What still arrives of them is not meant for those of another episode.
        self._connections.clear()
        # There is room again.
        self._resume()

    def _accept(self, port: int) -> None:
        listener = self._listeners[port]
        try:
            accepted, _ = listener.accept()
        except (BlockingIOError, ConnectionError):
            # It is gone already.
            return
        except OSError:
            # The server has no free descriptor.
            self._pause()
            asyncio.get_running_loop().call_later(_RETRY_SECONDS, self._resume)
            return
        if self._link is None:
            # The program sees a reset, as of a server that is gone.
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOT)
            accepted.close()
            return
        accepted.setblocking(False)
        number = next(self._numbers) % _MAX_NUMBER
        connection = self._connections[number] = _DoorConnection(self, number, port, self._link)
        if len(self._connections) >= MAX_DOOR_CONNECTIONS:
            self._pause()
        task = asyncio.get_running_loop().create_task(self._serve(accepted, connection))
        self._accepting.add(task)
        task.add_done_callback(self._accepting.discard)

    async def _serve(self, accepted: socket.socket, connection: _DoorConnection) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(lambda: connection, accepted)
        except BaseException:
            accepted.close()
            self.forget(connection)
            raise

    def count(self, change: int) -> None:
        """Count a connection that has begun (1) or ended (-1)."""
        self._measurements.open_door_connections += change
        if change > 0:
            self._measurements.door_connections += change

    def forget(self, connection: _DoorConnection) -> None:
        """Called when a connection has ended."""
        if self._connections.get(connection.number) is connection:
            del self._connections[connection.number]
            if len(self._connections) < MAX_DOOR_CONNECTIONS:
                self._resume()

    def _pause(self) -> None:
        for listener in self._listeners.values():
            asyncio.get_running_loop().remove_reader(listener)

    def _resume(self) -> None:
        for port, listener in self._listeners.items():
            asyncio.get_running_loop().add_reader(listener, self._accept, port)


class _DoorConnection(asyncio.Protocol):
    """Connection of a program to a door.

    Args:
        doors: The doors of its session.
        number: Its number.
        port: The port of the door.
        link: The client.
    """

    def __init__(self, doors: SessionDoors, number: int, port: int, link: DoorsLink) -> None:
        self.number = number
        self._doors = doors
        self._port = port
        self._link = link
        self._transport: asyncio.Transport | None = None
        self._credit = WINDOW_BYTES
        self._unconfirmed = 0
        self._is_writable = True
        self._open_ends = {"program", "client"}
        self._is_ended = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport
        # What the program has not read is not confirmed.
        transport.set_write_buffer_limits(high=0)
        self._doors.count(1)
        if self._is_ended:
            transport.abort()
            return
        self._send(FrameKind.OPEN, NUMBER.pack(self._port))

    def data_received(self, data: bytes) -> None:
        self._send(FrameKind.DATA, data)
        self._credit -= len(data)
        if self._credit <= 0:
            assert self._transport is not None
            self._transport.pause_reading()

    def eof_received(self) -> bool:
        self._send(FrameKind.END)
        self._end("program")
        return True

    def pause_writing(self) -> None:
        self._is_writable = False

    def resume_writing(self) -> None:
        self._is_writable = True
        self._confirm()

    def connection_lost(self, exc: Exception | None) -> None:
        self._doors.count(-1)
        if not self._is_ended:
            self._is_ended = True
            self._send(FrameKind.RESET)
        self._doors.forget(self)

    def receive(self, kind: FrameKind, content: memoryview) -> None:
        """Handle a frame of the client."""
        transport = self._transport
        if transport is None or self._is_ended:
            return
        match kind:
            case FrameKind.DATA:
                self._unconfirmed += len(content)
                if self._unconfirmed > 2 * WINDOW_BYTES:
                    # The client ignores the window.
                    transport.abort()
                    return
                transport.write(content)
                self._confirm()
            case FrameKind.END:
                with contextlib.suppress(OSError, RuntimeError):
                    transport.write_eof()
                self._end("client")
            case FrameKind.RESET:
                self._is_ended = True
                transport.abort()
            case FrameKind.WINDOW:
                (size,) = NUMBER.unpack(content)
                was_exhausted = self._credit <= 0
                self._credit += size
                if was_exhausted and self._credit > 0:
                    transport.resume_reading()

    def abort(self) -> None:
        """End the connection."""
        if not self._is_ended:
            self._is_ended = True
            self._send(FrameKind.RESET)
        if self._transport is not None:
            self._transport.abort()

    def _end(self, sender: str) -> None:
        """Note that a side sends no more; the connection has ended when neither does."""
        self._open_ends.discard(sender)
        if not self._open_ends and self._transport is not None:
            self._is_ended = True
            self._transport.close()

    def _confirm(self) -> None:
        if self._is_writable and self._unconfirmed >= WINDOW_BYTES // 4:
            self._send(FrameKind.WINDOW, NUMBER.pack(self._unconfirmed))
            self._unconfirmed = 0

    def _send(self, kind: FrameKind, content: bytes = b"") -> None:
        self._link.write_frame(FRAME_HEADER.pack(kind, self.number) + content)
