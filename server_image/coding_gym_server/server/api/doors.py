"""WebSocket ``/sessions/{session}/doors``, and the route that opens further doors during an episode."""

from __future__ import annotations

import re
import struct
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from coding_gym_server.protocol import ERROR_CODE_HEADER, PROTOCOL_VERSION, PROTOCOL_VERSION_HEADER, ErrorCode
from coding_gym_server.protocol.doors import MAX_PORT
from coding_gym_server.server.api.shared_connection import FRAME_WRITER, FrameWriter
from coding_gym_server.server.sessions.doors import DoorsError
from coding_gym_server.server.sessions.registry import SessionNotFoundError, SessionRegistry
from coding_gym_server.server.sessions.session import ServerSession

__all__ = ["DoorsEndpoint", "doors_route"]

_Event = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Event]]
_Send = Callable[[_Event], Awaitable[None]]

_PATH = re.compile(r"/sessions/([^/]+)/doors")
_VERSION_HEADER = PROTOCOL_VERSION_HEADER.lower().encode(), str(PROTOCOL_VERSION).encode()
_POLICY_VIOLATION = 1008


class DoorsEndpoint:
    """ASGI application for the WebSocket through which a client serves the doors of a session.

    Args:
        sessions: The registry of the sessions.
    """

    def __init__(self, sessions: SessionRegistry) -> None:
        self._sessions = sessions

    @staticmethod
    def serves(path: str) -> bool:
        """Return whether a path is one of its WebSockets."""
        return _PATH.fullmatch(path) is not None

    async def __call__(self, scope: _Event, receive: _Receive, send: _Send) -> None:
        await receive()
        found = _PATH.fullmatch(scope["path"])
        assert found is not None
        try:
            doors = self._sessions.get(found.group(1)).doors
        except SessionNotFoundError:
            await send({"type": "websocket.close"})
            return
        await send({"type": "websocket.accept", "headers": [_VERSION_HEADER]})
        link: FrameWriter = scope["extensions"][FRAME_WRITER]
        doors.attach(link)
        try:
            while (event := await receive())["type"] == "websocket.receive":
                # Its own answers are few and small, but not those to a client that reads none.
                await link.drain()
                try:
                    doors.receive(event["bytes"])
                except (KeyError, ValueError, struct.error):
                    await send({"type": "websocket.close", "code": _POLICY_VIOLATION})
                    return
        finally:
            doors.detach(link)


def doors_route(path: str, find: Callable[[str], Awaitable[ServerSession]]) -> Route:
    """Return the route that opens a door of the present episode.

    Args:
        path: Its path, with the parameters ``session`` and ``port``.
        find: Returns the session with an id; raises ``SessionNotFoundError`` if there is none.
    """

    async def open_door(request: Request) -> Response:
        session = await find(request.path_params["session"])
        port = request.path_params["port"]
        try:
            if not (port.isascii() and port.isdecimal() and len(port) <= len(str(MAX_PORT))):
                message = f"Expected the port of a door, got {port!r:.100}"
                raise DoorsError(message)
            await session.open_door(int(port))
        except DoorsError as error:
            return PlainTextResponse(str(error), 400, {ERROR_CODE_HEADER: ErrorCode.VALIDATION_ERROR})
        return Response(status_code=204)

    return Route(path, open_door, methods=["POST"])
