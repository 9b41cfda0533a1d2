"""HTTP to one server, over TCP or a Unix socket."""

from __future__ import annotations

import contextlib
import http.client
import json
import select
import socket
from collections import deque
from collections.abc import Iterator
from typing import IO, Any

from coding_gym.client.address import Address
from coding_gym.client.connection import open_socket
from coding_gym.errors import ProtocolError, TransportError

__all__ = ["HttpClient", "get_json"]

_MOST_IDLE = 8
_FAULTS = (OSError, http.client.HTTPException)
_SHOWN_CHARS = 2000


class HttpClient:
    """Keeps connections open for the next request; may be used from several threads.

    Args:
        address: The server.
        timeout: Seconds to wait for each part of an answer.
    """

    def __init__(self, address: Address, *, timeout: float = 60.0) -> None:
        self._address = address
        self._timeout = timeout
        self._idle: deque[socket.socket] = deque()

    @contextlib.contextmanager
    def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | IO[bytes] | None = None,
        missing: str | None = None,
        timeout: float | None = None,
    ) -> Iterator[http.client.HTTPResponse]:
        """Make a request; within the block its answer can be read.

        Args:
            method: ``GET``, ``POST`` ...
            path: The path, with its query.
            body: What to send.
            missing: The file that a 404 says is not there; None if it says something else.
            timeout: Seconds to wait for each part of the answer, if they are not the client's.

        Raises:
            TransportError: The server does not answer, or stops in the middle.
            FileNotFoundError: There is no such file.
            ProtocolError: It refuses.
        """
        connection = http.client.HTTPConnection("sandbox")
        try:
            connection.sock = sock = self._take() or open_socket(self._address, self._timeout)
            sock.settimeout(timeout or self._timeout)
            connection.request(method, path, body=body, headers=self._address.headers)
            response = connection.getresponse()
            if response.status >= http.client.BAD_REQUEST:
                self._refuse(response, f"{method} {path}", missing)
            yield response
            if response.isclosed() and not response.will_close and len(self._idle) < _MOST_IDLE:
                self._idle.append(sock)
                connection.sock = None
        except _FAULTS as error:
            if isinstance(error, FileNotFoundError) and missing is not None and error.filename == missing:
                raise
            message = f"No answer from {self._address} to {method} {path}: {error or type(error).__name__}"
            raise TransportError(message) from error
        finally:
            connection.close()

    def json(self, response: http.client.HTTPResponse) -> Any:
        """Return the document that an answer holds.

        Raises:
            ProtocolError: It is none.
        """
        try:
            return json.loads(response.read())
        except ValueError as error:
            message = f"{self._address} answers with something that is no JSON"
            raise ProtocolError(message) from error

    def lines(self, response: http.client.HTTPResponse) -> Iterator[bytes]:
        """Yield the lines of an answer as they come."""
        while line := response.readline():
            yield line

    def close(self) -> None:
        """Close the connections that nobody uses."""
        while self._idle:
            self._idle.pop().close()

    def _take(self) -> socket.socket | None:
        while self._idle:
            try:
                sock = self._idle.pop()
            except IndexError:
                break
            if not select.select([sock], [], [], 0)[0]:
                return sock
            # The server has closed it meanwhile.
            sock.close()
        return None

    def _refuse(self, response: http.client.HTTPResponse, what: str, missing: str | None) -> None:
        text = response.read(_SHOWN_CHARS).decode(errors="replace")
        if response.status == http.client.NOT_FOUND and missing is not None:
            raise FileNotFoundError(2, "No such file or directory", missing)
        message = f"{self._address} answers {what} with {response.status} {response.reason}: {text}"
        raise ProtocolError(message)


def get_json(address: Address, path: str, *, timeout: float) -> Any:
    """Return the JSON document at a path of a server.

    Args:
        address: The server.
        path: Where the document is, such as ``/health``.
        timeout: Seconds to wait for each part of the answer.

    Raises:
        TransportError: The server does not answer.
        ProtocolError: Its answer is no JSON, or a refusal.
    """
    client = HttpClient(address, timeout=timeout)
    with contextlib.closing(client), client.request("GET", path) as response:
        return client.json(response)
