"""What every provider's sandboxes have in common."""

from __future__ import annotations

import atexit
import os
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from coding_gym.client.address import Address
from coding_gym.errors import CodingGymError, SandboxStartError, TransportError

if TYPE_CHECKING:
    from coding_gym.client.session import Session

__all__ = ["Sandbox", "wait_until_ready"]

_POLL_SECONDS = 0.01

_open_sandboxes: weakref.WeakSet[Sandbox] = weakref.WeakSet()


class Sandbox(ABC):
    """A running sandbox.

    Args:
        address: Where its server is.
        description: What it is, in a line.
    """

    def __init__(self, address: Address, description: str) -> None:
        self.address = address
        self.description = description
        self._owner = os.getpid()
        self._closed = False
        _open_sandboxes.add(self)

    def connect(self, *, timeout: float = 10.0) -> Session:
        """Open a session.

        Raises:
            TransportError: The server cannot be reached.
        """
        from coding_gym.client.session import Session

        return Session(self.address, connect_timeout=timeout)

    def health(self, *, timeout: float = 10.0) -> dict[str, Any]:
        """Return what the server says of itself at ``/health``: its status, and what isolates its sessions.

        Raises:
            TransportError: It does not answer in time.
            ProtocolError: It is no server of ours.
        """
        from coding_gym.client.http import get_json

        health: dict[str, Any] = get_json(self.address, "/health", timeout=timeout)
        return health

    def is_healthy(self, *, timeout: float = 10.0) -> bool:
        """Say whether the server answers in time."""
        try:
            return bool(self.health(timeout=timeout)["status"] == "healthy")
        except CodingGymError:
            return False

    def close(self) -> None:
        """Remove the sandbox and all in it; harmless when closed already, and in a fork of the process that started it."""
        if self._closed or os.getpid() != self._owner:
            return
        self._closed = True
        _open_sandboxes.discard(self)
        self._remove()

    @abstractmethod
    def _remove(self) -> None:
        """Remove the sandbox."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.description}>"


def wait_until_ready(address: Address, *, timeout: float, explain_death: Callable[[], str | None]) -> None:
    """Wait until a server accepts sessions.

    Args:
        address: Where it will be.
        timeout: Seconds to wait.
        explain_death: Says why the sandbox is dead; None while it lives.

    Raises:
        SandboxStartError: It died, or did not come up in time.
        ProtocolError: It refuses sessions, or is something else.
    """
    from coding_gym.client.session import Session

    deadline = time.monotonic() + timeout
    while True:
        try:
            Session(address, connect_timeout=max(deadline - time.monotonic(), _POLL_SECONDS)).close()
        except TransportError as error:
            reason = explain_death()
            if reason is not None:
                message = f"The sandbox ended before it was ready: {reason}"
                raise SandboxStartError(message) from error
            if time.monotonic() > deadline:
                message = f"The sandbox was not ready within start_timeout={timeout:g} s ({error}). Raise start_timeout?"
                raise SandboxStartError(message) from error
            time.sleep(_POLL_SECONDS)
        else:
            return


@atexit.register
def _close_all() -> None:
    for sandbox in list(_open_sandboxes):
        sandbox.close()
