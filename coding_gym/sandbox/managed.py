"""A sandbox that is started on first use and replaced when it dies."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Self

from coding_gym._validation import CLOSED_ENVIRONMENT
from coding_gym.errors import ProtocolError, SandboxStartError, TransportError
from coding_gym.sandbox.base import Sandbox
from coding_gym.sandbox.config import SandboxConfig
from coding_gym.sandbox.start import start_sandbox

if TYPE_CHECKING:
    from coding_gym.client.session import Session

__all__ = ["ManagedSandbox"]

_CONNECT_SECONDS = 5.0
"""Connection timeout in seconds, after which a sandbox is considered dead."""


class ManagedSandbox:
    """Holds one sandbox. Thread-safe.

    Args:
        config: Configuration of the sandbox.
        fork_of: Id of the fork that blocking connections belong to; see ``Session``.
    """

    def __init__(self, config: SandboxConfig, *, fork_of: str | None = None) -> None:
        self.config = config
        self._fork_of = fork_of
        self._lock = threading.Lock()
        self._sandbox: Sandbox | None = None
        self._closed = False
        self._users = 1

    @property
    def sandbox(self) -> Sandbox | None:
        """The sandbox, None before its start and after ``close``."""
        return self._sandbox

    def start(self) -> None:
        """Start the sandbox if none is alive.

        Raises:
            ProviderError: If it cannot be started.
        """
        self.connect().close()

    @property
    def may_lose_servers(self) -> bool:
        """Whether the sandbox is a server that may be lost, and episodes then end with ``info["lost"]``."""
        return False

    @property
    def _attempts(self) -> int:
        """Maximum number of sandboxes to try."""
        return 2

    def connect(self, *, canceled: threading.Event | None = None) -> Session:
        """Open a session, in a new sandbox if the old one does not answer.

        Args:
            canceled: Is set before ``stop_waiting`` is called.

        Raises:
            concurrent.futures.CancelledError: If it is while the caller waits for a pool.
            ProviderError: If there is no sandbox, and a new one cannot be started.
            TransportError: If the new sandbox does not answer either.
        """
        for left in reversed(range(self._attempts)):
            sandbox = self.obtain(canceled=canceled)
            try:
                if self.config.sessions > 1 and self._fork_of is None:
                    return sandbox.connect_shared(timeout=_CONNECT_SECONDS)
                return sandbox.connect(timeout=_CONNECT_SECONDS, fork_of=self._fork_of)
            except (TransportError, ProtocolError):
                self.give_up(sandbox)
                if not left:
                    raise
        raise AssertionError

    def obtain(self, *, canceled: threading.Event | None = None) -> Sandbox:
        """Return the sandbox, dead or alive; start one if there is none.

        Args:
            canceled: See ``connect``.

        Raises:
            ProviderError: If it cannot be started.
        """
        with self._lock:
            if self._closed:
                raise SandboxStartError(CLOSED_ENVIRONMENT)
            if self._sandbox is None:
                self._sandbox = start_sandbox(self.config)
            return self._sandbox

    def obtain_free(self) -> Sandbox | None:
        """Return the sandbox, dead or alive, without waiting for one; None if there is none."""
        return self._sandbox

    def stop_waiting(self) -> None:
        """Let ``obtain`` fail in a thread that waits for a pool."""

    def give_up(self, sandbox: Sandbox) -> None:
        """Remove a sandbox that does not answer, if it has not been replaced already."""
        with self._lock:
            if self._sandbox is sandbox:
                self._sandbox = None
                sandbox.close()

    def leave_full(self) -> bool:
        """Give up the sandbox because it has no free session; return whether another one may be waited for."""
        return False

    def begin_episode(self) -> bool:
        """Count another episode in the same session; return whether the sandbox may run it."""
        return True

    def share(self) -> Self:
        """Return this object for another user, who closes it, too."""
        with self._lock:
            self._users += 1
        return self

    def close(self) -> None:
        """Remove the sandbox if this is its last user's call. Idempotent afterwards."""
        with self._lock:
            self._users -= 1
            is_last = self._users <= 0
        if is_last:
            self._remove()

    def _remove(self) -> None:
        with self._lock:
            self._closed = True
            if self._sandbox is not None:
                self._sandbox.close()
                self._sandbox = None
