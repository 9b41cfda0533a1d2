"""Snapshots of sessions, from which an episode can go on any number of times."""

from __future__ import annotations

import secrets
from collections.abc import Iterable

import msgspec

from coding_gym_server.protocol import SessionState
from coding_gym_server.server.sessions.episode_options import EpisodeOptions
from coding_gym_server.server.supervisor import branching
from coding_gym_server.server.supervisor.executor import Executor
from coding_gym_server.server.supervisor.executor_pool import ExecutorPool
from coding_gym_server.server.supervisor.executor_spec import ExecutorSpec
from coding_gym_server.server.supervisor.frozen_worker import FrozenWorker, SnapshotRefusedError

__all__ = ["DEFAULT_MAX_SNAPSHOTS", "Snapshot", "SnapshotStore"]

DEFAULT_MAX_SNAPSHOTS = 64
"""Default of the maximum number of snapshots of all sessions together, each of which has a process."""

_BACKENDS = frozenset({"python", "notebook", "restricted", "restrictedpython", "smolagents"})
"""Backends that execute cells in the worker."""


class Snapshot:
    """State of a session at some time of an episode.

    Args:
        owner: Id of the session that has taken it, and with which it ends.
        executor: The executor that it is a state of.
        frozen: The frozen copy of its worker.
        options: Options of the episode.
        state: State of the episode.
        directory: Working directory of the session, None for that of its own workspace.

    Attributes:
        id: Its id, which cannot be guessed.
    """

    def __init__(
        self,
        owner: str,
        executor: Executor,
        frozen: FrozenWorker,
        *,
        options: EpisodeOptions,
        state: SessionState,
        directory: str | None,
    ) -> None:
        self.id = secrets.token_hex(16)
        self.owner = owner
        self.executor = executor
        self.frozen = frozen
        self.options = options
        self.state = msgspec.structs.replace(state)
        self.directory = directory


class SnapshotStore:
    """The snapshots of all sessions of a server.

    Args:
        executors: Pool that keeps the executors of snapshots.
        limit: Maximum number of snapshots.
    """

    def __init__(self, executors: ExecutorPool, *, limit: int) -> None:
        self._executors = executors
        self._limit = limit
        self._snapshots: dict[str, Snapshot] = {}

    def check(self, spec: ExecutorSpec) -> None:
        """Raise if there can be no snapshot of an executor with a specification.

        Raises:
            SnapshotRefusedError: If its backend or its files cannot be copied, or the limit has been reached.
        """
        if spec.backend not in _BACKENDS:
            reason = f"the cells of the backend {spec.backend!r} run in another process; restore it by replay"
            raise SnapshotRefusedError([reason])
        if spec.shared is not None:
            raise SnapshotRefusedError(["the session shares its files with others"])
        if len(self._snapshots) >= self._limit:
            reason = f"the sandbox has {self._limit} snapshots, its limit: release some, or start another sandbox"
            raise SnapshotRefusedError([reason])

    def add(self, snapshot: Snapshot) -> None:
        """Keep a snapshot."""
        self._snapshots[snapshot.id] = snapshot

    def get(self, identifier: str) -> Snapshot:
        """Return the snapshot with an id.

        Raises:
            SnapshotRefusedError: If there is none, or its process has ended.
        """
        snapshot = self._snapshots.get(identifier)
        if snapshot is None:
            raise SnapshotRefusedError(["the snapshot does not exist in this sandbox: it was released, or is of another one"])
        if snapshot.frozen.is_lost:
            raise SnapshotRefusedError(["the snapshot is lost: its process was killed"])
        return snapshot

    def release(self, identifiers: Iterable[str]) -> None:
        """End snapshots; ids of others are ignored."""
        for identifier in identifiers:
            snapshot = self._snapshots.pop(identifier, None)
            if snapshot is not None:
                branching.release(snapshot.executor, snapshot.frozen)
                self._executors.reclaim(snapshot.executor)

    def release_all_of(self, owner: str) -> None:
        """End the snapshots that a session has taken."""
        self.release([snapshot.id for snapshot in self._snapshots.values() if snapshot.owner == owner])
