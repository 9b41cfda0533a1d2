"""``SandboxRelay``: a TCP address at which a sandbox is reached, whatever its provider."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from types import TracebackType

from coding_gym.client.address import Address
from coding_gym.client.session import Session
from coding_gym.errors import CodingGymError
from coding_gym.sandbox.base import Sandbox
from coding_gym.sandbox.managed import ManagedSandbox
from coding_gym_server.protocol import LISTENERS_SUFFIX

__all__ = ["SandboxRelay"]

_CHUNK_BYTES = 1 << 18
_HAND_OVER_SECONDS = 5.0
_CHECK_SECONDS = 0.2
"""Interval at which a sandbox that accepts connections itself is checked."""


class SandboxRelay:
    """Connects a TCP socket with a sandbox, and replaces the sandbox when it dies. Use it as a context manager.

    If the sandbox is on this machine, its server is handed the socket, and accepts connections itself. Otherwise the bytes are
    copied, unchanged. Clients authenticate with the sandbox's token, if it has one.

    Args:
        sandbox: The sandbox; the relay takes ownership of it. One of its sessions is the relay's own, which keeps the sandbox
            from ending by itself while it has no clients.
        listener: The socket, see ``coding_gym._listening.listen``; the relay takes ownership of it.
    """

    def __init__(self, sandbox: ManagedSandbox, listener: socket.socket) -> None:
        self._sandbox = sandbox
        self._listener = listener
        self._keepalive: Session | None = None
        self._kept: Sandbox | None = None
        self._handed_over: socket.socket | None = None
        self._lock = asyncio.Lock()
        self._relays: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        """The TCP port."""
        port: int = self._listener.getsockname()[1]
        return port

    def start(self) -> Sandbox:
        """Start the sandbox, and return it.

        Raises:
            ProviderError: If it cannot be started.
        """
        sandbox = self._sandbox.obtain()
        self._keep(sandbox)
        return sandbox

    async def run(self) -> None:
        """Serve connections until canceled."""
        while await asyncio.to_thread(self._hand_over):
            await self._until_lost()
            self._take_back()
            try:
                await asyncio.to_thread(self._replace, self._kept)
            except CodingGymError:
                # Clients are told why.
                break
        await self._copy_connections()

    def _hand_over(self) -> bool:
        """Let the sandbox's server accept connections; return whether it does."""
        path = self._sandbox.obtain().address.socket_path
        if path is None:
            return False
        self._take_back()
        client = self._handed_over = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with contextlib.suppress(OSError):
            client.settimeout(_HAND_OVER_SECONDS)
            client.connect(f"{path}{LISTENERS_SUFFIX}")
            socket.send_fds(client, [b"\0"], [self._listener.fileno()])
            if client.recv(1):
                return True
        self._take_back()
        return False

    def _take_back(self) -> None:
        """Let the sandbox's server accept no more connections, and end those that it has accepted."""
        if self._handed_over is not None:
            self._handed_over.close()

    async def _until_lost(self) -> None:
        while self._keepalive is not None and not self._keepalive.is_lost:
            await asyncio.sleep(_CHECK_SECONDS)

    async def _copy_connections(self) -> None:
        server = await asyncio.start_server(self._on_connection, sock=self._listener, limit=_CHUNK_BYTES)
        try:
            await server.serve_forever()
        finally:
            for relay in self._relays:
                relay.cancel()
            await asyncio.gather(*self._relays, return_exceptions=True)

    def close(self) -> None:
        """Close the socket, and remove the sandbox. Idempotent."""
        self._take_back()
        self._listener.close()
        if self._keepalive is not None:
            self._keepalive.close()
        self._sandbox.close()

    def __enter__(self) -> SandboxRelay:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _on_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Before Python 3.12, asyncio reports the cancellation of a task that it has created itself for a connection.
        task = asyncio.create_task(self._relay(reader, writer))
        self._relays.add(task)
        task.add_done_callback(self._relays.discard)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(OSError):
            try:
                sandbox_reader, sandbox_writer = await self._connect()
            except (CodingGymError, OSError) as error:
                writer.write(_bad_gateway(str(error)))
                await writer.drain()
                return
            with contextlib.closing(sandbox_writer):
                requests = asyncio.create_task(_copy(reader, sandbox_writer))
                try:
                    await _copy(sandbox_reader, writer)
                finally:
                    requests.cancel()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a connection to the sandbox, in a new one if it does not answer."""
        sandbox = await asyncio.to_thread(self._sandbox.obtain)
        try:
            return await _open(sandbox.address)
        except OSError:
            async with self._lock:
                await asyncio.to_thread(self._replace, sandbox)
        return await _open((await asyncio.to_thread(self._sandbox.obtain)).address)

    def _replace(self, dead: Sandbox | None) -> None:
        if dead is not None and self._kept is dead:
            self._sandbox.give_up(dead)
            self.start()

    def _keep(self, sandbox: Sandbox) -> None:
        if self._keepalive is not None:
            self._keepalive.close()
        self._keepalive, self._kept = sandbox.connect(), sandbox


async def _open(address: Address) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if address.socket_path is not None:
        return await asyncio.open_unix_connection(address.socket_path, limit=_CHUNK_BYTES)
    host, port = address.host_and_port
    return await asyncio.open_connection(host, port, limit=_CHUNK_BYTES)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy one direction of a connection, including its end."""
    try:
        while data := await reader.read(_CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
    except OSError:
        # One side is gone: let the other know.
        writer.transport.abort()


def _bad_gateway(reason: str) -> bytes:
    body = f"The sandbox is gone, and no other one starts: {reason}\n".encode()
    head = f"HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
    return f"{head}Connection: close\r\n\r\n".encode() + body
