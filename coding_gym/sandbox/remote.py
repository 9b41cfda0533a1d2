"""The remote provider: an already running server."""

from __future__ import annotations

import time

from coding_gym.client.address import Address
from coding_gym.client.session import Session
from coding_gym.errors import SandboxStartError, TransportError, TransportTimeoutError
from coding_gym.sandbox.base import Sandbox
from coding_gym.sandbox.config import SandboxConfig

__all__ = ["RemoteSandbox", "start_remote"]

_REFUSED_SECONDS = 2.0
"""Seconds within which a server that is being started must listen."""

_POLL_SECONDS = 0.05


class RemoteSandbox(Sandbox):
    """A running server; ``close`` does not stop it."""

    def _remove(self) -> None:
        pass


def start_remote(config: SandboxConfig) -> RemoteSandbox:
    """Wait for the server at ``config.base_url``.

    Raises:
        SandboxStartError: If it does not answer within ``config.start_timeout``, or nothing listens within two seconds.
        ProtocolError: If it refuses sessions, or is not a coding_gym server.
    """
    assert config.base_url is not None
    address = Address.of_url(config.base_url, token=config.token)
    started = time.monotonic()
    while True:
        waited = time.monotonic() - started
        try:
            Session(address, connect_timeout=max(config.start_timeout - waited, _POLL_SECONDS)).close()
        except TransportError as error:
            # A busy server does not answer in time; where there is none, the connection fails at once.
            patience = config.start_timeout
            if not isinstance(error, TransportTimeoutError):
                patience = min(patience, _REFUSED_SECONDS)
            if time.monotonic() - started > patience:
                message = f"There is no server at base_url=: {error}"
                raise SandboxStartError(message) from error
            time.sleep(_POLL_SECONDS)
        else:
            return RemoteSandbox(address, f"the server at {address}")
