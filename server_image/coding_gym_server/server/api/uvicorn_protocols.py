"""uvicorn's connection protocols, with bounded buffers and a response to every malformed request."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import MutableSet
from typing import Any, ClassVar, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import InvalidState
from websockets.frames import Frame
from websockets.http11 import Request

from coding_gym_server.server.api.peer_credentials import is_from_session
from coding_gym_server.server.api.shared_connection import FRAME_WRITER

__all__ = ["HttpConnection", "WebSocketConnection"]

_BAD_HANDSHAKE = b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
_POLICY_VIOLATION = 1008


class HttpConnection(HttpToolsProtocol):
    """HTTP connection that accepts one request at a time.

    If a pipelined request were read early, the handler of the first request would not notice that its client has
    disconnected, and its step would keep running.

    Attributes:
        sessions_root: Process id of the common ancestor of all sessions, whose connections are refused.
        transports: Set that the connection adds its transport to; None for no set.
    """

    sessions_root: ClassVar[int]
    transports: MutableSet[asyncio.Transport] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self.transports is not None:
            # A session has another protocol later, but the same transport.
            self.transports.add(transport)
        if is_from_session(transport.get_extra_info("socket"), self.sessions_root):
            transport.abort()

    def on_message_begin(self) -> None:
        if self.cycle and not self.cycle.response_complete and not _is_answered(self.cycle):
            message = "a request before the response to the previous one"
            raise ValueError(message)
        super().on_message_begin()


def _is_answered(cycle: RequestResponseCycle) -> bool:
    """Return whether the complete response has been sent, although the application has not yet marked it as complete."""
    return cycle.response_started and not cycle.chunked_encoding and cycle.expected_content_length == 0


class WebSocketConnection(WebSocketsSansIOProtocol):
    """WebSocket connection with bounded buffers, even if the client does not read or sends tiny fragments."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._message = bytearray()

    def data_received(self, data: bytes) -> None:
        try:
            super().data_received(data)
        except InvalidState:
            # Text that is not valid UTF-8, received together with the close frame of the client.
            self.handle_parser_exception()
        if self.conn.handshake_exc is not None and not self.handshake_initiated:
            # A malformed handshake does not produce an event, so no other code responds to it.
            self.transport.write(b"".join(self.conn.data_to_send()) or _BAD_HANDSHAKE)
            self.transport.close()
        if not self.read_paused and not self.transport.is_closing():
            # Otherwise libuv would read from a fast client dozens of times before it serves another connection.
            self.transport.pause_reading()
            self.loop.call_soon(self._read_on)

    def handle_cont(self, event: Frame) -> None:
        # A single buffer: in a list, a fragment of one byte would take a hundred bytes.
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
            # Pongs to a client that does not read would accumulate.
            self.conn.data_to_send()

    def _read_on(self) -> None:
        if not self.read_paused and not self.transport.is_closing():
            self.transport.resume_reading()

    async def send(self, message: Any) -> None:
        if message.get("code") == _POLICY_VIOLATION and not self.writable.is_set():
            # The client does not read, so it would not receive the close frame.
            self.transport.abort()
            return
        await super().send(message)

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        if not self.close_sent:
            # The application starts with the next turn of the event loop.
            cast(dict[str, Any], self.scope["extensions"])[FRAME_WRITER] = self

    def write_frame(self, content: bytes) -> None:
        """Send a binary frame at once; without effect if the connection is closed. See ``FrameWriter``."""
        if self.handshake_complete and not self.disconnected and not self.close_sent:
            with contextlib.suppress(InvalidState):
                self.conn.send_binary(content)
                self.transport.write(b"".join(self.conn.data_to_send()))

    async def drain(self) -> None:
        """Wait until the client has read most of what was sent, or the connection is lost."""
        await self.writable.wait()
