"""HTTP/1.1 on streams: requests of a session are answered, or passed on to a server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any

import h11

from coding_gym.doors.exchanges import RawHeaders, Recording
from coding_gym.doors.streams import ByteStream, DoorStream, relay

__all__ = ["Forwarder", "HttpConnection", "end_to_end", "report_failure", "serve_http", "upgrade_of"]

_MAX_HEAD_BYTES = 128 * 1024

# RFC 9110, section 7.6.1; and what older programs send to proxies.
_HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"upgrade",
    }
)
_FRAMING = {b"content-length", b"transfer-encoding", b"host"}


class ClientGoneError(ConnectionError):
    """The program of the session does not wait for the response."""


class HttpConnection:
    """One side of an HTTP connection.

    Args:
        stream: Its bytes.
        role: ``h11.SERVER`` or ``h11.CLIENT``.
    """

    def __init__(self, stream: ByteStream, role: Any) -> None:
        self.stream = stream
        self.protocol = h11.Connection(role, max_incomplete_event_size=_MAX_HEAD_BYTES)
        self._queued: list[bytes] = []

    async def next_event(self, *, agrees_to_body: bool = False) -> Any:
        """Return the next event of the other side.

        Args:
            agrees_to_body: Whether a client that waits for it is told to send its body.

        Raises:
            h11.RemoteProtocolError: If the other side breaks the protocol.
            ConnectionError: If the stream is broken.
        """
        while (event := self.protocol.next_event()) is h11.NEED_DATA:
            if agrees_to_body and self.protocol.they_are_waiting_for_100_continue:
                await self.send(h11.InformationalResponse(status_code=100, headers=[]))
            await self.read()
        return event

    async def read(self) -> None:
        """Read what the other side sends next, for ``protocol.next_event``.

        Raises:
            ConnectionError: If the stream is broken.
        """
        self.protocol.receive_data(await self.stream.read())

    def queue(self, event: Any) -> None:
        """Prepare an event that is sent with the next ones.

        Raises:
            h11.LocalProtocolError: If it is not possible in this state.
        """
        self._queued.extend(self.protocol.send_with_data_passthrough(event) or ())

    async def flush(self) -> None:
        """Send what is queued.

        Raises:
            ConnectionError: If the stream is broken.
        """
        if self._queued:
            data = b"".join(self._queued)
            self._queued.clear()
            if data:
                await self.stream.write(data)

    async def send(self, event: Any) -> None:
        """Send an event, and what is queued; see ``queue`` and ``flush``."""
        self.queue(event)
        await self.flush()

    async def respond(self, status: int, text: str) -> None:
        """Send a whole response of text, and no further one."""
        body = text.encode()
        headers = [
            ("content-type", "text/plain; charset=utf-8"),
            ("content-length", str(len(body))),
            ("connection", "close"),
        ]
        self._queued.clear()
        self.queue(h11.Response(status_code=status, headers=headers))
        if self.protocol.our_state is h11.SEND_BODY:
            self.queue(h11.Data(data=body))
        await self.send(h11.EndOfMessage())

    @property
    def can_respond(self) -> bool:
        """Whether no response has begun."""
        return self.protocol.our_state in (h11.IDLE, h11.SEND_RESPONSE)

    def next_cycle(self) -> bool:
        """Prepare for the next request; return whether there can be one."""
        protocol = self.protocol
        if protocol.our_state is h11.DONE and protocol.their_state is h11.DONE:
            protocol.start_next_cycle()
            return True
        return False


def end_to_end(headers: RawHeaders) -> list[tuple[bytes, bytes]]:
    """Return the headers that are meant for the other end, rather than for this connection; names are in lower case."""
    kept = [header for header in headers if header[0] not in _HOP_BY_HOP]
    dropped = {
        name.strip().lower() for header, value in headers if header == b"connection" for name in value.split(b",")
    } - _FRAMING
    if any(name == b"transfer-encoding" for name, _ in kept):
        # The length would be another opinion of where the body ends.
        dropped.add(b"content-length")
    return [header for header in kept if header[0] not in dropped] if dropped else kept


def upgrade_of(headers: RawHeaders) -> list[tuple[bytes, bytes]]:
    """Return the headers that ask for another protocol, or agree to it; names are in lower case."""
    upgrade = [header for header in headers if header[0] == b"upgrade"]
    return [(b"connection", b"upgrade"), *upgrade] if upgrade else []


async def serve_http(stream: ByteStream, answer: Callable[[h11.Request, HttpConnection], Awaitable[None]]) -> None:
    """Serve the requests of one connection.

    Args:
        stream: The connection.
        answer: Reads the rest of a request and sends its response. The connection ends if it does not do both.
    """
    client = HttpConnection(stream, h11.SERVER)
    try:
        while isinstance(request := await client.next_event(), h11.Request):
            await answer(request, client)
            if not client.next_cycle():
                break
    except h11.RemoteProtocolError as error:
        # Of the client: answers handle those of servers.
        if client.can_respond:
            await client.respond(error.error_status_hint, f"The request is malformed: {error}\n")
    await stream.write_eof()
    await _drain(stream)


async def _drain(stream: ByteStream) -> None:
    """Read what still arrives, for a while: closing a socket with unread bytes would discard the response."""
    try:
        async with asyncio.timeout(1.0):
            while await stream.read():
                pass
    except (TimeoutError, OSError):
        pass


class Forwarder:
    """Passes on the requests of one connection of a session; the connection to the server is kept for the next one.

    Args:
        stream: The connection of the session.
    """

    def __init__(self, stream: DoorStream) -> None:
        self._stream = stream
        self._server: HttpConnection | None = None
        self._key: object = None

    async def forward(
        self,
        client: HttpConnection,
        head: h11.Request,
        recording: Recording,
        *,
        name: str,
        connect: Callable[[], Awaitable[ByteStream]],
        key: object = None,
    ) -> None:
        """Pass on a request, and its response; a server that fails is a response with status 502.

        Args:
            client: The connection of the session, whose request it is.
            head: The head of the request, as the server is to receive it.
            recording: Is kept up to date.
            name: Name of the server, for messages.
            connect: Connects to it.
            key: What tells it from other servers.

        Raises:
            ConnectionError: If the session does not wait for the response, or part of one has been passed on.
        """
        try:
            if self._server is not None and (self._key != key or self._server.stream.has_ended):
                self.close()
            server = self._server = self._server or HttpConnection(await connect(), h11.CLIENT)
            self._key = key
            await _exchange(self._stream, client, head, server, recording)
        except ClientGoneError as error:
            recording.end("the session ended the connection before the end of the response")
            raise ConnectionResetError from error
        except (OSError, h11.ProtocolError) as error:
            await report_failure(client, recording, name, error)
        else:
            if not server.next_cycle():
                self.close()

    def close(self) -> None:
        """End the connection to the server. Idempotent."""
        if self._server is not None:
            self._server.stream.abort()
            self._server = None


async def report_failure(client: HttpConnection, recording: Recording, name: str, error: Exception) -> None:
    """Respond that a server has failed, with status 502.

    Raises:
        ConnectionResetError: If a response has begun already.
    """
    recording.end(f"{name} failed: {error or type(error).__name__}")
    if not client.can_respond:
        raise ConnectionResetError from error
    await client.respond(HTTPStatus.BAD_GATEWAY, f"{name} failed: {type(error).__name__}\n")


async def _exchange(
    stream: DoorStream, client: HttpConnection, head: h11.Request, server: HttpConnection, recording: Recording
) -> None:
    """Pass on a request to a server, and its response.

    Args:
        stream: The connection of the session.
        client: The same, whose request it is.
        head: The head of the request, as the server is to receive it.
        server: A connection to the server.
        recording: Is kept up to date.

    Raises:
        ClientGoneError: If the session does not wait for the response.
        OSError: If the server fails.
        h11.RemoteProtocolError: If a side breaks the protocol.
    """
    server.queue(head)
    is_whole = _queue_body(client, server, recording)
    await server.flush()
    # A program that is gone wants no response: a model need not go on.
    stream.on_end = server.stream.abort
    body = None if is_whole else asyncio.ensure_future(_send_body(client, server, recording))
    try:
        has_switched = await _receive(client, server, recording, body)
    except (OSError, h11.RemoteProtocolError) as error:
        if body is not None and body.done() and (failure := body.exception()) is not None:
            raise failure from error
        if stream.has_ended:
            raise ClientGoneError from error
        raise
    finally:
        stream.on_end = None
        if body is not None:
            # The response may have come before the end of the request.
            body.cancel()
            await asyncio.gather(body, return_exceptions=True)
    if has_switched:
        await _switch(client, server)


def _queue_body(client: HttpConnection, server: HttpConnection, recording: Recording) -> bool:
    """Pass on the part of a request that has come; return whether it is all."""
    while (event := client.protocol.next_event()) is not h11.NEED_DATA:
        if isinstance(event, h11.EndOfMessage):
            server.queue(h11.EndOfMessage(headers=event.headers))
            return True
        if not isinstance(event, h11.Data):
            raise ClientGoneError
        recording.add_request(bytes(event.data))
        server.queue(event)
    return False


async def _send_body(client: HttpConnection, server: HttpConnection, recording: Recording) -> None:
    """Pass on the rest of a request; a server that does not want it may still respond."""
    is_whole = False
    while not is_whole:
        try:
            await client.read()
            is_whole = _queue_body(client, server, recording)
        except (OSError, h11.RemoteProtocolError):
            server.stream.abort()
            raise
        try:
            await server.flush()
        except OSError:
            return


async def _receive(
    client: HttpConnection, server: HttpConnection, recording: Recording, body: asyncio.Future[None] | None
) -> bool:
    """Pass on a response; return whether both sides speak another protocol from now on."""
    while True:
        match event := server.protocol.next_event():
            case h11.NEED_DATA:
                await client.flush()
                await server.read()
            case h11.InformationalResponse(status_code=101):
                if body is not None:
                    await body
                headers = [*end_to_end(event.headers), *upgrade_of(event.headers)]
                recording.begin_response(101, headers)
                recording.end()
                await client.send(h11.InformationalResponse(status_code=101, headers=headers, reason=event.reason))
                return True
            case h11.InformationalResponse():
                client.queue(h11.InformationalResponse(status_code=event.status_code, headers=end_to_end(event.headers)))
            case h11.Response():
                headers = end_to_end(event.headers)
                recording.begin_response(event.status_code, headers)
                client.queue(h11.Response(status_code=event.status_code, headers=headers, reason=event.reason))
            case h11.Data():
                recording.add_response(bytes(event.data))
                client.queue(event)
            case h11.EndOfMessage():
                recording.end()
                await client.send(h11.EndOfMessage(headers=event.headers))
                return False
            case _:
                message = "it ended the connection before the end of its response"
                raise ConnectionResetError(message)


async def _switch(client: HttpConnection, server: HttpConnection) -> None:
    """Pass on the bytes of another protocol, which both sides speak from now on."""
    for source, sink in ((client, server), (server, client)):
        early, _ = source.protocol.trailing_data
        if early:
            await sink.stream.write(early)
    await relay(client.stream, server.stream)
