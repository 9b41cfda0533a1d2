"""Bodies of HTTP requests, read in bounded memory."""

from __future__ import annotations

from starlette.requests import Request

from coding_gym_server.protocol import MAX_FRAME_BYTES

__all__ = ["BodyTooLargeError", "read_body"]


class BodyTooLargeError(Exception):
    """The body of a request is larger than a frame may be."""


async def read_body(request: Request) -> bytes:
    """Read the body of a request.

    Raises:
        BodyTooLargeError: It is larger than a frame may be.
    """
    if int(request.headers.get("content-length", 0)) > MAX_FRAME_BYTES:
        raise BodyTooLargeError
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_FRAME_BYTES:
            raise BodyTooLargeError
    return bytes(body)
