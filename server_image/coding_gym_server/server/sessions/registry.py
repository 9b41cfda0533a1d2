"""Registry of the open sessions, which enforces the session limit."""

from __future__ import annotations

from coding_gym_server.server.sessions.defaults import SessionDefaults
from coding_gym_server.server.sessions.session import ServerSession
from coding_gym_server.server.sessions.snapshots import DEFAULT_MAX_SNAPSHOTS, SnapshotStore
from coding_gym_server.server.supervisor.display_handle import DisplayFactory
from coding_gym_server.server.supervisor.executor_pool import ExecutorPool
from coding_gym_server.server.supervisor.shared_files import SharedFiles

__all__ = ["SessionLimitError", "SessionNotFoundError", "SessionRegistry"]


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


class SessionNotFoundError(LookupError):
    """No session has the given id."""

    def __init__(self, identifier: str) -> None:
        super().__init__(f"Session {identifier} not found: it ends with its connection")


class SessionRegistry:
    """The open sessions of a server, up to a limit.

    Args:
        executors: Pool from which sessions acquire executors.
        screens: Factory of displays.
        defaults: Defaults for reset options.
        limit: Maximum number of open sessions.
        max_snapshots: Maximum number of snapshots of all sessions together.
    """

    def __init__(
        self,
        executors: ExecutorPool,
        screens: DisplayFactory,
        defaults: SessionDefaults,
        *,
        limit: int,
        max_snapshots: int = DEFAULT_MAX_SNAPSHOTS,
    ) -> None:
        self._executors = executors
        self._screens = screens
        self._defaults = defaults
        self._limit = limit
        self._snapshots = SnapshotStore(executors, limit=max_snapshots)
        self._active: dict[str, ServerSession] = {}

    def open(self, *, shared: SharedFiles | None = None) -> ServerSession:
        """Open a session; its processes are acquired at the first reset or step.

        Args:
            shared: Files shared with other sessions, or None.

        Raises:
            SessionLimitError: If the session limit has been reached.
        """
        if len(self._active) >= self._limit:
            raise SessionLimitError(len(self._active), self._limit)
        session = ServerSession(self._executors, self._screens, self._defaults, self._snapshots, shared=shared)
        self._active[session.id] = session
        return session

    def get(self, identifier: str) -> ServerSession:
        """Return the open session with an id.

        Raises:
            SessionNotFoundError: If there is none.
        """
        try:
            return self._active[identifier]
        except KeyError:
            raise SessionNotFoundError(identifier) from None

    def close(self, session: ServerSession) -> None:
        """Close a session and free its slot.

        Args:
            session: A session of this registry.
        """
        self._active.pop(session.id, None)
        session.end()
