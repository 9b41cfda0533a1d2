"""What is behind doors: servers, functions, proxies."""

from __future__ import annotations

import functools
import ssl
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import h11

from coding_gym.doors.egress import Egress
from coding_gym.doors.exchanges import RawHeaders, Recording
from coding_gym.doors.functions import answer_by
from coding_gym.doors.http import Forwarder, HttpConnection, end_to_end, serve_http, upgrade_of
from coding_gym.doors.proxy import EgressProxy
from coding_gym.doors.streams import DoorStream, SocketStream, relay
from coding_gym.doors.targets import DoorTarget, ServerTarget

__all__ = ["serve"]

_NAME = "The server behind this door"


async def serve(
    target: DoorTarget, stream: DoorStream, port: int, record: Callable[[bytes, bytes, RawHeaders], Recording]
) -> None:
    """Serve a connection of a session to its end.

    Args:
        target: Where the door leads to.
        stream: The connection.
        port: Port of the door.
        record: Adds a request, given its method, target and headers, to the log of the door.

    Raises:
        OSError: If it is broken.
    """

    def recorded(request: h11.Request) -> Recording:
        return record(request.method, request.target, list(request.headers))

    if isinstance(target, str):
        target = ServerTarget(target)
    if isinstance(target, ServerTarget) and not target.is_http:
        await _relay_to(target, stream)
    elif isinstance(target, (ServerTarget, Egress)):
        forwarder = Forwarder(stream)
        visit = (
            _ServerVisit(target, forwarder, recorded)
            if isinstance(target, ServerTarget)
            else EgressProxy(target, stream, forwarder, recorded)
        )
        try:
            await serve_http(stream, visit.answer)
        finally:
            forwarder.close()
    else:
        function = target

        async def answer(request: h11.Request, client: HttpConnection) -> None:
            await answer_by(function, port, recorded(request), client)

        await serve_http(stream, answer)


async def _relay_to(target: ServerTarget, stream: DoorStream) -> None:
    server = await _connect(target)
    try:
        await relay(stream, server)
    finally:
        server.abort()


async def _connect(target: ServerTarget) -> SocketStream:
    assert target.parts.hostname is not None
    assert target.port is not None
    options: dict[str, Any] = {"ssl": ssl.create_default_context()} if target.parts.scheme == "https" else {}
    return await SocketStream.connect(target.parts.hostname, target.port, **options)


class _ServerVisit:
    """One connection of a session to a server of HTTP.

    Args:
        target: The server.
        forwarder: Passes on the requests.
        record: Adds a request to the log.
    """

    def __init__(self, target: ServerTarget, forwarder: Forwarder, record: Callable[[h11.Request], Recording]) -> None:
        self._target = target
        self._forwarder = forwarder
        self._record = record
        headers = {"host": target.parts.netloc, **target.headers}
        self._replaced = {name.lower().encode("latin-1"): value.encode("latin-1") for name, value in headers.items()}
        self._prefix = target.parts.path.rstrip("/").encode()

    async def answer(self, request: h11.Request, client: HttpConnection) -> None:
        """Let the server answer a request."""
        recording = self._record(request)
        if request.method == b"CONNECT":
            recording.end("a door is not a proxy")
            await client.respond(HTTPStatus.METHOD_NOT_ALLOWED, "This door leads to one server: it is not a proxy.\n")
            return
        headers = [header for header in end_to_end(request.headers) if header[0] not in self._replaced]
        head = h11.Request(
            method=request.method,
            target=self._prefix + _origin_form(request.target),
            headers=[*self._replaced.items(), *headers, *upgrade_of(request.headers)],
        )
        connect = functools.partial(_connect, self._target)
        await self._forwarder.forward(client, head, recording, name=_NAME, connect=connect)


def _origin_form(target: bytes) -> bytes:
    """Return the path and the query of a request's target."""
    if target.startswith(b"/"):
        return target
    _, _, rest = target.partition(b"://")
    _, slash, path = rest.partition(b"/")
    return slash + path or b"/"
