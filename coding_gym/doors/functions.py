"""Functions of the trainer's side that answer HTTP requests of a session."""

from __future__ import annotations

import inspect
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Iterator
from http import HTTPStatus
from typing import Any

import h11

from coding_gym.client.processes import call_in_own_thread
from coding_gym.doors.exchanges import Recording
from coding_gym.doors.http import HttpConnection
from coding_gym.doors.targets import DoorFunction, DoorRequest, DoorResponse

__all__ = ["answer_by"]

_MAX_REQUEST_BYTES = 64 << 20
_NO_CONTENT = (204, 304)

_log = logging.getLogger(__name__)


async def answer_by(function: DoorFunction, port: int, recording: Recording, client: HttpConnection) -> None:
    """Let a function answer a request.

    Args:
        function: The function.
        port: Port of the door.
        recording: The request, whose head has come.
        client: Its connection.
    """
    body = bytearray()
    while not isinstance(event := await client.next_event(agrees_to_body=True), h11.EndOfMessage):
        if not isinstance(event, h11.Data):
            recording.end("the request broke off")
            raise ConnectionResetError
        recording.add_request(bytes(event.data))
        body += event.data
        if len(body) > _MAX_REQUEST_BYTES:
            recording.end("the request is too long")
            await client.respond(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "The request is too long.\n")
            return
    exchange = recording.exchange
    request = DoorRequest(port, exchange.step, exchange.method, exchange.path, exchange.request_headers, bytes(body))
    try:
        found = await _call(function, request)
        response = found if isinstance(found, DoorResponse) else DoorResponse(found)
        await _send(response, client, recording)
    except (ConnectionError, h11.RemoteProtocolError) as error:
        recording.end(f"the session does not receive the response: {error or type(error).__name__}")
        raise
    except Exception as error:
        # The session gets to know nothing of this side.
        _log.exception("the function of door %d failed", port)
        recording.end(f"{type(error).__name__}: {error}")
        if not client.can_respond:
            raise ConnectionResetError from error
        await client.respond(HTTPStatus.INTERNAL_SERVER_ERROR, "The function behind this door failed.\n")


async def _call(function: DoorFunction, request: DoorRequest) -> Any:
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None)):  # noqa: B004
        return await function(request)
    found = await call_in_own_thread(lambda: function(request))
    return await found if isinstance(found, Awaitable) else found


async def _send(response: DoorResponse, client: HttpConnection, recording: Recording) -> None:
    """Send a response. Before its last byte, it has been recorded."""
    body, content_type = response.body, "text/plain; charset=utf-8"
    if isinstance(body, str):
        body = body.encode()
    elif isinstance(body, (bytes, bytearray, memoryview)):
        body, content_type = bytes(body), "application/octet-stream"
    elif isinstance(body, (AsyncIterator, Iterator)) or hasattr(body, "__aiter__"):
        content_type = "text/event-stream"
    else:
        body, content_type = json.dumps(body).encode(), "application/json"
    chosen = {"content-type": content_type, **{name.lower(): value for name, value in response.headers.items()}}
    if isinstance(body, bytes) and response.status not in _NO_CONTENT:
        chosen["content-length"] = str(len(body))
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in chosen.items()]
    recording.begin_response(response.status, headers)
    if isinstance(body, bytes):
        recording.add_response(body)
        recording.end()
    client.queue(h11.Response(status_code=response.status, headers=headers))
    if isinstance(body, bytes):
        if response.status not in _NO_CONTENT:
            client.queue(h11.Data(data=body))
    else:
        async for part in _parts(body):
            data = part.encode() if isinstance(part, str) else bytes(part)
            recording.add_response(data)
            await client.send(h11.Data(data=data))
        recording.end()
    await client.send(h11.EndOfMessage())


async def _parts(body: Any) -> AsyncIterator[Any]:
    if hasattr(body, "__aiter__"):
        async for part in body:
            yield part
        return
    end = object()
    parts: Iterator[Any] = iter(body)
    while (part := await call_in_own_thread(lambda: next(parts, end))) is not end:
        yield part
