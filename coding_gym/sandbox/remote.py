"""The remote provider: an already running server."""

from __future__ import annotations

import time
import weakref

from coding_gym.client.address import Address
from coding_gym.client.session import Session
from coding_gym.errors import SandboxStartError, TransportError, TransportTimeoutError
from coding_gym.sandbox.base import Sandbox

__all__ = ["RemoteSandbox", "start_remote"]

_REFUSED_SECONDS = 2.0
"""Seconds within which a server that is being started must listen."""

_POLL_SECONDS = 0.05


class RemoteSandbox(Sandbox):
    """A running server; ``close`` does not stop it."""

    def __init__(self, address: Address, description: str) -> None:
        super().__init__(address, description)
        self._sessions: weakref.WeakSet[Session] = weakref.WeakSet()

    @property
    def open_sessions(self) -> list[Session]:
        """The sessions there that this object has opened, and that have not ended."""
        return [session for session in list(self._sessions) if not session.is_lost]

    def connect(self, *, timeout: float = 10.0, fork_of: str | None = None) -> Session:
        session = super().connect(timeout=timeout, fork_of=fork_of)
        self._add(session)
        return session

    def connect_shared(self, *, timeout: float = 10.0) -> Session:
        session = super().connect_shared(timeout=timeout)
        self._add(session)
        return session

    def _add(self, session: Session) -> None:
        self._sessions.add(session)

    def _remove(self) -> None:
        pass


def start_remote(address: Address, *, timeout: float) -> RemoteSandbox:
    """Wait for a server.

    Args:
        address: Its address.
        timeout: Timeout in seconds.

    Raises:
        SandboxStartError: If it does not answer in time, or nothing listens within two seconds.
        ProtocolError: If it refuses sessions, or is not a coding_gym server.
    """
    started = time.monotonic()
    while True:
        waited = time.monotonic() - started
        try:
            Session(address, connect_timeout=max(timeout - waited, _POLL_SECONDS)).close()
        except TransportError as error:
            # A busy server does not answer in time; where there is none, the connection fails at once.
            patience = timeout
            if not isinstance(error, TransportTimeoutError):
                patience = min(patience, _REFUSED_SECONDS)
            if time.monotonic() - started > patience:
                message = f"There is no server at base_url=: {error}"
                raise SandboxStartError(message) from error
            time.sleep(_POLL_SECONDS)
        else:
            return RemoteSandbox(address, f"the server at {address}")
