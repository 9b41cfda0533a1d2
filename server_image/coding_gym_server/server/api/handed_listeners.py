"""Listening sockets that the owner of the sandbox hands to its server.

A sandbox has no network, but its clients may have: a listening TCP socket of the owner's network namespace, passed as a
descriptor over a Unix socket (``SCM_RIGHTS`` in unix(7)), lets the server accept connections of others without a process that
copies each byte.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import weakref
from collections.abc import AsyncIterator

import uvicorn

from coding_gym_server.protocol import LISTENERS_SUFFIX
from coding_gym_server.server.api.connections import HttpConnection
from coding_gym_server.server.api.peer_credentials import is_from_session

__all__ = ["HandedListeners", "SandboxServer"]

_ACCEPTED = b"\x01"


class SandboxServer(uvicorn.Server):
    """uvicorn's server, which also serves listening sockets that it is handed, if it has a Unix socket.

    Args:
        config: Configuration of the server.
    """

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._handed: HandedListeners | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.config.uds:
            self._handed = HandedListeners(f"{self.config.uds}{LISTENERS_SUFFIX}", self)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._handed is not None:
            self._handed.close()
        await super().shutdown(sockets)

    @contextlib.asynccontextmanager
    async def serving(self, listener: socket.socket) -> AsyncIterator[None]:
        """Accept connections of a listening socket for the duration of the block, then close them."""
        transports: weakref.WeakSet[asyncio.Transport] = weakref.WeakSet()

        def connection() -> HttpConnection:
            made = HttpConnection(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)
            made.transports = transports
            return made

        server = await asyncio.get_running_loop().create_server(connection, sock=listener, backlog=self.config.backlog)
        try:
            yield
        finally:
            server.close()
            for transport in transports:
                transport.abort()


class HandedListeners:
    """The Unix socket at which a server is handed listening sockets.

    A client sends one byte with one descriptor, and gets one byte when the server accepts connections there. It does so until
    the client closes its connection, or dies.

    Args:
        path: Path of the socket.
        server: The server.
    """

    def __init__(self, path: str, server: SandboxServer) -> None:
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        self._socket.bind(path)
        # As uvicorn's own: a directory keeps other users out.
        os.chmod(path, 0o666)  # noqa: S103
        self._socket.listen()
        self._loop.add_reader(self._socket, self._accept)

    def close(self) -> None:
        """Close the socket."""
        self._loop.remove_reader(self._socket)
        self._socket.close()
        for task in self._tasks:
            task.cancel()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            client, _ = self._socket.accept()
            client.setblocking(False)
            if is_from_session(client, HttpConnection.sessions_root):
                client.close()
                return
            task = self._loop.create_task(self._receive(client))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _receive(self, client: socket.socket) -> None:
        with contextlib.closing(client), contextlib.suppress(OSError):
            await self._until_readable(client)
            _, descriptors, _, _ = socket.recv_fds(client, 1, 1)
            for descriptor in descriptors:
                try:
                    listener = socket.socket(fileno=descriptor)
                except OSError:
                    os.close(descriptor)
                    raise
                with contextlib.closing(listener), contextlib.suppress(ValueError):
                    listener.setblocking(False)
                    async with self._server.serving(listener):
                        client.send(_ACCEPTED)
                        await self._until_readable(client)

    async def _until_readable(self, client: socket.socket) -> None:
        readable = asyncio.Event()
        self._loop.add_reader(client, readable.set)
        try:
            await readable.wait()
        finally:
            self._loop.remove_reader(client)
