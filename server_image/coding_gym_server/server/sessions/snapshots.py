"""Snapshots of sessions, from which an episode can continue any number of times."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import AsyncIterator, Iterable

import msgspec

from coding_gym_server.protocol import SessionState
from coding_gym_server.server.sessions.episode_options import EpisodeOptions
from coding_gym_server.server.supervisor import branching
from coding_gym_server.server.supervisor.executor import Executor
from coding_gym_server.server.supervisor.executor_pool import ExecutorPool
from coding_gym_server.server.supervisor.executor_spec import ExecutorSpec
from coding_gym_server.server.supervisor.fork_slots import ForkSlotFactory
from coding_gym_server.server.supervisor.frozen_worker import FrozenWorker, SnapshotRefusedError

__all__ = ["Snapshot", "SnapshotStore"]

MAX_SNAPSHOTS = 64
"""Maximum number of snapshots of all sessions together, each of which has a process."""


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
        slots: Opens slots for forks.
    """

    def __init__(self, executors: ExecutorPool, slots: ForkSlotFactory) -> None:
        self._executors = executors
        self._slots = slots
        self._snapshots: dict[str, Snapshot] = {}
        self._single_use: set[str] = set()

    def check(self, spec: ExecutorSpec) -> None:
        """Raise if there can be no snapshot of an executor with a specification.

        Raises:
            SnapshotRefusedError: If its backend or its files cannot be copied, or the limit has been reached.
        """
        if spec.shared is not None:
            raise SnapshotRefusedError(["the session shares its files with others"])
        if spec.is_root:
            raise SnapshotRefusedError(
                ["the programs of the session are root: their changes of system files would not be copied"]
            )
        if not spec.can_branch:
            reason = f"the cells of the backend {spec.backend!r} run in another process: take it with replay=True"
            raise SnapshotRefusedError([reason])
        if len(set(self._snapshots.values())) >= MAX_SNAPSHOTS:
            reason = f"the sandbox has {MAX_SNAPSHOTS} snapshots, its limit: release some, or start another sandbox"
            raise SnapshotRefusedError([reason])

    def add(self, snapshot: Snapshot) -> None:
        """Keep a snapshot until it is released."""
        self._snapshots[snapshot.id] = snapshot

    def add_once(self, snapshot: Snapshot, count: int) -> list[str]:
        """Keep a snapshot for ``count`` restores; return an id for each."""
        identifiers = [secrets.token_hex(16) for _ in range(count)]
        self._snapshots |= dict.fromkeys(identifiers, snapshot)
        self._single_use.update(identifiers)
        return identifiers

    @contextlib.asynccontextmanager
    async def used(self, identifier: str, *, release: bool) -> AsyncIterator[bool]:
        """Release a snapshot after its use if that is wanted, or if its id is for a single use.

        Yields:
            Whether this is the last use of the snapshot.
        """
        release = release or identifier in self._single_use
        others = {other for key, other in self._snapshots.items() if key != identifier}
        try:
            yield release and self._snapshots.get(identifier) not in others
        finally:
            if release:
                self.release([identifier])

    def get(self, identifier: str) -> Snapshot:
        """Return the snapshot with an id.

        Raises:
            SnapshotRefusedError: If there is none, or its process has ended.
        """
        snapshot = self._snapshots.get(identifier)
        if snapshot is None:
            raise SnapshotRefusedError(["the snapshot does not exist in this sandbox: it was released, or is of another one"])
        snapshot.frozen.check()
        return snapshot

    def __contains__(self, identifier: str) -> bool:
        """Return whether there is a snapshot with an id, lost or not."""
        return identifier in self._snapshots

    async def exchange(self, used: Executor | None, snapshot: Snapshot) -> tuple[Executor, tuple[int, ...]]:
        """Exchange the executor of a session for one that can continue from a snapshot: the snapshot's, or a fork beside it.

        Args:
            used: The executor of the session; None if it has none.
            snapshot: The snapshot.

        Returns:
            The executor; and the namespaces of a new fork, which has no worker yet, or none. The caller closes them.

        Raises:
            SnapshotRefusedError: If the kernel or a limit does not permit it.
            ChannelClosedError: If the root died.
            TimeoutError: If the root does not respond.
        """
        executor = snapshot.executor
        if executor is used:
            return executor, ()
        namespaces: tuple[int, ...] = ()
        if not self._executors.unpark(executor):
            executor, namespaces = await self._slots.open(snapshot.executor, snapshot.frozen)
            self._executors.add_fork(executor)
        if used is not None:
            self._executors.release(used)
        return executor, namespaces

    def release(self, identifiers: Iterable[str]) -> None:
        """End snapshots; ids of others are ignored."""
        for identifier in identifiers:
            snapshot = self._snapshots.pop(identifier, None)
            self._single_use.discard(identifier)
            if snapshot is not None and snapshot not in self._snapshots.values():
                branching.release(snapshot.executor, snapshot.frozen)
                self._executors.reclaim(snapshot.executor.tree)

    def release_all_of(self, owner: str) -> None:
        """End the snapshots that a session has taken."""
        self.release([identifier for identifier, snapshot in self._snapshots.items() if snapshot.owner == owner])
