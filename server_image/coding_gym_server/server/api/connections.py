"""Connections of uvicorn: HTTP, which refuses sessions, and WebSockets with bounded buffers."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import MutableSet
from http import HTTPStatus
from typing import Any, ClassVar
from urllib.parse import unquote

from uvicorn import Config
from uvicorn.server import ServerState
from websockets.exceptions import InvalidState
from websockets.frames import Frame, Opcode
from websockets.http11 import Request, Response
from websockets.protocol import State
from websockets.server import ServerProtocol

from coding_gym_server.server.api.admission import ADMISSION, LobbyProtocol, lobby
from coding_gym_server.server.api.peer_credentials import is_from_session
from coding_gym_server.server.api.shared_connection import FRAME_WRITER

__all__ = ["HttpConnection", "WebSocketConnection"]

_BAD_HANDSHAKE = b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
_CLOSE_SECONDS = 10.0
"""Seconds for which a client may delay the end of a closed connection."""

_ABNORMAL_CLOSURE = 1006
_SERVICE_RESTART = 1012
_INVALID_DATA = 1007
_POLICY_VIOLATION = 1008

_log = logging.getLogger(__name__)


class HttpConnection(asyncio.Protocol):
    """Refuse the connection of a session; hand any other to uvicorn's HTTP protocol.

    Args:
        options: Arguments of uvicorn's protocol.

    Attributes:
        sessions_root: Process id of the common ancestor of all sessions, whose connections are refused.
        transports: Set that the connection adds its transport to; None for no set.
    """

    sessions_root: ClassVar[int]

    def __init__(self, **options: Any) -> None:
        self.transports: MutableSet[asyncio.Transport] | None = None
        self._protocol = LobbyProtocol(**options)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        if is_from_session(transport.get_extra_info("socket"), self.sessions_root):
            transport.abort()
            return
        if self.transports is not None:
            # A WebSocket has another protocol later, but the same transport.
            self.transports.add(transport)
        transport.set_protocol(self._protocol)
        self._protocol.connection_made(transport)


class WebSocketConnection(asyncio.Protocol):
    """WebSocket with bounded buffers, even if the client does not read or sends tiny fragments.

    The Sans-I/O protocol of ``websockets`` parses the frames. No message is read before the application has received the
    previous ones, and none is sent before the client has read most of them.

    Args:
        config: Configuration of uvicorn.
        server_state: State of uvicorn's server.
        app_state: State of the application's lifespan.
    """

    def __init__(self, config: Config, server_state: ServerState, app_state: dict[str, Any]) -> None:
        self._app = config.loaded_app
        self._state = server_state
        self._app_state = app_state
        self._protocol = ServerProtocol(max_size=config.ws_max_size)
        self._transport: asyncio.Transport
        self._handshake: Response | None = None
        self._received: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._message = bytearray()
        self._is_text = False
        self._is_held = False
        self._is_lost = False
        self._has_closed = False
        self._writable = asyncio.Event()
        self._writable.set()
        self._close_timer: asyncio.TimerHandle | None = None

    # Transport

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport
        self._state.connections.add(self)  # type: ignore[arg-type]

    def connection_lost(self, exc: Exception | None) -> None:
        lobby.leave(self._transport)
        self._state.connections.discard(self)
        self._is_lost = True
        self._disconnect(_ABNORMAL_CLOSURE)
        # No transport resumes writing after its end.
        self._writable.set()
        if self._close_timer is not None:
            self._close_timer.cancel()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        self._protocol.receive_data(data)
        for event in self._protocol.events_received():
            if isinstance(event, Request):
                self._begin(event)
            elif isinstance(event, Frame):
                self._on_frame(event)
        if self._protocol.handshake_exc is not None and self._handshake is None:
            # A malformed handshake does not produce an event.
            self._transport.write(b"".join(self._protocol.data_to_send()) or _BAD_HANDSHAKE)
            self._transport.close()
        elif self._protocol.parser_exc is not None:
            sent = self._protocol.close_sent
            self._disconnect(sent.code if sent is not None else _ABNORMAL_CLOSURE)
            self._flush()
            self._transport.close()
        elif self._writable.is_set() or self._protocol.state is not State.OPEN:
            self._flush()
        else:
            # Pongs to a client that does not read would accumulate.
            self._protocol.data_to_send()
        if not self._is_held and not self._transport.is_closing():
            # Otherwise libuv would read from a fast client dozens of times before it serves another connection.
            self._transport.pause_reading()
            asyncio.get_running_loop().call_soon(self._read_on)

    def shutdown(self) -> None:
        """Close the connection, because the server ends."""
        if self._handshake is not None and self._protocol.state is State.CONNECTING:
            self._reject(HTTPStatus.INTERNAL_SERVER_ERROR)
        self._close(_SERVICE_RESTART)
        self._transport.close()

    def _read_on(self) -> None:
        if not self._is_held and not self._transport.is_closing():
            self._transport.resume_reading()

    def _flush(self) -> None:
        """Send what the protocol wants to send; an empty part asks to end the connection."""
        for data in self._protocol.data_to_send():
            if data:
                self._transport.write(data)
            else:
                self._transport.close()

    # Frames

    def _begin(self, request: Request) -> None:
        self._handshake = self._protocol.accept(request)
        if self._handshake.status_code != HTTPStatus.SWITCHING_PROTOCOLS:
            self._respond(self._handshake)
            return
        path, _, query = request.path.partition("?")
        offered = ",".join(request.headers.get_all("Sec-WebSocket-Protocol")).split(",")
        scope = {
            "type": "websocket",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1",
            "scheme": "ws",
            "server": self._address("sockname"),
            "client": self._address("peername"),
            "root_path": "",
            "path": unquote(path),
            "raw_path": _encoded(path),
            "query_string": _encoded(query),
            "headers": [(_encoded(name.lower()), _encoded(value)) for name, value in request.headers.raw_items()],
            "subprotocols": [name.strip() for name in offered if name.strip()],
            "state": self._app_state.copy(),
            "extensions": {FRAME_WRITER: self, ADMISSION: functools.partial(lobby.leave, self._transport)},
        }
        self._received.put_nowait({"type": "websocket.connect"})
        task = asyncio.get_running_loop().create_task(self._run(scope))
        self._state.tasks.add(task)
        task.add_done_callback(self._state.tasks.discard)

    def _address(self, kind: str) -> tuple[str, int] | None:
        address = self._transport.get_extra_info(kind)
        return (str(address[0]), int(address[1])) if isinstance(address, tuple) else None

    def _on_frame(self, frame: Frame) -> None:
        match frame.opcode:
            case Opcode.TEXT | Opcode.BINARY:
                self._is_text = frame.opcode is Opcode.TEXT
                if frame.fin:
                    self._deliver(frame.data)
                else:
                    # A single buffer: in a list, a fragment of one byte would take a hundred bytes.
                    self._message[:] = frame.data
            case Opcode.CONT:
                self._message += frame.data
                if frame.fin:
                    self._deliver(bytes(self._message))
                    self._message.clear()
            case Opcode.CLOSE:
                received = self._protocol.close_rcvd
                assert received is not None
                self._disconnect(received.code, received.reason)
            case _:
                # The protocol answers pings.
                pass

    def _deliver(self, data: bytes | bytearray | memoryview) -> None:
        if self._has_closed:
            return
        if not self._is_text:
            self._received.put_nowait({"type": "websocket.receive", "bytes": bytes(data)})
        else:
            try:
                self._received.put_nowait({"type": "websocket.receive", "text": str(data, "utf-8")})
            except UnicodeDecodeError:
                self._protocol.fail(_INVALID_DATA)
                self._disconnect(_INVALID_DATA)
                return
        if not self._is_held:
            self._is_held = True
            self._transport.pause_reading()

    def _disconnect(self, code: int, reason: str = "") -> None:
        self._has_closed = True
        self._received.put_nowait({"type": "websocket.disconnect", "code": code, "reason": reason})

    def _close(self, code: int, reason: str = "") -> None:
        """Begin the closing handshake; the client has some time to answer."""
        if self._protocol.state is not State.OPEN:
            return
        self._protocol.send_close(code, reason)
        self._disconnect(code, reason)
        self._flush()
        if self._is_held and not self._transport.is_closing():
            self._is_held = False
            self._transport.resume_reading()
        self._close_timer = asyncio.get_running_loop().call_later(_CLOSE_SECONDS, self._transport.abort)

    def _reject(self, status: HTTPStatus) -> None:
        self._respond(self._protocol.reject(status, ""))

    def _respond(self, response: Response) -> None:
        self._disconnect(_ABNORMAL_CLOSURE)
        with contextlib.suppress(InvalidState):
            self._protocol.send_response(response)
        self._flush()
        self._transport.close()

    # Application

    async def _run(self, scope: dict[str, Any]) -> None:
        try:
            await self._app(scope, self.receive, self.send)
        except ConnectionError:
            if not self._is_lost and self._protocol.state is State.OPEN:
                _log.exception("the connection was used after its end")
        except Exception:  # noqa: BLE001 - reported, and the client gets an answer
            _log.exception("the application failed")
        if self._protocol.state is State.CONNECTING and not self._has_closed:
            self._reject(HTTPStatus.INTERNAL_SERVER_ERROR)
        elif self._close_timer is None:
            self._transport.close()

    async def receive(self) -> dict[str, Any]:
        """Return the next event, as ASGI defines it."""
        event = await self._received.get()
        if self._is_held and self._received.empty():
            self._is_held = False
            self._read_on()
        return event

    async def send(self, message: Any) -> None:
        """Send an event, as ASGI defines it.

        Raises:
            ConnectionError: If the client has disconnected.
        """
        if message.get("code") == _POLICY_VIOLATION and not self._writable.is_set():
            # The client does not read, so it would not receive the close frame.
            self._transport.abort()
            return
        await self._writable.wait()
        if self._is_lost:
            error = "the client has disconnected"
            raise ConnectionError(error)
        match message["type"]:
            case "websocket.accept":
                self._accept(message)
            case "websocket.send":
                self._send(message)
            case "websocket.close" if self._protocol.state is State.CONNECTING:
                self._reject(HTTPStatus.FORBIDDEN)
            case "websocket.close":
                self._close(message.get("code", 1000), message.get("reason") or "")

    def _accept(self, message: Any) -> None:
        assert self._handshake is not None
        for name, value in message.get("headers", ()):
            self._handshake.headers[name.decode("latin-1")] = value.decode("latin-1")
        if subprotocol := message.get("subprotocol"):
            self._handshake.headers["Sec-WebSocket-Protocol"] = subprotocol
        if not self._transport.is_closing():
            self._protocol.send_response(self._handshake)
            self._flush()

    def _send(self, message: Any) -> None:
        content, text = message.get("bytes"), message.get("text")
        try:
            if content is not None:
                self._protocol.send_binary(content)
            else:
                self._protocol.send_text(text.encode())
        except InvalidState as error:
            reason = "the connection is being closed"
            raise ConnectionError(reason) from error
        self._flush()

    def write_frame(self, content: bytes) -> None:
        """Send a binary frame at once; without effect if the connection is closed. See ``FrameWriter``."""
        if self._protocol.state is State.OPEN and not self._is_lost:
            self._protocol.send_binary(content)
            self._flush()

    async def drain(self) -> None:
        """Wait until the client has read most of what was sent, or the connection is lost."""
        await self._writable.wait()


def _encoded(text: str) -> bytes:
    """Return what the client sent, which releases of ``websockets`` have decoded in two ways."""
    return text.encode("latin-1", errors="surrogateescape")
