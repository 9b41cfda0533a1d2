"""The Connect protocol with JSON messages, as far as envd needs it: unary procedures and streams of the server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import struct
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from coding_gym_e2b.connections import reset_connection
from coding_gym_e2b.failures import Code, RpcError, rpc_response
from coding_gym_server.protocol.errors import DECODING_ERRORS

__all__ = ["EventStream", "Message", "deadline_of", "read_message", "read_messages", "unary"]

Message = dict[str, Any]

_T = TypeVar("_T", bound=msgspec.Struct)
_HEAD = struct.Struct(">BI")
_COMPRESSED, _LAST = 1, 2
_MAX_MESSAGE_BYTES = 64 << 20
_UNARY_TYPE, _STREAM_TYPE = "application/json", "application/connect+json"


def deadline_of(request: Request) -> float | None:
    """Return the seconds that a client allows for a call; None without a limit.

    Raises:
        RpcError: If its header is invalid.
    """
    text = request.headers.get("connect-timeout-ms")
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= 10):
        message = f"Expected connect-timeout-ms to be a number of milliseconds, got {text[:50]!r}"
        raise RpcError(Code.INVALID_ARGUMENT, message)
    return int(text) / 1000 or None


async def unary(request: Request, kind: type[_T], procedure: Callable[[_T], Awaitable[Message]]) -> Response:
    """Call a procedure with the message of a request, of a kind."""
    try:
        _check_type(request, _UNARY_TYPE)
        return JSONResponse(await procedure(_decoded(await _body(request), kind)))
    except RpcError as error:
        return rpc_response(error)


async def read_message(request: Request, kind: type[_T]) -> _T:
    """Return the only message in the body of a request for a stream.

    Raises:
        RpcError: If it is malformed.
    """
    async for message in read_messages(request, kind):
        return message
    raise RpcError(Code.INVALID_ARGUMENT, "Expected a message, got none")


async def read_messages(request: Request, kind: type[_T]) -> AsyncIterator[_T]:
    """Yield the messages of a client's stream.

    Raises:
        RpcError: If one is malformed.
    """
    _check_type(request, _STREAM_TYPE)
    rest = bytearray()
    async for chunk in request.stream():
        rest += chunk
        while len(rest) >= _HEAD.size:
            flags, size = _HEAD.unpack_from(rest)
            if flags & _COMPRESSED or size > _MAX_MESSAGE_BYTES:
                raise RpcError(Code.INVALID_ARGUMENT, "Expected messages of at most 64 MiB without compression")
            if len(rest) < _HEAD.size + size:
                break
            yield _decoded(bytes(rest[_HEAD.size : _HEAD.size + size]), kind)
            del rest[: _HEAD.size + size]


class EventStream(Response):
    """Streaming response with the messages of a procedure; ends it if the client disconnects or its deadline has passed.

    Args:
        messages: The messages.
        deadline: Seconds after which the call fails; None without a limit.
        is_read: Set once the messages have read the request's body, if they do so.
    """

    def __init__(
        self, messages: AsyncGenerator[Message, None], *, deadline: float | None = None, is_read: asyncio.Event | None = None
    ) -> None:
        super().__init__(media_type=_STREAM_TYPE)
        del self.headers["content-length"]
        self._messages = messages
        self._deadline = deadline
        self._is_read = is_read

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        sending = asyncio.create_task(self._send_all(scope, send))
        leaving = asyncio.create_task(_until_gone(receive, self._is_read))
        try:
            await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
            sending.cancel()
            with contextlib.suppress(asyncio.CancelledError, ClientDisconnect):
                await sending

    async def _send_all(self, scope: Scope, send: Send) -> None:
        end: Message = {}
        try:
            async with asyncio.timeout(self._deadline), contextlib.aclosing(self._messages) as messages:
                async for message in messages:
                    await send({"type": "http.response.body", "body": _envelope(message), "more_body": True})
        except RpcError as error:
            if error.code is Code.UNAVAILABLE:
                # A reset connection makes the SDKs ask whether the sandbox still exists.
                reset_connection()
                await asyncio.sleep(0)
                return
            end = {"error": error.body}
        except TimeoutError:
            end = {"error": RpcError(Code.DEADLINE_EXCEEDED, "the deadline of the call has passed").body}
        await send({"type": "http.response.body", "body": _envelope(end, _LAST), "more_body": False})


def _envelope(message: Message, flags: int = 0) -> bytes:
    content = json.dumps(message, separators=(",", ":")).encode()
    return _HEAD.pack(flags, len(content)) + content


async def _until_gone(receive: Receive, is_read: asyncio.Event | None) -> None:
    if is_read is not None:
        # The body is received once: a part that is received here would be missing in the messages.
        await is_read.wait()
    while (await receive())["type"] != "http.disconnect":
        pass


async def _body(request: Request) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MAX_MESSAGE_BYTES:
            raise RpcError(Code.RESOURCE_EXHAUSTED, "Expected a message of at most 64 MiB")
    return bytes(body)


def _decoded(content: bytes, kind: type[_T]) -> _T:
    try:
        return msgspec.json.decode(content or b"{}", type=kind)
    except DECODING_ERRORS as error:
        text = f"Expected a message in JSON: {error}"
        raise RpcError(Code.INVALID_ARGUMENT, text) from None


def _check_type(request: Request, expected: str) -> None:
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given != expected:
        text = f"Expected the content type {expected}, got {given[:50]!r}: messages are JSON"
        raise RpcError(Code.INVALID_ARGUMENT, text)
