"""HTTP route for the picture of a session's screen, which may be requested during a step."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from coding_gym_server.display.encoding import png_bytes
from coding_gym_server.protocol import Pixels, ScreenRequestOptions
from coding_gym_server.server.sessions.session import ServerSession
from coding_gym_server.server.threads import in_thread

__all__ = ["WINDOWS_HEADER", "screen_route"]

_DIGEST_BYTES = 16

WINDOWS_HEADER = "coding-gym-windows"
"""Header of the response with the number of visible windows."""


def screen_route(path: str, find: Callable[[str], Awaitable[ServerSession]]) -> Route:
    """Return the route that responds with a PNG, or with status 304 if the client has it already (``If-None-Match``).

    Args:
        path: Its path, with the parameter ``session``.
        find: Returns the session with an id; raises ``SessionNotFoundError`` if there is none.
    """

    async def picture(request: Request) -> Response:
        session = await find(request.path_params["session"])
        screen = await session.screen.capture(ScreenRequestOptions(), None)
        pixels = screen.screenshot
        assert isinstance(pixels, Pixels)
        # Equal pictures have equal bytes, and are compressed already.
        digest = hashlib.blake2b(pixels.rgb, digest_size=_DIGEST_BYTES).hexdigest()
        tag = f'"{pixels.width}x{pixels.height}-{digest}"'
        headers = {"cache-control": "no-store", "etag": tag, WINDOWS_HEADER: str(len(screen.windows))}
        if tag in map(str.strip, request.headers.get("if-none-match", "").split(",")):
            return Response(status_code=304, headers=headers)
        return Response(await in_thread(png_bytes, pixels), media_type="image/png", headers=headers)

    return Route(path, picture)
