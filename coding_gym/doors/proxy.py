"""A proxy for HTTP and HTTPS behind a door, which keeps to the rules of an ``Egress``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from http import HTTPStatus

import h11

from coding_gym.doors.egress import Egress, EgressError, Endpoint
from coding_gym.doors.exchanges import Recording
from coding_gym.doors.http import Forwarder, HttpConnection, end_to_end, report_failure, serve_http, upgrade_of
from coding_gym.doors.streams import ByteStream, DoorStream, SocketStream, relay
from coding_gym.doors.tls import MAX_HELLO_BYTES, ClientHelloError, server_name

__all__ = ["EgressProxy"]

_HTTP_PORT = 80
_TLS_BEGINS = b"\x16"


class EgressProxy:
    """One connection of a session to its proxy.

    Args:
        egress: The rules.
        stream: The connection.
        forwarder: Passes on requests.
        record: Adds a request to the log.
    """

    def __init__(
        self, egress: Egress, stream: DoorStream, forwarder: Forwarder, record: Callable[[h11.Request], Recording]
    ) -> None:
        self._egress = egress
        self._stream = stream
        self._forwarder = forwarder
        self._record = record

    async def answer(self, request: h11.Request, client: HttpConnection) -> None:
        """Answer a request to the proxy."""
        recording = self._record(request)
        target = request.target.decode("latin-1")
        try:
            if request.method == b"CONNECT":
                await self._tunnel(Endpoint.parse(target), client, recording)
                return
            scheme, separator, rest = target.partition("://")
            if not separator or scheme.lower() != "http":
                message = f"{target!r:.300} is not an http:// URL, which requests to a proxy have"
                raise EgressError(message)
            authority, path = _split(rest)
            await self._forward(Endpoint.parse(authority, _HTTP_PORT), path, request, client, recording)
        except EgressError as error:
            await _refuse(client, recording, error)

    async def _forward(
        self, endpoint: Endpoint, path: str, request: h11.Request, client: HttpConnection, recording: Recording
    ) -> None:
        """Pass on a request to its server.

        Raises:
            EgressError: If the rules refuse it.
        """
        self._egress.check(endpoint)
        host = endpoint.host if endpoint.port == _HTTP_PORT else str(endpoint)
        headers = [header for header in end_to_end(request.headers) if header[0] != b"host"]
        # The Host header of the program says nothing: it may differ (RFC 9112, section 3.2.2).
        head = h11.Request(
            method=request.method,
            target=path.encode("latin-1"),
            headers=[(b"host", host.encode("ascii")), *headers, *_websocket_upgrade(request)],
        )
        connect = functools.partial(self._connect, endpoint)
        await self._forwarder.forward(client, head, recording, name=str(endpoint), connect=connect, key=endpoint)

    async def _connect(self, endpoint: Endpoint) -> SocketStream:
        """Connect to one of the addresses of an endpoint.

        Raises:
            EgressError: If the rules refuse them.
            OSError: If none can be reached.
        """
        failure: OSError | None = None
        for address in await self._egress.resolve(endpoint):
            try:
                return await SocketStream.connect(address.host, address.port)
            except OSError as error:
                failure = error
        assert failure is not None
        raise failure

    async def _tunnel(self, endpoint: Endpoint, client: HttpConnection, recording: Recording) -> None:
        """Pass on the bytes of a connection, once it is known whom the program speaks to.

        Raises:
            EgressError: If the rules refuse it.
        """
        may_be_raw = self._egress.check(endpoint)
        # The body of the request: there is none.
        while not isinstance(await client.next_event(), (h11.EndOfMessage, h11.ConnectionClosed)):
            pass
        try:
            server = await self._connect(endpoint)
        except OSError as error:
            await report_failure(client, recording, str(endpoint), error)
            return
        try:
            recording.begin_response(HTTPStatus.OK, [])
            await client.send(h11.Response(status_code=HTTPStatus.OK, headers=[]))
            early, _ = client.protocol.trailing_data
            program = _Resumed(self._stream, early)
            if not may_be_raw:
                if not await program.begins_with(_TLS_BEGINS):
                    server.abort()
                    recording.end()
                    await serve_http(program, _Inside(self, endpoint).answer)
                    return
                await self._check_name(program, endpoint, recording)
            recording.end()
            await relay(program, server)
        finally:
            server.abort()

    async def _check_name(self, program: _Resumed, endpoint: Endpoint, recording: Recording) -> None:
        """Check that a program asks for the host that it has named to the proxy.

        Raises:
            ConnectionResetError: If it does not.
        """
        try:
            while (name := server_name(program.seen)) is None:
                if len(program.seen) > MAX_HELLO_BYTES or not await program.see_more():
                    message = "the ClientHello does not end"
                    raise ClientHelloError(message)
        except ClientHelloError as error:
            # A client names no address (RFC 6066, section 3).
            if endpoint.address is None:
                recording.refuse(f"{endpoint}: {error}")
                raise ConnectionResetError from error
            return
        if name.removesuffix(".") != endpoint.host:
            recording.refuse(f"{endpoint}: the ClientHello names {name!r:.300} instead")
            raise ConnectionResetError


class _Inside:
    """Requests in a tunnel without TLS.

    Args:
        proxy: The connection of the tunnel.
        endpoint: Where the tunnel leads to.
    """

    def __init__(self, proxy: EgressProxy, endpoint: Endpoint) -> None:
        self._proxy = proxy
        self._endpoint = endpoint

    async def answer(self, request: h11.Request, client: HttpConnection) -> None:
        """Answer a request."""
        recording = self._proxy._record(request)
        try:
            if not request.target.startswith((b"/", b"*")):
                message = f"a tunnel to {self._endpoint} leads to no other server"
                raise EgressError(message)
            path = request.target.decode("latin-1")
            await self._proxy._forward(self._endpoint, path, request, client, recording)
        except EgressError as error:
            await _refuse(client, recording, error)


class _Resumed:
    """A stream whose first bytes have been read already.

    Args:
        stream: The stream.
        seen: What has been read of it.

    Attributes:
        seen: What has been read, and not been passed on.
    """

    def __init__(self, stream: ByteStream, seen: bytes) -> None:
        self._stream = stream
        self.seen = seen

    @property
    def has_ended(self) -> bool:
        """See ``ByteStream.has_ended``."""
        return self._stream.has_ended

    async def see_more(self) -> bool:
        """Read more bytes, which remain to be passed on; return whether there are any."""
        data = await self._stream.read()
        self.seen += data
        return bool(data)

    async def begins_with(self, beginning: bytes) -> bool:
        """Return whether the stream begins with these bytes."""
        while len(self.seen) < len(beginning) and await self.see_more():
            pass
        return self.seen.startswith(beginning)

    async def read(self) -> bytes:
        """See ``ByteStream.read``."""
        if self.seen:
            data, self.seen = self.seen, b""
            return data
        return await self._stream.read()

    async def write(self, data: bytes) -> None:
        """See ``ByteStream.write``."""
        await self._stream.write(data)

    async def write_eof(self) -> None:
        """See ``ByteStream.write_eof``."""
        await self._stream.write_eof()

    def abort(self) -> None:
        """See ``ByteStream.abort``."""
        self._stream.abort()


def _websocket_upgrade(request: h11.Request) -> list[tuple[bytes, bytes]]:
    """Return the headers of an upgrade to a WebSocket: in other protocols, requests could name other hosts."""
    upgrade = upgrade_of(request.headers)
    return upgrade if all(value.lower() == b"websocket" for name, value in upgrade if name == b"upgrade") else []


def _split(rest: str) -> tuple[str, str]:
    """Split a URL, without its scheme, into the authority and the path with the query."""
    end = min((at for at in map(rest.find, "/?#") if at >= 0), default=len(rest))
    path = rest[end:].partition("#")[0]
    return rest[:end], path if path.startswith("/") else f"/{path}"


async def _refuse(client: HttpConnection, recording: Recording, error: EgressError) -> None:
    recording.refuse(str(error))
    if client.can_respond:
        recording.begin_response(HTTPStatus.FORBIDDEN, [])
        await client.respond(HTTPStatus.FORBIDDEN, f"This sandbox may not reach it: {error}\n")
