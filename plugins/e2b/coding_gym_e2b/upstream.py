"""Requests of the gateway to the server of a session."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from coding_gym.client.address import Address
from coding_gym.errors import ProtocolError, TransportError
from coding_gym_e2b.async_http import AsyncHttpClient, AsyncResponse
from coding_gym_e2b.failures import Code, RpcError

__all__ = ["SessionServer"]

_CODES = {
    404: Code.NOT_FOUND,
    409: Code.FAILED_PRECONDITION,
    410: Code.UNAVAILABLE,
    422: Code.INVALID_ARGUMENT,
    429: Code.RESOURCE_EXHAUSTED,
}
_SHOWN_BYTES = 2000


class SessionServer:
    """The routes of a session on its server.

    Args:
        address: Address of the server.
        session_id: Id of the session.
    """

    def __init__(self, address: Address, session_id: str) -> None:
        self._http = AsyncHttpClient(address)
        self._base = f"/sessions/{session_id}"

    @contextlib.asynccontextmanager
    async def stream(self, method: str, path: str, body: bytes = b"") -> AsyncIterator[AsyncResponse]:
        """Send a request, and yield the response.

        Args:
            method: ``GET``, ``POST`` ...
            path: Path below that of the session.
            body: Body of the request.

        Raises:
            RpcError: If the server refuses, or does not answer.
        """
        async with self.answer(method, path, body) as response:
            if not response.is_success:
                text = (await response.read())[:_SHOWN_BYTES].decode(errors="replace")
                raise RpcError(_CODES.get(response.status, Code.UNAVAILABLE), text)
            yield response

    @contextlib.asynccontextmanager
    async def answer(self, method: str, path: str, body: bytes = b"") -> AsyncIterator[AsyncResponse]:
        """Send a request, and yield the response, also if the server refuses; see ``stream``.

        Raises:
            RpcError: If the server does not answer.
        """
        try:
            async with self._http.request(method, f"{self._base}{path}", body=body) as response:
                yield response
        except (TransportError, ProtocolError) as error:
            message = f"the connection to the sandbox ended: {error}"
            raise RpcError(Code.UNAVAILABLE, message) from error

    async def request(self, method: str, path: str, body: bytes = b"") -> bytes:
        """Send a request, and return the body of the response; see ``stream``."""
        async with self.stream(method, path, body) as response:
            return await response.read()
