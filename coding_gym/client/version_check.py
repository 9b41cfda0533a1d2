"""Wire-protocol version check, when a client connects to a server."""

from __future__ import annotations

from coding_gym.client.address import Address
from coding_gym.errors import ProtocolVersionError
from coding_gym_server.protocol import PROTOCOL_VERSION, PROTOCOL_VERSION_HEADER

__all__ = ["VERSION_HEADERS", "check_version"]

VERSION_HEADERS = {PROTOCOL_VERSION_HEADER: str(PROTOCOL_VERSION)}
"""The request headers that tell a server the client's version."""

_UNVERSIONED = 0
"""The version of servers that report none."""


def check_version(address: Address, reported: object) -> None:
    """Raise if a server does not speak this client's version of the wire protocol.

    Args:
        address: The server.
        reported: The version that it reports, as an integer or its digits; None if it reports none.

    Raises:
        ProtocolVersionError: If the versions differ.
    """
    text = str(reported)
    version = int(text) if text.isascii() and text.isdigit() else _UNVERSIONED
    if version != PROTOCOL_VERSION:
        raise ProtocolVersionError(address=str(address), client_version=PROTOCOL_VERSION, server_version=version)
