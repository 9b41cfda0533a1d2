"""Registry of the open sessions, which enforces the session limit."""

from __future__ import annotations

from coding_gym_server.server.measurements import Measurements
from coding_gym_server.server.sessions.defaults import SessionDefaults
from coding_gym_server.server.sessions.session import ServerSession
from coding_gym_server.server.sessions.snapshots import SnapshotStore
from coding_gym_server.server.supervisor.display_handle import DisplayFactory
from coding_gym_server.server.supervisor.executor_pool import ExecutorPool
from coding_gym_server.server.supervisor.fork_slots import ForkSlotFactory
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
        slots: Opens slots for forks of sessions.
        limit: Maximum number of open sessions, without forks.
        measurements: Counts resets, steps and refused sessions.
    """

    def __init__(
        self,
        executors: ExecutorPool,
        screens: DisplayFactory,
        defaults: SessionDefaults,
        slots: ForkSlotFactory,
        *,
        limit: int,
        measurements: Measurements,
    ) -> None:
        self._executors = executors
        self._screens = screens
        self._defaults = defaults
        self._limit = limit
        self._measurements = measurements
        self._snapshots = SnapshotStore(executors, slots)
        self._active: dict[str, ServerSession] = {}
        self._forks: set[str] = set()
        self._companions: set[str] = set()

    @property
    def count(self) -> int:
        """Number of open sessions, without forks and further interpreters of a session."""
        return len(self._active) - len(self._forks) - len(self._companions)

    @property
    def forks(self) -> int:
        """Number of open sessions that are forks."""
        return len(self._forks)

    @property
    def is_full(self) -> bool:
        """Whether the session limit has been reached."""
        return self.count >= self._limit

    @property
    def limit(self) -> int:
        """Maximum number of open sessions, without forks."""
        return self._limit

    def open(self, *, shared: SharedFiles | None = None, fork_of: str | None = None) -> ServerSession:
        """Open a session; its processes are acquired at the first reset or step.

        Args:
            shared: Files shared with other sessions, or None. If they are those of one session, this is a further interpreter
                of its client, and does not count towards the session limit.
            fork_of: Id of a snapshot that the session is to continue from, or of a fork that it belongs to. It does not count
                towards the session limit, but cannot begin its own episode.

        Raises:
            SessionLimitError: If the session limit has been reached.
        """
        is_fork = fork_of is not None and (fork_of in self._snapshots or fork_of in self._forks)
        is_companion = shared is not None and not shared.is_lasting
        if self.is_full and not (is_fork or is_companion):
            self._measurements.refusals["sessions"] += 1
            raise SessionLimitError(self.count, self._limit)
        session = ServerSession(
            self._executors,
            self._screens,
            self._defaults,
            self._snapshots,
            self._measurements,
            shared=shared,
            is_fork=is_fork,
        )
        self._active[session.id] = session
        if is_fork:
            self._forks.add(session.id)
        if is_companion:
            self._companions.add(session.id)
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
        self._forks.discard(session.id)
        self._companions.discard(session.id)
        session.end()
