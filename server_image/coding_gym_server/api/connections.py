"""uvicorn's connections, with bounds on what a client may pile up in them and an answer to whatever it sends."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import InvalidState
from websockets.frames import Frame

from coding_gym_server.api.peers import comes_from_inside

__all__ = ["HttpConnection", "WebSocketConnection"]

_BAD_HANDSHAKE = b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
_POLICY_VIOLATION = 1008


class HttpConnection(HttpToolsProtocol):
    """An HTTP connection that takes one request at a time.

    With a second one read ahead of its turn, nothing would tell the first that its client has gone: its step would run on.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if comes_from_inside(transport):
            transport.abort()

    def on_message_begin(self) -> None:
        if self.cycle and not self.cycle.response_complete and not _is_answered(self.cycle):
            message = "a request before the answer to the last one"
            raise ValueError(message)
        super().on_message_begin()


def _is_answered(cycle: RequestResponseCycle) -> bool:
    """Say whether the client has all of an answer, though the application has not said yet that it ends."""
    return cycle.response_started and not cycle.chunked_encoding and cycle.expected_content_length == 0


class WebSocketConnection(WebSocketsSansIOProtocol):
    """A WebSocket connection whose buffers are bounded, even if its client does not read or sends its messages in crumbs."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._message = bytearray()

    def data_received(self, data: bytes) -> None:
        try:
            super().data_received(data)
        except InvalidState:
            # Text that is no UTF-8, in one go with the client's own close frame.
            self.handle_parser_exception()
        if self.conn.handshake_exc is not None and not self.handshake_initiated:
            # What does not parse as a handshake makes no event, so nobody else answers it.
            self.transport.write(b"".join(self.conn.data_to_send()) or _BAD_HANDSHAKE)
            self.transport.close()
        if not self.read_paused and not self.transport.is_closing():
            # Else libuv would read on for as long as a fast client sends, dozens of times, before anybody else's turn.
            self.transport.pause_reading()
            self.loop.call_soon(self._read_on)

    def handle_cont(self, event: Frame) -> None:
        # Gathered in one buffer: in a list, a fragment of a byte would cost a hundred.
        if self.frames:
            self._message[:] = self.frames.pop()
        self._message += event.data
        if event.fin:
            self.frames.append(bytes(self._message))
            self._message.clear()
            self.send_receive_event_to_app()

    def handle_ping(self) -> None:
        if self.writable.is_set():
            super().handle_ping()
        else:
            # To a client that does not read, answers would pile up.
            self.conn.data_to_send()

    def _read_on(self) -> None:
        if not self.read_paused and not self.transport.is_closing():
            self.transport.resume_reading()

    async def send(self, message: Any) -> None:
        if message.get("code") == _POLICY_VIOLATION and not self.writable.is_set():
            # Nor does it read that its connection is being closed.
            self.transport.abort()
            return
        await super().send(message)
