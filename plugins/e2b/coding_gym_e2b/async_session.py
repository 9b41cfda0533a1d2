"""A session on a server, for asyncio. Canceling a request interrupts it, and the session stays usable."""

from __future__ import annotations

import asyncio
import contextlib
import math
from typing import Any

import msgspec
from websockets.asyncio.client import ClientConnection, connect, unix_connect
from websockets.exceptions import InvalidHandshake, WebSocketException

from coding_gym.client.address import Address
from coding_gym.client.connection import MAX_MESSAGE_BYTES, MessageDecoder, with_query
from coding_gym.client.session import (
    SNAPSHOT_TIMEOUT,
    SessionHttp,
    expect_forks,
    expect_observation,
    expect_reset,
    expect_screen,
    expect_snapshot,
    fork_query,
    no_access,
    take_releases,
)
from coding_gym.client.version_check import VERSION_HEADERS, check_version
from coding_gym.errors import ProtocolError, ProtocolVersionError, TransportError, TransportTimeoutError
from coding_gym_server.protocol import (
    PROTOCOL_VERSION_HEADER,
    CloneRequest,
    ForkOptions,
    ForkRequest,
    InterruptRequest,
    ObservationData,
    Request,
    ResetOptions,
    ResetRequest,
    Response,
    RestoreOptions,
    RestoreRequest,
    Screen,
    ScreenRequest,
    ScreenRequestOptions,
    SnapshotData,
    StepAction,
    StepRequest,
)
from coding_gym_server.protocol.processes import SESSION_HEADER

__all__ = ["AsyncSession"]

_INTERRUPT_TIMEOUT = 30.0
"""Timeout of the response to an interrupted request in seconds; the server kills the request long before."""

_encoder = msgspec.msgpack.Encoder()
_decoder: MessageDecoder[Response] = MessageDecoder(Response)


