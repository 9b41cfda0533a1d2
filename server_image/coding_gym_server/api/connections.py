"""uvicorn's connections, with an answer to whatever a client sends."""

from __future__ import annotations

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import InvalidState

__all__ = ["WebSocketConnection"]

_BAD_HANDSHAKE = b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class WebSocketConnection(WebSocketsSansIOProtocol):
    """A WebSocket connection that ends in order whatever its client sends."""

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
