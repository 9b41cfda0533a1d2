"""HTTP client for one server, over TCP or a Unix socket."""

from __future__ import annotations

import contextlib
import http.client
import json
import select
import socket
from collections import deque
from collections.abc import Iterator
from typing import IO, Any

from coding_gym.client.address import Address
from coding_gym.client.connection import open_socket
from coding_gym.client.version_check import check_version
from coding_gym.errors import ConfigurationError, ProtocolError, TransportError
from coding_gym_server.protocol import ERROR_CODE_HEADER, ErrorCode
from coding_gym_server.protocol.processes import EVENT_FRAMES, FRAME_LENGTH

__all__ = ["KEEPALIVES_LOST", "HttpClient", "get_json"]

KEEPALIVES_LOST = 30.0
"""Seconds of silence after which a server that sends keepalives every five seconds is considered dead."""

_MAX_IDLE = 8
_ERRORS = (OSError, http.client.HTTPException)
_SHOWN_CHARS = 2000


class HttpClient:
    """HTTP client that reuses its connections. Thread-safe.

    Args:
        address: The server.
        timeout: Timeout for each read of a response, in seconds.
        checks_version: Whether the server must speak this client's version of the wire protocol; checked through
            ``/health`` before the first request.
    """

    def __init__(self, address: Address, *, timeout: float = 60.0, checks_version: bool = False) -> None:
        self._address = address
        self._timeout = timeout
        self._has_version_to_check = checks_version
        self._idle: deque[socket.socket] = deque()
        self._is_closed = False

    @contextlib.contextmanager
    def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | IO[bytes] | None = None,
        accept: str | None = None,
        missing: str | None = None,
        timeout: float | None = None,
    ) -> Iterator[http.client.HTTPResponse]:
        """Send a request; the response can be read within the block.

        Args:
            method: ``GET``, ``POST`` ...
            path: Path with query string.
            body: Request body.
            accept: Media type of the response, for requests that have several.
            missing: The file whose absence a 404 response means; None if a 404 means something else.
            timeout: Timeout for each read of the response, in seconds; the client's if None.

        Raises:
            TransportError: If the server does not respond, or the response is incomplete.
            FileNotFoundError: If the file does not exist.
            ProtocolVersionError: If the server speaks another version of the wire protocol.
            ConfigurationError: If the server cannot fulfill an option.
            ProtocolError: If the server refuses the request for another reason.
        """
        if self._has_version_to_check:
            health = get_json(self._address, "/health", timeout=self._timeout)
            check_version(self._address, health.get("protocol_version") if isinstance(health, dict) else None)
            self._has_version_to_check = False
        connection = http.client.HTTPConnection("sandbox")
        try:
            connection.sock = sock = self._take_idle() or self._open_socket()
            sock.settimeout(timeout or self._timeout)
            headers = self._address.headers if accept is None else {**self._address.headers, "Accept": accept}
            connection.request(method, path, body=body, headers=headers)
            response = connection.getresponse()
            if response.status >= http.client.BAD_REQUEST:
                self._refuse(response, f"{method} {path}", missing)
            yield response
            if response.isclosed() and not response.will_close and len(self._idle) < _MAX_IDLE:
                connection.sock = None
                self._keep(sock)
        except _ERRORS as error:
            if isinstance(error, TransportError) or (
                isinstance(error, FileNotFoundError) and missing is not None and error.filename == missing
            ):
                raise
            message = f"No answer from {self._address} to {method} {path}: {error or type(error).__name__}"
            raise TransportError(message) from error
        finally:
            connection.close()

    def json(self, response: http.client.HTTPResponse) -> Any:
        """Return the JSON document of a response.

        Raises:
            ProtocolError: If it is malformed.
        """
        try:
            return json.loads(response.read())
        except ValueError as error:
            message = f"{self._address} returned an invalid JSON response"
            raise ProtocolError(message) from error

    def lines(self, response: http.client.HTTPResponse) -> Iterator[bytes]:
        """Yield the lines of a response as they arrive.

        Raises:
            TransportError: If the connection breaks.
        """
        with self._reading():
            while line := response.readline():
                yield line

    def frames(self, response: http.client.HTTPResponse) -> Iterator[bytes]:
        """Yield the frames of a response as they arrive: bytes behind their length.

        Raises:
            TransportError: If the connection breaks.
            ProtocolError: If the response consists of something else.
        """
        if response.headers.get_content_type() != EVENT_FRAMES:
            message = f"{self._address} sends {response.headers.get_content_type()} instead of {EVENT_FRAMES}"
            raise ProtocolError(message)
        with self._reading():
            while length := response.read(FRAME_LENGTH.size):
                yield response.read(*FRAME_LENGTH.unpack(length))

    def close(self) -> None:
        """Close the idle connections, and those of requests that other threads are making as soon as they end. Idempotent."""
        self._is_closed = True
        with contextlib.suppress(IndexError):
            while True:
                self._idle.pop().close()

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except _ERRORS as error:
            message = f"The connection to {self._address} broke: {error or type(error).__name__}"
            raise TransportError(message) from error

    def _open_socket(self) -> socket.socket:
        try:
            return open_socket(self._address, self._timeout)
        except OSError as error:
            reason = error.strerror or str(error) or type(error).__name__
            message = f"No connection to {self._address}: {reason}{self._address.advice}"
            if self._is_closed:
                message = "The client is closed. Make a new one."
            raise TransportError(message) from error

    def _keep(self, sock: socket.socket) -> None:
        self._idle.append(sock)
        # close() may have been called before the socket was there.
        if self._is_closed:
            self.close()

    def _take_idle(self) -> socket.socket | None:
        while self._idle:
            try:
                sock = self._idle.pop()
            except IndexError:
                break
            if not select.select([sock], [], [], 0)[0]:
                return sock
            # The server has closed it in the meantime.
            sock.close()
        return None

    def _refuse(self, response: http.client.HTTPResponse, operation: str, missing: str | None) -> None:
        text = response.read(_SHOWN_CHARS).decode(errors="replace")
        if response.status == http.client.NOT_FOUND and missing is not None:
            raise FileNotFoundError(2, "No such file or directory", missing)
        if response.headers.get(ERROR_CODE_HEADER) == ErrorCode.VALIDATION_ERROR:
            raise ConfigurationError(text)
        message = f"{self._address} answers {operation} with {response.status} {response.reason}: {text}"
        raise ProtocolError(message, status=response.status)


def get_json(address: Address, path: str, *, timeout: float) -> Any:
    """Return the JSON document at a path of a server.

    Args:
        address: The server.
        path: Path of the document, such as ``/health``.
        timeout: Timeout for each read of the response, in seconds.

    Raises:
        TransportError: If the server does not respond.
        ProtocolError: If its response is an error, or is not JSON.
    """
    client = HttpClient(address, timeout=timeout)
    with contextlib.closing(client), client.request("GET", path) as response:
        return client.json(response)
