"""HTTP client for one server, over TCP or a Unix socket, for asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections import deque
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import httptools

from coding_gym.client.address import Address
from coding_gym.errors import ProtocolError, TransportError, TransportTimeoutError

__all__ = ["AsyncHttpClient", "AsyncResponse"]

_READ_BYTES = 1 << 18
_MAX_BODY_BYTES = 64 << 20
_MAX_HEAD_BYTES = 1 << 16
_CONNECT_SECONDS = 10.0
_BAD_REQUEST = 400


class AsyncResponse:
    """A response whose body is read as it arrives.

    Args:
        address: The server, for messages.
        reader: The connection.
        timeout: Seconds that a read may take.

    Attributes:
        status: Its status code, 0 before it has arrived.
    """

    def __init__(self, address: Address, reader: asyncio.StreamReader, timeout: float) -> None:
        self.status = 0
        self._address = address
        self._reader = reader
        self._timeout = timeout
        self._parser = httptools.HttpResponseParser(self)
        self._chunks: deque[bytes] = deque()
        self._has_head = False
        self._is_complete = False

    @property
    def is_success(self) -> bool:
        """Whether the server has done what was asked for."""
        return self.status < _BAD_REQUEST

    def on_headers_complete(self) -> None:
        """Called by the parser with the status."""
        self.status, self._has_head = self._parser.get_status_code(), True

    def on_body(self, body: bytes) -> None:
        """Keep a part of the body; called by the parser."""
        self._chunks.append(body)

    def on_message_complete(self) -> None:
        """Called by the parser at the end of the body."""
        self._is_complete = True

    async def read_head(self) -> None:
        """Wait for the status.

        Raises:
            TransportError: If the connection breaks, or the server does not answer in time.
            ProtocolError: If the answer is not HTTP.
        """
        received = 0
        while not self._has_head:
            received += await self._read()
            if received > _MAX_HEAD_BYTES and not self._has_head:
                raise self._too_long(_MAX_HEAD_BYTES)

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body as it arrives.

        Raises:
            TransportError: If the connection breaks, or the server is silent for too long.
        """
        while True:
            while self._chunks:
                yield self._chunks.popleft()
            if self._is_complete:
                return
            await self._read()

    async def lines(self, limit: int) -> AsyncIterator[bytes]:
        """Yield the lines of the body as they arrive, without their ends.

        Args:
            limit: Maximum length of a line in bytes.

        Raises:
            TransportError: If the connection breaks, or the server is silent for too long.
            ProtocolError: If a line is too long.
        """
        rest = bytearray()
        async for chunk in self.chunks():
            rest += chunk
            *lines, last = rest.split(b"\n") if b"\n" in chunk else (rest,)
            for line in lines:
                yield bytes(line)
            rest = last
            if len(rest) > limit:
                raise self._too_long(limit)

    async def read(self, limit: int = _MAX_BODY_BYTES) -> bytes:
        """Return the whole body.

        Args:
            limit: Its maximum size in bytes.

        Raises:
            TransportError: If the connection breaks, or the server is silent for too long.
            ProtocolError: If it is larger.
        """
        body = bytearray()
        async for chunk in self.chunks():
            body += chunk
            if len(body) > limit:
                raise self._too_long(limit)
        return bytes(body)

    async def _read(self) -> int:
        try:
            async with asyncio.timeout(self._timeout):
                data = await self._reader.read(_READ_BYTES)
            if not data:
                reason = "it was closed"
                raise ConnectionResetError(reason)
        except TimeoutError as error:
            message = f"{self._address} did not answer within {self._timeout:g} s"
            raise TransportTimeoutError(message) from error
        except OSError as error:
            message = f"The connection to {self._address} broke: {error}"
            raise TransportError(message) from error
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            message = f"The server sent a malformed message: {error}"
            raise ProtocolError(message) from error
        return len(data)

    def _too_long(self, limit: int) -> ProtocolError:
        return ProtocolError(f"{self._address} sent a header, a line or a response of more than {limit} bytes")


class AsyncHttpClient:
    """HTTP client that opens a connection per request.

    Args:
        address: The server.
        timeout: Seconds that each read of a response may take.
    """

    def __init__(self, address: Address, *, timeout: float = 60.0) -> None:
        self._address = address
        self._timeout = timeout
        self._prefix = urlsplit(address.url).path

    @contextlib.asynccontextmanager
    async def request(
        self, method: str, path: str, *, body: bytes = b"", timeout: float | None = None
    ) -> AsyncIterator[AsyncResponse]:
        """Send a request; the response can be read within the block, whose end closes the connection.

        Args:
            method: ``GET``, ``POST`` ...
            path: Path with query string, below that of the server's URL.
            body: Request body.
            timeout: Seconds that each read of the response may take; the client's if None.

        Raises:
            TransportError: If the server does not respond.
            ProtocolError: If its answer is not HTTP.
        """
        reader, writer = await self._open()
        try:
            head = f"{method} {self._prefix}{path} HTTP/1.1\r\nHost: sandbox\r\nConnection: close\r\n"
            head += "".join(f"{name}: {value}\r\n" for name, value in self._address.headers.items())
            writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            limit = timeout or self._timeout
            response = AsyncResponse(self._address, reader, limit)
            try:
                async with asyncio.timeout(limit):
                    with contextlib.suppress(OSError):
                        # The server may answer, and close the connection, before it has read the body.
                        await writer.drain()
                    await response.read_head()
            except TimeoutError as error:
                message = f"{self._address} did not answer within {limit:g} s"
                raise TransportTimeoutError(message) from error
            yield response
        finally:
            writer.transport.abort()

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        address = self._address
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                if address.socket_path is not None:
                    return await asyncio.open_unix_connection(address.socket_path, limit=_READ_BYTES)
                host, port = address.host_and_port
                context = ssl.create_default_context() if address.is_encrypted else None
                return await asyncio.open_connection(host, port, limit=_READ_BYTES, ssl=context)
        except OSError as error:
            message = f"No connection to {address}: {error.strerror or error or type(error).__name__}{address.advice}"
            raise TransportError(message) from error