class AsyncSession:
    """A session, which ends with its connection. Create it with ``AsyncSession.connect``; for one task at a time.

    Args:
        address: Address of the server.
        connection: The connection.
    """

    def __init__(self, address: Address, connection: ClientConnection) -> None:
        self._address = address
        self._connection = connection
        self._pending_responses = 0
        self._releases: list[str] = []
        assert connection.response is not None
        self._session_id = connection.response.headers.get(SESSION_HEADER)
        self._http: SessionHttp | None = None

    @classmethod
    async def connect(cls, address: Address, *, timeout: float = 10.0, fork_of: str | None = None) -> AsyncSession:
        """Open a session.

        Args:
            address: Address of the server.
            timeout: Connection timeout in seconds.
            fork_of: See ``Session``.

        Raises:
            TransportError: If the server cannot be reached.
            ProtocolVersionError: If the server speaks another version of the wire protocol.
            ProtocolError: If the endpoint does not accept the connection.
        """
        options: dict[str, Any] = {
            "additional_headers": {**address.headers, **VERSION_HEADERS},
            "compression": None,
            "max_size": MAX_MESSAGE_BYTES,
            "open_timeout": timeout,
            # TCP keepalive instead: pings would require a response while a policy keeps the event loop busy.
            "ping_interval": None,
        }
        url = with_query(address.websocket_url, fork_query(fork_of))
        try:
            if address.socket_path is not None:
                connection = await unix_connect(address.socket_path, uri=url, **options)
            else:
                connection = await connect(url, proxy=None, **options)
        except TimeoutError as error:
            message = f"No connection to {address} within {timeout:g} s"
            raise TransportTimeoutError(message) from error
        except OSError as error:
            message = f"No connection to {address}: {error.strerror or error}{address.advice}"
            raise TransportError(message) from error
        except InvalidHandshake as error:
            message = (
                f"{address} does not accept a session: {error}. "
                "Check that it is a coding_gym server and that the token is correct"
            )
            raise ProtocolError(message) from error
        except WebSocketException as error:
            message = f"No connection to {address}: {error}"
            raise TransportError(message) from error
        session = cls(address, connection)
        try:
            assert connection.response is not None
            check_version(address, connection.response.headers.get(PROTOCOL_VERSION_HEADER))
        except ProtocolVersionError:
            session.close()
            raise
        return session

    async def reset(self, options: ResetOptions, *, timeout: float) -> ObservationData:
        """Begin an episode.

        Args:
            options: Options of the reset.
            timeout: Response timeout in seconds, after which the session is unusable.

        Raises:
            TransportError: If the server does not respond.
            ConfigurationError: If the server cannot fulfill an option.
            CapacityError: If the server has no free session.
            ProtocolError: If the response is another error, or an unexpected message.
        """
        await self._send_releases()
        return expect_reset(await self._request(ResetRequest(options), timeout))

    async def step(self, action: StepAction, *, timeout: float) -> ObservationData:
        """Run an action; canceling the call interrupts the code.

        Args:
            action: The action.
            timeout: Response timeout in seconds, after which the session is unusable.

        Raises:
            TransportError: If the server does not respond.
            ProtocolError: If the response is an error, or an unexpected message.
        """
        return expect_observation(await self._request(StepRequest(action), timeout))

    async def request_screen(self, options: ScreenRequestOptions, *, timeout: float) -> Screen:
        """Return the current screen.

        Args:
            options: The region to capture.
            timeout: Response timeout in seconds, after which the session is unusable.

        Raises:
            TransportError: If the server does not respond.
            ProtocolError: If the server refuses, or sends an unexpected message.
        """
        return expect_screen(await self._request(ScreenRequest(options), timeout))

    async def clone(self, *, timeout: float) -> SnapshotData:
        """Take a snapshot.

        Args:
            timeout: Response timeout in seconds, after which the session is unusable.

        Raises:
            SnapshotError: If the session cannot be copied.
            TransportError: If the server does not respond.
            ProtocolError: If the response is another error, or an unexpected message.
        """
        await self._send_releases()
        return expect_snapshot(await self._request(CloneRequest(), timeout))

    async def fork(self, count: int, *, timeout: float) -> list[str]:
        """Return ``count`` ids for sessions with ``fork_of``, each of which can be restored once, to the present state.

        Args:
            count: Number of sessions.
            timeout: Response timeout in seconds, after which the session is unusable.

        Raises:
            SnapshotError: If the session cannot be copied.
            TransportError: If the server does not respond.
            ProtocolError: If the response is another error, or an unexpected message.
        """
        await self._send_releases()
        return expect_forks(await self._request(ForkRequest(ForkOptions(count)), timeout))

    async def restore(self, snapshot: str, *, seed: int | None, release: bool = False, timeout: float) -> ObservationData:
        """Replace the session's state by that of a snapshot.

        Args:
            snapshot: Its id.
            release: Whether it ends.
            seed: Seed of the random number generators; None leaves them in their state.
            timeout: Response timeout in seconds, after which the session is unusable.

        Raises:
            SnapshotError: If the snapshot cannot be restored.
            TransportError: If the server does not respond.
            ProtocolError: If the response is another error, or an unexpected message.
        """
        await self._send_releases()
        options = RestoreOptions(snapshot=snapshot, seed=seed, release=release)
        return expect_observation(await self._request(RestoreRequest(options), timeout))

    def release_later(self, snapshot: str) -> None:
        """Release a snapshot before the next one is taken or restored, or the next reset."""
        self._releases.append(snapshot)

    def release(self, snapshot: str) -> None:
        """Release a snapshot, as ``release_later`` does: requests need the event loop."""
        self.release_later(snapshot)

    async def _send_releases(self) -> None:
        request = take_releases(self._releases)
        if request is not None:
            await self._request(request, SNAPSHOT_TIMEOUT)

    @property
    def http(self) -> SessionHttp:
        """The processes and files of the session; its methods block.

        Raises:
            ProtocolError: If the server does not offer them.
        """
        if self._http is None:
            self._http = SessionHttp(self._address, self._session_id)
        return self._http

    @property
    def address(self) -> Address:
        """Address of the server."""
        return self._address

    @property
    def id(self) -> str:
        """Id of the session, by which HTTP requests address its processes and files.

        Raises:
            ProtocolError: If the server sent none.
        """
        if self._session_id is None:
            raise ProtocolError(no_access(self._address))
        return self._session_id

    @property
    def is_lost(self) -> bool:
        """Whether its connection has ended."""
        return bool(self._connection.transport.is_closing())

    def close(self) -> None:
        """End the session without waiting for the server, from any thread. Idempotent."""
        loop, end = self._connection.loop, self._connection.transport.abort
        if loop is _running_loop():
            end()
        else:
            # The event loop may have ended, and the connection with it.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(end)
        if self._http is not None:
            self._http.close()

    async def _request(self, request: Request, timeout: float) -> Response:
        # Responses arrive in order: skip those to canceled requests.
        while self._pending_responses:
            await self._receive(_INTERRUPT_TIMEOUT)
        self._pending_responses += 1
        try:
            await self._send(request)
            return await self._receive(timeout)
        except asyncio.CancelledError:
            if isinstance(request, StepRequest):
                await self._send(InterruptRequest())
            raise

    async def _send(self, message: msgspec.Struct) -> None:
        # If the connection is broken, the next read reports it, after the server's last message.
        with contextlib.suppress(WebSocketException):
            await self._connection.send(_encoder.encode(message))

    async def _receive(self, timeout: float) -> Response:
        try:
            async with asyncio.timeout(timeout if math.isfinite(timeout) else None):
                frame = await self._connection.recv()
        except TimeoutError as error:
            message = f"{self._address} did not answer within {timeout:g} s"
            raise TransportTimeoutError(message) from error
        except WebSocketException as error:
            raise self._broken(error) from error
        self._pending_responses -= 1
        is_text = isinstance(frame, str)
        return _decoder.decode(frame.encode() if isinstance(frame, str) else frame, is_text=is_text)

    def _broken(self, error: WebSocketException) -> TransportError:
        return TransportError(f"The connection to {self._address} broke: {error}")


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
