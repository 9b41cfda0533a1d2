"""A place for one sandbox that is there when it is needed: started at first use, replaced when it has died."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

from coding_gym.config import SandboxConfig
from coding_gym.errors import ProtocolError, SandboxStartError, TransportError
from coding_gym.providers.base import Sandbox
from coding_gym.providers.choice import start_sandbox

if TYPE_CHECKING:
    from coding_gym.client.async_session import AsyncSession
    from coding_gym.client.session import Session

__all__ = ["SandboxSlot"]

_CONNECT_SECONDS = 5.0
"""Seconds after which a sandbox that does not take a connection is given up."""


class SandboxSlot:
    """Holds one sandbox of its own. Its methods may be called from any thread.

    Args:
        config: What to start it with.
    """

    def __init__(self, config: SandboxConfig) -> None:
        self.config = config
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

    @property
    def _attempts(self) -> int:
        """How many sandboxes to try before giving up."""
        return 2

    def connect(self) -> Session:
        """Open a session, in a new sandbox if the old one does not answer.

        Raises:
            ProviderError: There is none, and a new one cannot be had.
            TransportError: Not even the new one answers.
        """
        for left in reversed(range(self._attempts)):
            sandbox = self.obtain()
            try:
                return sandbox.connect(timeout=_CONNECT_SECONDS)
            except (TransportError, ProtocolError):
                self.give_up(sandbox)
                if not left:
                    raise
        raise AssertionError

    async def connect_async(self) -> AsyncSession:
        """Do what ``connect`` does, without blocking the event loop."""
        from coding_gym.client.async_session import AsyncSession

        for left in reversed(range(self._attempts)):
            sandbox = await self.obtain_async()
            try:
                return await AsyncSession.connect(sandbox.address, timeout=_CONNECT_SECONDS)
            except (TransportError, ProtocolError):
                await asyncio.to_thread(self.give_up, sandbox)
                if not left:
                    raise
        raise AssertionError

    def obtain(self) -> Sandbox:
        """Return the sandbox, dead or alive; starts one if there is none.

        Raises:
            ProviderError: It cannot be had.
        """
        with self._lock:
            if self._closed:
                message = "The environment is closed. Make a new one."
                raise SandboxStartError(message)
            if self._sandbox is None:
                self._sandbox = start_sandbox(self.config)
            return self._sandbox

    async def obtain_async(self) -> Sandbox:
        """Do what ``obtain`` does, without blocking the event loop."""
        return await asyncio.to_thread(self.obtain)

    def give_up(self, sandbox: Sandbox) -> None:
        """Remove a sandbox that does not answer, if it is still the one that is held."""
        with self._lock:
            if self._sandbox is sandbox:
                self._sandbox = None
                sandbox.close()

    def begin_episode(self) -> bool:
        """Count another episode in the same session; says whether the sandbox may have it."""
        return True

    def close(self) -> None:
        """Remove the sandbox; harmless when closed already."""
        with self._lock:
            self._closed = True
            if self._sandbox is not None:
                self._sandbox.close()
                self._sandbox = None
