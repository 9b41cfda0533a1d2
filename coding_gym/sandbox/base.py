"""Base class of sandboxes."""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from coding_gym.client.address import Address
from coding_gym.errors import CodingGymError, ConfigurationError, SandboxStartError, TransportError

if TYPE_CHECKING:
    from coding_gym.client.session import Session
    from coding_gym.client.shared_connection import SharedConnection

__all__ = ["Sandbox", "check_exit_code", "wait_until_ready"]

_POLL_SECONDS = 0.01

_open_sandboxes: weakref.WeakSet[Sandbox] = weakref.WeakSet()


class Sandbox(ABC):
    """A running sandbox.

    Args:
        address: Address of its server.
        description: One-line description.
    """

    def __init__(self, address: Address, description: str) -> None:
        self.address = address
        self.description = description
        self._owner = os.getpid()
        self._closed = False
        self._shared: SharedConnection | None = None
        self._sharing = threading.Lock()
        _open_sandboxes.add(self)

    def connect(self, *, timeout: float = 10.0, fork_of: str | None = None) -> Session:
        """Open a session.

        Args:
            timeout: Connection timeout in seconds.
            fork_of: See ``Session``.

        Raises:
            TransportError: If the server cannot be reached.
        """
        from coding_gym.client.session import Session

        return Session(self.address, connect_timeout=timeout, fork_of=fork_of)

    def connect_shared(self, *, timeout: float = 10.0) -> Session:
        """Open a session on the connection that all such sessions share.

        Args:
            timeout: Connection timeout in seconds.

        Raises:
            TransportError: If the server cannot be reached.
        """
        from coding_gym.client.session import Session
        from coding_gym.client.shared_connection import SharedConnection

        while True:
            with self._sharing:
                if self._shared is None or not self._shared.is_open:
                    self._shared = SharedConnection(self.address, timeout=timeout)
                shared = self._shared
            channel = shared.open(timeout=timeout)
            # Otherwise another thread has closed the last session.
            if channel is not None:
                return Session(self.address, channel=channel)

    def batch(self) -> contextlib.AbstractContextManager[None]:
        """Let the sessions of the shared connection send their requests together, at the end of the block."""
        return contextlib.nullcontext() if self._shared is None else self._shared.batch()

    def health(self, *, timeout: float = 10.0) -> dict[str, Any]:
        """Return the server's report at ``/health``: its status, its numbers of sessions and their isolation.

        Raises:
            TransportError: If it does not answer in time.
            ProtocolError: If it is not a coding_gym server.
        """
        from coding_gym.client.http import get_json

        health: dict[str, Any] = get_json(self.address, "/health", timeout=timeout)
        return health

    def is_healthy(self, *, timeout: float = 10.0) -> bool:
        """Return whether the server answers in time."""
        try:
            return bool(self.health(timeout=timeout)["status"] == "healthy")
        except CodingGymError:
            return False

    @property
    def is_closed(self) -> bool:
        """Whether ``close`` has been called."""
        return self._closed

    def close(self) -> None:
        """Remove the sandbox. Idempotent; does nothing in a fork of the process that started it."""
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
        address: Address of the server.
        timeout: Timeout in seconds.
        explain_death: Returns the reason why the sandbox died, None while it is alive. See ``check_exit_code``.

    Raises:
        ConfigurationError: If it exited because it cannot fulfill its configuration.
        SandboxStartError: If it died, or did not start in time.
        ProtocolError: If it refuses sessions, or is not a coding_gym server.
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
                message = f"The sandbox was not ready within start_timeout={timeout:g} s ({error}). Raise start_timeout"
                raise SandboxStartError(message) from error
            time.sleep(_POLL_SECONDS)
        else:
            return


def check_exit_code(code: int | None, log: str) -> None:
    """Raise if a server exited because it cannot fulfill its configuration.

    Args:
        code: Exit code of the server.
        log: End of its output.

    Raises:
        ConfigurationError: If the exit code is ``EX_CONFIG``.
    """
    if code == os.EX_CONFIG:
        message = f"The sandbox cannot fulfill its configuration: {log}"
        raise ConfigurationError(message)


@atexit.register
def _close_all() -> None:
    for sandbox in list(_open_sandboxes):
        sandbox.close()
