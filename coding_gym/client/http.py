"""Single HTTP requests."""

from __future__ import annotations

import contextlib
import http.client
import json
from typing import Any

from coding_gym.client.address import Address
from coding_gym.client.connection import open_socket
from coding_gym.errors import ProtocolError, TransportError

__all__ = ["get_json"]


def get_json(address: Address, path: str, *, timeout: float) -> Any:
    """Return the JSON document at a path of a server.

    Args:
        address: The server.
        path: Where the document is, such as ``/health``.
        timeout: Seconds to wait for each part of the answer.

    Raises:
        TransportError: The server does not answer.
        ProtocolError: Its answer is no JSON, or has another status than 200.
    """
    connection = http.client.HTTPConnection("sandbox")
    try:
        with contextlib.closing(open_socket(address, timeout)) as connection.sock:
            connection.sock.settimeout(timeout)
            connection.request("GET", path, headers=address.headers)
            response = connection.getresponse()
            body = response.read()
    except (OSError, http.client.HTTPException) as error:
        message = f"No answer from {address} to GET {path}: {error or type(error).__name__}"
        raise TransportError(message) from error
    try:
        if response.status != http.client.OK:
            message = f"{address} answers GET {path} with {response.status} {response.reason}"
            raise ProtocolError(message)
        return json.loads(body)
    except ValueError as error:
        message = f"{address} answers GET {path} with something that is no JSON"
        raise ProtocolError(message) from error
