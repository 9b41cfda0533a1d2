"""Reading of HTTP request bodies in bounded memory, and detection of client disconnects."""

from __future__ import annotations

from starlette.requests import Request
from starlette.types import Receive

from coding_gym_server.protocol import MAX_FRAME_BYTES

__all__ = ["BodyTooLargeError", "read_body", "until_gone"]


class BodyTooLargeError(Exception):
    """The body of a request exceeds the maximum frame size."""


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
