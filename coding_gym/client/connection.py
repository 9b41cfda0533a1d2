"""A blocking WebSocket connection, split into sending and receiving.

The protocol is the ``websockets`` package's, without its I/O: its blocking client reads in a separate thread, and the
hand-over between threads costs more than the rest of the client's work in a step.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import struct
import threading
import time
from typing import Any, Generic, TypeVar

import msgspec
from websockets.client import ClientProtocol
from websockets.exceptions import InvalidStatus, WebSocketException
from websockets.frames import Frame, Opcode
from websockets.http11 import Response
from websockets.protocol import Event, State
from websockets.uri import parse_uri

from coding_gym.client.address import Address
from coding_gym.client.version_check import VERSION_HEADERS, check_version
from coding_gym.errors import ProtocolError, TransportError, TransportTimeoutError
from coding_gym_server.protocol import PROTOCOL_VERSION_HEADER
from coding_gym_server.protocol.errors import DECODING_ERRORS
from coding_gym_server.protocol.processes import SESSION_HEADER

__all__ = ["MAX_MESSAGE_BYTES", "Connection", "MessageDecoder", "open_socket", "with_query"]

_READ_BYTES = 65_536
MAX_MESSAGE_BYTES = 100 * 1024 * 1024
_KEEPALIVE_SECONDS = 30
_FOREVER_SECONDS = 1e9
_TIMEVAL = struct.Struct("@ll")

_encoder = msgspec.msgpack.Encoder()
_text_encoder = msgspec.json.Encoder()

_Message = TypeVar("_Message")


def with_query(url: str, query: str) -> str:
    """Return a URL with a query, unless that is empty."""
    return f"{url}?{query}" if query else url


class MessageDecoder(Generic[_Message]):
    """Decodes messages of one type, from binary frames as msgpack, from text frames as JSON.

    Args:
        kind: The type, or a union of types.
    """

    def __init__(self, kind: Any) -> None:
        self._msgpack = msgspec.msgpack.Decoder(kind)
        self._json = msgspec.json.Decoder(kind)

    def decode(self, data: bytes, *, is_text: bool) -> _Message:
        """Decode a message.

        Raises:
            ProtocolError: If it is malformed.
        """
        try:
            message: _Message = self._json.decode(data) if is_text else self._msgpack.decode(data)
        except DECODING_ERRORS as error:
            explanation = f"The server sent a malformed message: {error}"
            raise ProtocolError(explanation) from error
        return message


class Connection:
    """One connection to ``/ws``: one thread may receive while others send.

    Args:
        address: Address of the server.
        timeout: Connection timeout in seconds.
        checks_version: Whether the server must speak this client's version of the wire protocol.
        query: Query of the request, such as ``fork_of=ID``.
        path: Path of the endpoint below ``/ws``.

    Attributes:
        session_id: Id of the session for HTTP requests; None if the server has refused the session or is OpenEnv's.

    Raises:
        TransportError: If the server cannot be reached.
        ProtocolVersionError: If the server speaks another version.
        ProtocolError: If the endpoint does not accept the connection.
    """

    def __init__(
        self, address: Address, *, timeout: float, checks_version: bool = True, query: str = "", path: str = ""
    ) -> None:
        self._address = address
        self._lock = threading.Lock()
        self._early_events: list[Event] = []
        self._parts: list[bytes] = []
        self._is_text = False
        self._receive_timeout = 0.0
        self.session_id: str | None = None
        try:
            self._socket = open_socket(address, timeout)
        except TimeoutError as error:
            message = f"No connection to {address} within {timeout:g} s"
            raise TransportTimeoutError(message) from error
        except OSError as error:
            message = f"No connection to {address}: {error.strerror or error}{address.advice}"
            raise TransportError(message) from error
        self._protocol = ClientProtocol(parse_uri(with_query(address.websocket_url + path, query)), max_size=MAX_MESSAGE_BYTES)
        try:
            self._handshake(timeout, checks_version=checks_version)
        except BaseException:
            self.close()
            raise

    def send(self, message: msgspec.Struct, *, as_text: bool = False) -> None:
        """Send one message. If the connection is broken, ``receive`` raises the error, after the messages that arrived before.

        Args:
            message: The message.
            as_text: Whether to send it as JSON in a text frame, rather than as msgpack in a binary one.
        """
        encoded = _text_encoder.encode(message) if as_text else _encoder.encode(message)
        with self._lock:
            with contextlib.suppress(WebSocketException):
                (self._protocol.send_text if as_text else self._protocol.send_binary)(encoded)
            self._flush()

    def receive(self, decoder: MessageDecoder[_Message], *, timeout: float) -> _Message:
        """Wait for the next message.

        Raises:
            TransportTimeoutError: If none arrives in time; the connection is unusable afterwards.
            TransportError: If the connection is broken.
            ProtocolError: If the message is malformed.
        """
        messages = self._messages()
        while not messages:
            data = self.read(timeout)
            if data is None:
                raise self.late(timeout)
            messages = self.feed(data)
        content, is_text = messages[0]
        return decoder.decode(content, is_text=is_text)

    # The parts of ``send`` and ``receive``, for connections whose messages several threads send and read.

    def send_bytes(self, content: bytes) -> None:
        """Send one encoded message in a binary frame; see ``send``."""
        with self._lock:
            with contextlib.suppress(WebSocketException):
                self._protocol.send_binary(content)
            self._flush()

    def read(self, timeout: float) -> bytes | None:
        """Return the next bytes, empty at the end of the connection, or None if none arrive in time.

        Raises:
            TransportError: If the connection is broken.
        """
        self._set_receive_timeout(timeout)
        try:
            return self._socket.recv(_READ_BYTES)
        except (BlockingIOError, ssl.SSLWantReadError):
            return None
        except OSError as error:
            raise self._broken(error) from error

    def feed(self, data: bytes) -> list[tuple[bytes, bool]]:
        """Process bytes that were read; return the messages that they complete, and whether each is text.

        Raises:
            TransportError: If the connection is broken, and they complete none.
        """
        self._process(data)
        return self._messages()

    def _process(self, data: bytes) -> None:
        with self._lock:
            if data:
                self._protocol.receive_data(data)
            else:
                self._protocol.receive_eof()
            self._flush()

    def _messages(self) -> list[tuple[bytes, bool]]:
        messages = []
        for event in self._events():
            if isinstance(event, Frame) and event.opcode in (Opcode.BINARY, Opcode.TEXT, Opcode.CONT):
                self._is_text = event.opcode is Opcode.TEXT or (self._is_text and event.opcode is Opcode.CONT)
                self._parts.append(bytes(event.data))
                if event.fin:
                    messages.append((b"".join(self._parts), self._is_text))
                    self._parts = []
        if not messages and self._protocol.state is not State.OPEN:
            raise self._broken(self._protocol.close_exc if self._protocol.state is State.CLOSED else None)
        return messages

    def late(self, timeout: float) -> TransportTimeoutError:
        """Return the error for an answer that has not arrived in time."""
        return TransportTimeoutError(f"{self._address} did not answer within {timeout:g} s")

    @property
    def is_lost(self) -> bool:
        """Whether the server or this side has ended the connection."""
        if self._socket.fileno() < 0:
            return True
        poll = select.poll()
        poll.register(self._socket, select.POLLRDHUP)
        return bool(poll.poll(0))

    def abort(self) -> None:
        """End the connection from another thread: a ``receive`` that waits raises a ``TransportError``."""
        # Closing the socket would not wake up a reader.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection without waiting for the server. Idempotent."""
        self._socket.close()

    def _handshake(self, timeout: float, *, checks_version: bool) -> None:
        deadline = time.monotonic() + timeout
        request = self._protocol.connect()
        request.headers.update(self._address.headers)
        if checks_version:
            request.headers.update(VERSION_HEADERS)
        self._protocol.send_request(request)
        self._flush()
        while self._protocol.state is State.CONNECTING:
            left = max(deadline - time.monotonic(), 0.001)
            data = self.read(left)
            if data is None:
                raise self.late(timeout)
            self._process(data)
            error = self._protocol.handshake_exc
            if isinstance(error, InvalidStatus):
                message = (
                    f"{self._address} does not accept a session: {error}. "
                    "Check that it is a coding_gym server and that the token is correct"
                )
                raise ProtocolError(message) from error
            if error is not None:
                raise self._broken(error)
        # A server refuses a session immediately: the refusal may have arrived together with the response.
        response, *self._early_events = self._protocol.events_received()
        assert isinstance(response, Response)
        self.session_id = response.headers.get(SESSION_HEADER)
        if checks_version:
            check_version(self._address, response.headers.get(PROTOCOL_VERSION_HEADER))

    def _events(self) -> list[Event]:
        events, self._early_events = [*self._early_events, *self._protocol.events_received()], []
        return events

    def _flush(self) -> None:
        """Send the pending output of the protocol: frames, pongs, close responses."""
        # If the server is gone, the next read reports it, after the server's last message.
        with contextlib.suppress(OSError):
            for data in self._protocol.data_to_send():
                if data:
                    self._socket.sendall(data)

    def _set_receive_timeout(self, timeout: float) -> None:
        # In the kernel rather than in Python, whose sockets with a timeout poll before every read.
        timeout = min(timeout, _FOREVER_SECONDS)
        if timeout != self._receive_timeout:
            try:
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _timeval(timeout))
            except OSError as error:
                # It has been closed.
                raise self._broken(error) from error
            self._receive_timeout = timeout

    def _broken(self, error: BaseException | None) -> TransportError:
        self.close()
        return TransportError(f"The connection to {self._address} broke: {error or 'closed by the server'}")


def _timeval(seconds: float) -> bytes:
    """Return a timeout in seconds as the kernel encodes it; 0 means no limit."""
    whole, fraction = divmod(seconds, 1)
    return _TIMEVAL.pack(int(whole), int(fraction * 1e6))


def open_socket(address: Address, timeout: float) -> socket.socket:
    """Connect to a server; the socket has no timeout.

    Raises:
        OSError: If it cannot be reached within ``timeout`` seconds.
    """
    if address.socket_path is not None:
        connection = socket.socket(socket.AF_UNIX)
        try:
            # A non-blocking connect fails, rather than waits, if the server's backlog is full.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _timeval(timeout))
            connection.connect(address.socket_path)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _timeval(0))
        except BlockingIOError as error:
            connection.close()
            raise TimeoutError from error
        except BaseException:
            connection.close()
            raise
    else:
        connection = socket.create_connection(address.host_and_port, timeout)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # The kernel probes a silent endpoint: WebSocket pings would require a response while the client does not read.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEPALIVE_SECONDS)
        if address.is_encrypted:
            connection = ssl.create_default_context().wrap_socket(connection, server_hostname=address.host_and_port[0])
    connection.settimeout(None)
    return connection
