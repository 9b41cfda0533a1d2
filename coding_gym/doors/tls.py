"""The beginning of a TLS connection: the name of the server that a client asks for (RFC 8446, section 4.1.2; RFC 6066)."""

from __future__ import annotations

__all__ = ["MAX_HELLO_BYTES", "ClientHelloError", "server_name"]

MAX_HELLO_BYTES = 64 * 1024
"""Number of bytes within which a client has to name the server."""

_HANDSHAKE = 22
_CLIENT_HELLO = 1
_SERVER_NAME = 0
_HOST_NAME = 0
_RECORD_HEADER = 5
_MAX_RECORD = (1 << 14) + 256


class ClientHelloError(ValueError):
    """The bytes are not the beginning of TLS, or no server is named."""


class _Reader:
    """Reads fields of a message."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def is_at_end(self) -> bool:
        return self._at == len(self._data)

    def number(self, size: int) -> int:
        return int.from_bytes(self.bytes(size))

    def bytes(self, size: int) -> bytes:
        end = self._at + size
        if end > len(self._data):
            message = "the ClientHello is malformed"
            raise ClientHelloError(message)
        part, self._at = self._data[self._at : end], end
        return part

    def vector(self, size: int) -> _Reader:
        """Return a field whose length is in its first bytes."""
        return _Reader(self.bytes(self.number(size)))


def server_name(data: bytes) -> str | None:
    """Return the name of the server that a client asks for; None if more bytes are needed.

    Args:
        data: What it has sent so far.

    Raises:
        ClientHelloError: If it is not TLS, or asks for no server, or for several.
    """
    hello = _handshake_message(data)
    return None if hello is None else _name_in(_Reader(hello))


def _handshake_message(data: bytes) -> bytes | None:
    """Return the first message, which several records may have parts of; None if it is incomplete."""
    message = b""
    while data:
        if data[0] != _HANDSHAKE or (len(data) > 1 and data[1] != 3):
            error = "the bytes are not TLS"
            raise ClientHelloError(error)
        if len(data) < _RECORD_HEADER:
            return None
        size = int.from_bytes(data[3:5])
        if not 0 < size <= _MAX_RECORD:
            error = "the bytes are not TLS"
            raise ClientHelloError(error)
        message += data[_RECORD_HEADER : _RECORD_HEADER + size]
        if message and message[0] != _CLIENT_HELLO:
            error = "the connection does not begin with a ClientHello"
            raise ClientHelloError(error)
        if len(message) >= 4 and len(message) >= 4 + int.from_bytes(message[1:4]):
            return message[4 : 4 + int.from_bytes(message[1:4])]
        data = data[_RECORD_HEADER + size :]
    return None


def _name_in(hello: _Reader) -> str:
    hello.bytes(2 + 32)
    hello.vector(1)
    hello.vector(2)
    hello.vector(1)
    names: list[bytes] = []
    if not hello.is_at_end:
        extensions = hello.vector(2)
        while not extensions.is_at_end:
            kind, content = extensions.number(2), extensions.vector(2)
            if kind == _SERVER_NAME:
                entries = content.vector(2)
                while not entries.is_at_end:
                    is_host = entries.number(1) == _HOST_NAME
                    name = entries.vector(2)
                    if is_host:
                        names.append(name._data)
    if len(names) != 1:
        message = "the ClientHello names no server" if not names else "the ClientHello names several servers"
        raise ClientHelloError(message)
    try:
        return names[0].decode("ascii").lower()
    except UnicodeDecodeError:
        message = "the ClientHello names no valid server"
        raise ClientHelloError(message) from None
