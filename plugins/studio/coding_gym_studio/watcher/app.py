"""The application of ``coding-gym watch``: a page, the stream of what happens, and details of single sessions."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from http import HTTPStatus
from pathlib import Path

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from coding_gym.errors import ProtocolError
from coding_gym_server.web.assets import COMMON, asset_route, page_route
from coding_gym_studio.watcher.pictures import to_png
from coding_gym_studio.watcher.updates import Updates
from coding_gym_studio.watching.client import TrainerEnded
from coding_gym_studio.watching.follower import FollowedProcess, Follower

__all__ = ["create_app"]

_STATIC = Path(__file__).parent / "static"
_UPDATE_SECONDS = 0.5
_MOST_WIDTH = 4096
_ENDED = "The trainer has ended."
_NOT_STORED = {"cache-control": "no-store", "x-content-type-options": "nosniff"}

_encoder = msgspec.json.Encoder()


def create_app(follower: Follower) -> Starlette:
    """Return the application, which ``serve_pages`` puts behind a ``Guard``.

    Args:
        follower: What it shows.
    """
    api = _Api(follower)
    session = "/api/processes/{key:int}/sessions/{session:int}"
    routes = [
        page_route("/", _STATIC / "index.html"),
        asset_route("/static/common", COMMON),
        asset_route("/static/watch", _STATIC),
        Route("/api/stream", api.stream),
        Route(f"{session}/steps", api.steps),
        Route(f"{session}/screen", api.screen),
    ]
    return Starlette(routes=routes, exception_handlers={HTTPException: _failure})


class _Api:
    """Answers the page's requests.

    Args:
        follower: What the application shows.
    """

    def __init__(self, follower: Follower) -> None:
        self._follower = follower

    async def stream(self, request: Request) -> Response:
        """Send lines of JSON, each an ``Update``, until the page is left."""
        return StreamingResponse(self._lines(request), media_type="application/x-ndjson", headers=_NOT_STORED)

    async def steps(self, request: Request) -> Response:
        """Return the last steps of a session."""
        process = self._process(request)
        try:
            steps = await asyncio.to_thread(process.history, request.path_params["session"])
        except TrainerEnded as end:
            raise HTTPException(HTTPStatus.GONE, _ENDED) from end
        return Response(_encoder.encode(steps), media_type="application/json", headers=_NOT_STORED)

    async def screen(self, request: Request) -> Response:
        """Return the screen of a session as a PNG file, at most as wide as ``width`` says; no content if it is black."""
        process = self._process(request)
        width = request.query_params.get("width", "")
        limit = min(int(width), _MOST_WIDTH) or None if re.fullmatch("[0-9]{1,6}", width) else None
        try:
            screen = await asyncio.to_thread(process.screen, request.path_params["session"])
            png = await asyncio.to_thread(to_png, screen, width=limit)
        except TrainerEnded as end:
            raise HTTPException(HTTPStatus.GONE, _ENDED) from end
        except ProtocolError as error:
            raise HTTPException(HTTPStatus.BAD_GATEWAY, str(error)) from error
        if png is None:
            return Response(status_code=HTTPStatus.NO_CONTENT, headers=_NOT_STORED)
        return Response(png, media_type="image/png", headers=_NOT_STORED)

    async def _lines(self, request: Request) -> AsyncIterator[bytes]:
        updates = Updates(self._follower)
        while not await request.is_disconnected():
            self._follower.attend()
            yield _encoder.encode(updates.next()) + b"\n"
            await asyncio.sleep(_UPDATE_SECONDS)

    def _process(self, request: Request) -> FollowedProcess:
        process = self._follower.get(request.path_params["key"])
        if process is None:
            raise HTTPException(HTTPStatus.NOT_FOUND, "This process is no longer followed: reload the page.")
        return process


async def _failure(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"detail": error.detail}, error.status_code, headers=_NOT_STORED)
