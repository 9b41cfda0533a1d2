"""The server's handles on the spawner of a session and on the shims of its programs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections import deque
from collections.abc import Iterator
from typing import Protocol, TypeVar

from coding_gym_server.ipc.async_channel import AsyncChannel, ChannelClosedError
from coding_gym_server.ipc.messages import Failed, ForkSpawner, FromProcess
from coding_gym_server.ipc.program_messages import FAILED, REPORT, SIGNALED, STARTED
from coding_gym_server.server.supervisor.zygote_handle import ForkError

__all__ = ["ROOT_TIMEOUT_SECONDS", "ProgramCallbacks", "ShimHandle", "SpawnerHandle"]

ROOT_TIMEOUT_SECONDS = 10.0
"""Timeout of the response of a session root, a spawner or a shim."""

_READ_BYTES = 4096

_T = TypeVar("_T")


class ProgramCallbacks(Protocol):
    """Object that is told what happens to a program."""

    def on_terminal(self, descriptor: int) -> None:
        """Take ownership of the end that controls the program's terminal, which the program has opened."""

    def on_exit(self, status: int | None) -> None:
        """Handle the exit of the program, once: its wait status, or None if its shim died, and the program with it."""


class SpawnerHandle:
    """Start programs in a session. The spawner starts with the first one, and again after its death.

    Args:
        root: Channel to the session root.
        slot: Number of the session's slot.

    Attributes:
        is_closed: Whether it starts no more programs.
    """

    def __init__(self, root: AsyncChannel[FromProcess], slot: int) -> None:
        self._root = root
        self._slot = slot
        self._requests: socket.socket | None = None
        self._starting = asyncio.Lock()
        self.is_closed = False

    async def run(self, program: bytes, request: bytes, streams: tuple[int, ...], listener: ProgramCallbacks) -> ShimHandle:
        """Start a program.

        Args:
            program: The program from ``pack_program``.
            request: The request for its streams; see ``program_messages``.
            streams: Its stdin, stdout and stderr, which the caller closes; none if it opens a terminal.
            listener: Is told what happens to the program.

        Raises:
            ForkError: If the process limit or memory is exhausted.
            ChannelClosedError: If the root died, or the handle has been closed.
            TimeoutError: If the root or the spawner does not respond.
        """
        requests = await self._connect()
        try:
            return await _run(requests, program, request, streams, listener)
        except ConnectionError:
            # It died, for example because memory ran out.
            if self._requests is requests:
                self._disconnect()
        return await _run(await self._connect(), program, request, streams, listener)

    def close(self) -> None:
        """Close the socket; the spawner then ends, and with it all programs. Idempotent."""
        self.is_closed = True
        self._disconnect()

    def _disconnect(self) -> None:
        if self._requests is not None:
            self._requests.close()
            self._requests = None

    async def _connect(self) -> socket.socket:
        """Return the socket of requests; start the spawner if there is none."""
        async with self._starting:
            if self._requests is None and not self.is_closed:
                self._requests = await self._start()
        if self._requests is None or self.is_closed:
            self._disconnect()
            raise ChannelClosedError
        return self._requests

    async def _start(self) -> socket.socket:
        # One packet is one request.
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        try:
            with theirs:
                response = await self._root.call(ForkSpawner(self._slot), (theirs.fileno(),), timeout=ROOT_TIMEOUT_SECONDS)
            if isinstance(response, Failed):
                raise ForkError(response.reason)
        except BaseException:
            ours.close()
            raise
        return ours


