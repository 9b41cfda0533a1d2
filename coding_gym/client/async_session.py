"""One session on a server, for an event loop. Cancelling a request interrupts it, and the session stays usable."""

from __future__ import annotations

import asyncio
import contextlib
import math
from typing import Any

import msgspec
from websockets.asyncio.client import ClientConnection, connect, unix_connect
from websockets.exceptions import InvalidHandshake, WebSocketException

from coding_gym.client.address import Address
from coding_gym.client.connection import MAX_MESSAGE_BYTES, MessageDecoder
from coding_gym.client.session import expect_observation, expect_screen
from coding_gym.errors import ProtocolError, TransportError, TransportTimeoutError
from coding_gym_server.protocol import (
    Interrupt,
    Look,
    LookOptions,
    ObservationData,
    Reset,
    ResetOptions,
    Response,
    Screen,
    Step,
    StepAction,
)

__all__ = ["AsyncSession"]

_INTERRUPTED_WITHIN = 30.0
"""Seconds that an interrupted request may take to be answered: it is killed long before."""

_encoder = msgspec.msgpack.Encoder()
_decoder: MessageDecoder[Response] = MessageDecoder(Response)


class AsyncSession:
    """A session. It lives as long as its connection. Made by ``AsyncSession.connect``; for one task at a time.

    Args:
        address: Where the server is.
        connection: The connection.
    """

    def __init__(self, address: Address, connection: ClientConnection) -> None:
        self._address = address
        self._connection = connection
        self._unanswered = 0

    @classmethod
    async def connect(cls, address: Address, *, timeout: float = 10.0) -> AsyncSession:
        """Open a session.

        Args:
            address: Where the server is.
            timeout: Seconds that connecting may take.

        Raises:
            TransportError: The server cannot be reached.
            ProtocolError: There is something, but it does not accept the connection.
        """
        options: dict[str, Any] = {
            "additional_headers": address.headers,
            "compression": None,
            "max_size": MAX_MESSAGE_BYTES,
            "open_timeout": timeout,
            # Keepalive is TCP's: pings would want an answer while a policy keeps the event loop busy.
            "ping_interval": None,
        }
        try:
            if address.socket_path is not None:
                connection = await unix_connect(address.socket_path, uri=address.websocket_url, **options)
            else:
                connection = await connect(address.websocket_url, proxy=None, **options)
        except TimeoutError as error:
            message = f"No connection to {address} within {timeout:g} s"
            raise TransportTimeoutError(message) from error
        except OSError as error:
            message = f"No connection to {address}: {error.strerror or error}"
            raise TransportError(message) from error
        except InvalidHandshake as error:
            message = f"{address} does not accept a session: {error}. Is it a coding_gym server, and the token right?"
            raise ProtocolError(message) from error
        except WebSocketException as error:
            message = f"No connection to {address}: {error}"
            raise TransportError(message) from error
        return cls(address, connection)

    async def reset(self, options: ResetOptions, *, timeout: float) -> ObservationData:
        """Begin an episode.

        Args:
            options: What to ask for.
            timeout: Seconds to wait for the answer; when they are over, the session is of no use any more.

        Raises:
            TransportError: There was no answer.
            CapacityError: The server has no free session.
            ProtocolError: The answer is an error, or no answer at all.
        """
        return expect_observation(await self._request(Reset(options), timeout))

    async def step(self, action: StepAction, *, timeout: float) -> ObservationData:
        """Run an action; when this is cancelled, its code is interrupted.

        Args:
            action: The action.
            timeout: Seconds to wait for the answer; when they are over, the session is of no use any more.

        Raises:
            TransportError: There was no answer.
            ProtocolError: The answer is an error, or no answer at all.
        """
        return expect_observation(await self._request(Step(action), timeout))

    async def look(self, options: LookOptions, *, timeout: float) -> Screen:
        """Return what is on the screen.

        Args:
            options: What to look at.
            timeout: Seconds to wait for the answer; when they are over, the session is of no use any more.

        Raises:
            TransportError: There was no answer.
            ProtocolError: The server refused, or sent no answer at all.
        """
        return expect_screen(await self._request(Look(options), timeout))

    def close(self) -> None:
        """End the session without waiting for anybody; harmless when ended already."""
        self._connection.transport.abort()

    def close_from_thread(self) -> None:
        """Do what ``close`` does, from any thread.

        Raises:
            RuntimeError: The event loop is closed.
        """
        self._connection.loop.call_soon_threadsafe(self.close)

    async def _request(self, request: Reset | Step | Look, timeout: float) -> Response:
        # Answers come in order: those to requests that were cancelled are nobody's.
        while self._unanswered:
            await self._receive(_INTERRUPTED_WITHIN)
        self._unanswered += 1
        try:
            await self._send(request)
            return await self._receive(timeout)
        except asyncio.CancelledError:
            if isinstance(request, Step):
                await self._send(Interrupt())
            raise

    async def _send(self, message: msgspec.Struct) -> None:
        # If the connection is broken, the next read says so, after the last that the server said.
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
        self._unanswered -= 1
        is_text = isinstance(frame, str)
        return _decoder.decode(frame.encode() if isinstance(frame, str) else frame, is_text=is_text)

    def _broken(self, error: WebSocketException) -> TransportError:
        return TransportError(f"The connection to {self._address} broke: {error}")
