"""Reading of HTTP request bodies in bounded memory, and detection of client disconnects."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from starlette.requests import Request
from starlette.types import Receive

from coding_gym_server.protocol import MAX_FRAME_BYTES

__all__ = ["BodyTooLargeError", "ClientGoneError", "read_body", "run_while_connected", "until_gone"]

_T = TypeVar("_T")


class BodyTooLargeError(Exception):
    """The body of a request exceeds the maximum frame size."""


class ClientGoneError(Exception):
    """The client disconnected before the response was ready."""


async def read_body(request: Request) -> bytes:
    """Read the body of a request.

    Raises:
        BodyTooLargeError: If the body exceeds the maximum frame size.
    """
    if int(request.headers.get("content-length", 0)) > MAX_FRAME_BYTES:
        raise BodyTooLargeError
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_FRAME_BYTES:
            raise BodyTooLargeError
    return bytes(body)


async def until_gone(receive: Receive) -> None:
    """Wait until the client disconnects; the request body must have been read."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def run_while_connected(request: Request, work: Awaitable[_T]) -> _T:
    """Await ``work``, and cancel it if the client disconnects in the meantime.

    Raises:
        ClientGoneError: If the client disconnected.
    """
    working, gone = asyncio.ensure_future(work), asyncio.ensure_future(until_gone(request.receive))
    try:
        await asyncio.wait({working, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientGoneError
        return working.result()
    finally:
        for task in (working, gone):
            task.cancel()
        await asyncio.wait({working, gone})
