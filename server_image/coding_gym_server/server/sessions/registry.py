"""Registry of the open sessions, which enforces the session limit."""

from __future__ import annotations

from pathlib import Path

from coding_gym_server.server.sessions.session import ServerSession, SessionDefaults
from coding_gym_server.server.supervisor.display_handle import DisplayFactory
from coding_gym_server.server.supervisor.executor_pool import ExecutorPool

__all__ = ["SessionLimitError", "SessionRegistry"]


class SessionLimitError(RuntimeError):
    """The server's session limit has been reached.

    Attributes:
        active: Number of open sessions.
        limit: Maximum number of open sessions.
    """

    def __init__(self, active: int, limit: int) -> None:
        super().__init__(
            f"Server at capacity: {active}/{limit} sessions active. Close one, start another sandbox, or raise --max-sessions."
        )
        self.active = active
        self.limit = limit


class SessionRegistry:
    """The open sessions of a server, up to a limit.

    Args:
        executors: Pool from which sessions acquire executors.
        screens: Factory of displays.
        defaults: Defaults for reset options.
        limit: Maximum number of open sessions.
    """

    def __init__(self, executors: ExecutorPool, screens: DisplayFactory, defaults: SessionDefaults, *, limit: int) -> None:
        self._executors = executors
        self._screens = screens
        self._defaults = defaults
        self._limit = limit
        self._active: set[ServerSession] = set()

    def open(self, *, shared: Path | None = None) -> ServerSession:
        """Open a session; its processes are acquired at the first reset or step.

        Args:
            shared: Directory shared with other sessions, or None.

        Raises:
            SessionLimitError: If the session limit has been reached.
        """
        if len(self._active) >= self._limit:
            raise SessionLimitError(len(self._active), self._limit)
        session = ServerSession(self._executors, self._screens, self._defaults, shared=shared)
        self._active.add(session)
        return session

    def close(self, session: ServerSession) -> None:
        """Close a session and free its slot.

        Args:
            session: A session of this registry.
        """
        self._active.discard(session)
        session.close()