class ShimHandle:
    """Talk to the shim of a program.

    Args:
        connection: The control socket. The handle takes ownership of it.
        listener: Is told what happens to the program, but nothing after ``close``.

    Attributes:
        pid: Process id of the program, 0 before ``start``.
    """

    def __init__(self, connection: socket.socket, listener: ProgramCallbacks) -> None:
        connection.setblocking(False)
        self.pid = 0
        self._has_terminal = False
        self._socket = connection
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._received = b""
        self._started: asyncio.Future[int] = self._loop.create_future()
        # Retrieve the exception even if no caller awaits the future.
        self._started.add_done_callback(_retrieve)
        self._signals: deque[asyncio.Future[None]] = deque()
        self._loop.add_reader(connection.fileno(), self._read)

    async def start(self) -> None:
        """Wait until the program has started.

        Raises:
            ForkError: If the process limit or memory is exhausted.
            ChannelClosedError: If the spawner or the shim died before.
            TimeoutError: If neither responds.
        """
        async with asyncio.timeout(ROOT_TIMEOUT_SECONDS):
            await self._started

    def send(self, number: int) -> asyncio.Future[None]:
        """Send a signal to the process group of the program, SIGKILL also to all its descendants.

        Args:
            number: The signal.

        Returns:
            A future that is done once the signal has been sent, or the program has exited.
        """
        sent = self._loop.create_future()
        try:
            self._socket.send(bytes([number]))
        except OSError:
            # The program has exited, or its exit is about to be reported.
            sent.set_result(None)
        else:
            self._signals.append(sent)
        return sent

    def close(self) -> None:
        """Close the socket; the shim then kills the program, if it still runs. Idempotent."""
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()
        if not self._started.done():
            self._started.set_exception(ChannelClosedError())
        while self._signals:
            _resolve(self._signals.popleft(), None)

    def _read(self) -> None:
        try:
            data, descriptors, _, _ = socket.recv_fds(self._socket, _READ_BYTES, 1, socket.MSG_CMSG_CLOEXEC)
        except BlockingIOError:
            return
        except OSError:
            data, descriptors = b"", []
        for descriptor in descriptors:
            # A program has at most one, and passes it with the report of its start.
            if self.pid or self._has_terminal:
                os.close(descriptor)
            else:
                self._has_terminal = True
                self._listener.on_terminal(descriptor)
        if not data:
            self._end(None)
            return
        data = self._received + data
        end = len(data) - len(data) % REPORT.size
        self._received = data[end:]
        for kind, value in REPORT.iter_unpack(data[:end]):
            self._handle(kind, value)

    def _handle(self, kind: int, value: int) -> None:
        if kind == STARTED:
            self.pid = value
            _resolve(self._started, value)
        elif kind == FAILED:
            if not self._started.done():
                self._started.set_exception(ForkError(f"cannot fork a program: {os.strerror(value)}"))
        elif kind == SIGNALED:
            if self._signals:
                _resolve(self._signals.popleft(), None)
        else:
            self._end(value)

    def _end(self, status: int | None) -> None:
        has_started = self.pid != 0
        self.close()
        if has_started:
            self._listener.on_exit(status)


async def _run(
    requests: socket.socket, program: bytes, request: bytes, streams: tuple[int, ...], listener: ProgramCallbacks
) -> ShimHandle:
    """Request a program from a spawner, and wait until it has started."""
    ours, theirs = socket.socketpair()
    shim = ShimHandle(ours, listener)
    try:
        with theirs, _file_with(program) as file:
            _send(requests, request, (theirs.fileno(), file, *streams))
        await shim.start()
    except BaseException:
        shim.close()
        raise
    return shim


def _send(requests: socket.socket, request: bytes, descriptors: tuple[int, ...]) -> None:
    """Send a request to a spawner.

    Raises:
        ChannelClosedError: If the spawner died.
        TimeoutError: If it has not read many requests.
    """
    try:
        socket.send_fds(requests, [request], descriptors)
    except BlockingIOError as error:
        message = "the process that starts programs does not respond"
        raise TimeoutError(message) from error
    except OSError as error:
        raise ChannelClosedError from error


@contextlib.contextmanager
def _file_with(data: bytes) -> Iterator[int]:
    """Yield the descriptor of a file in memory: its content has no limit, as that of a packet does."""
    with open(os.memfd_create("program"), "w+b", buffering=0) as file:
        rest = memoryview(data)
        while rest:
            rest = rest[file.write(rest) :]
        yield file.fileno()


def _resolve(future: asyncio.Future[_T], result: _T) -> None:
    # The caller may have stopped waiting.
    if not future.done():
        future.set_result(result)


def _retrieve(future: asyncio.Future[int]) -> None:
    if not future.cancelled():
        future.exception()
