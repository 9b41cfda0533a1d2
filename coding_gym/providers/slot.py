"""A place for one sandbox that is there when it is needed: started at first use, replaced when it has died."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from coding_gym.config import SandboxConfig
from coding_gym.errors import ProtocolError, SandboxStartError, TransportError
from coding_gym.providers.base import Sandbox
from coding_gym.providers.choice import start_sandbox

if TYPE_CHECKING:
    from coding_gym.client.session import Session

__all__ = ["SandboxSlot"]

_CONNECT_SECONDS = 5.0


class SandboxSlot:
    """Holds one sandbox. Its methods may be called from any thread.

    Args:
        config: What to start it with.
    """

    def __init__(self, config: SandboxConfig) -> None:
        self._config = config
        self._lock = threading.Lock()
        self._sandbox: Sandbox | None = None
        self._closed = False

    @property
    def sandbox(self) -> Sandbox | None:
        """The sandbox, None before its start and after ``close``."""
        return self._sandbox

    def start(self) -> None:
        """Start the sandbox if there is none that lives.

        Raises:
            ProviderError: It cannot be had.
        """
        self.connect().close()

    def connect(self) -> Session:
        """Open a session, in a new sandbox if the old one does not answer.

        Raises:
            ProviderError: There is none, and a new one cannot be had.
            CapacityError: It has as many sessions as it may have.
        """
        with self._lock:
            if self._closed:
                message = "The environment is closed. Make a new one."
                raise SandboxStartError(message)
            if self._sandbox is not None:
                try:
                    return self._sandbox.connect(timeout=_CONNECT_SECONDS)
                except (TransportError, ProtocolError):
                    self._sandbox.close()
                    self._sandbox = None
            self._sandbox = start_sandbox(self._config)
            return self._sandbox.connect()

    def close(self) -> None:
        """Remove the sandbox; harmless when closed already."""
        with self._lock:
            self._closed = True
            if self._sandbox is not None:
                self._sandbox.close()
                self._sandbox = None
