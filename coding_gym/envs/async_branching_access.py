"""``AsyncBranchingAccess``: snapshots and forks of an asynchronous environment."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

from coding_gym.client.session import SNAPSHOT_TIMEOUT
from coding_gym.envs.episode import Info, Obs, own_screenshot
from coding_gym.envs.loop_lock import LoopLock
from coding_gym.envs.replay import ReplayReport
from coding_gym.envs.restoring import Restoring
from coding_gym.envs.snapshot import Snapshot, check_snapshot
from coding_gym.sandbox import ManagedSandbox
from coding_gym.sandbox.config import SandboxConfig
from coding_gym.sandbox.pool import SandboxPool, managed_sandbox
from coding_gym_server.protocol import ObservationData, ResetOptions, StepAction

if TYPE_CHECKING:
    from coding_gym.client.async_session import AsyncSession

__all__ = ["AsyncBranchingAccess"]


class AsyncBranchingAccess(Restoring):
    """Snapshots and forks of an asynchronous environment."""

    config: SandboxConfig
    _arguments: dict[str, Any]
    _is_fork: bool
    _pool: SandboxPool | None
    _session: AsyncSession | None
    _slot: ManagedSandbox | None
    _turn: LoopLock

    async def clone_state(self, *, replay: bool = False) -> Snapshot:
        """Return a snapshot of the episode, which goes on unchanged; see ``CodingEnv.clone_state``.

        It is released with the next snapshot or reset after its ``release``.
        """
        async with self._turn:
            if replay:
                return self._record()
            session = self._open_session()
            with self._failing_with_connection():
                return Snapshot(session, await session.clone(timeout=SNAPSHOT_TIMEOUT), self._episode.save())

    async def restore_state(
        self, snapshot: Snapshot, *, seed: int | None = None, replay: bool = False, release: bool = False
    ) -> tuple[Obs, Info]:
        """Go on from a snapshot of this environment, also of an earlier episode; see ``CodingEnv.restore_state``."""
        check_snapshot(snapshot)
        self._episode.check_open()
        must_replay = self._must_replay(snapshot, seed=seed, replay=replay)
        async with self._turn:
            if must_replay:
                obs, info = await self._replay(snapshot, release=release)
            else:
                session = self._open_session()
                with self._failing_with_connection():
                    data = await session.restore(snapshot.id, seed=seed, release=release, timeout=SNAPSHOT_TIMEOUT)
                obs, info = self._finish_restore(snapshot, data, release=release)
        return own_screenshot(obs), info

    async def fork(self, n: int, seeds: Sequence[int | None] | None = None) -> list[Self]:
        """Return environments that go on from the present state, each in a session of its own; see ``CodingEnv.fork``."""
        async with self._turn:
            self._episode.check_begun()
            chosen = self._choose_seeds(n, seeds)
            session = self._open_session()
            with self._failing_with_connection():
                tickets = await session.fork(n, timeout=SNAPSHOT_TIMEOUT)
            forks = [type(self)(**self._arguments) for _ in tickets]
            try:
                begun = zip(forks, tickets, chosen, strict=True)
                await asyncio.gather(*(fork._begin_fork(self, ticket, seed) for fork, ticket, seed in begun))
            except BaseException:
                await asyncio.gather(*(fork.aclose() for fork in forks), return_exceptions=True)
                for ticket in tickets:
                    session.release(ticket)
                raise
        return forks

    async def _begin_fork(self, origin: Self, ticket: str, seed: int | None) -> None:
        """Take over the state of another environment."""
        assert origin._slot is not None
        self._slot = origin._slot.share()
        self._is_fork = True
        self._session = await self._slot.connect_present_async(fork_of=ticket)
        self._finish_fork_of(origin, await self._session.restore(ticket, seed=seed, timeout=SNAPSHOT_TIMEOUT), seed)

    async def _replay(self, snapshot: Snapshot, *, release: bool) -> tuple[Obs, Info]:
        """Begin an episode, and run the actions of a snapshot's; the caller holds the lock."""
        request, steps = self._begin_replay(snapshot)
        if self._slot is None:
            self._slot = managed_sandbox(self._pool, self.config)
        obs, info = self._episode.finish_begin(await self._begin(self._slot, request))
        report = ReplayReport()
        for recorded in steps:
            report.add(recorded, (await self._run(recorded.request)).observation)
        self._finish_replay(snapshot, report, info, release=release)
        return obs, info

    @abstractmethod
    async def aclose(self) -> None:
        """End the session."""

    @abstractmethod
    def _open_session(self) -> AsyncSession:
        """Return the session of the episode."""

    @abstractmethod
    async def _begin(self, slot: ManagedSandbox, options: ResetOptions) -> ObservationData:
        """Begin an episode."""

    @abstractmethod
    async def _run(self, action: StepAction) -> ObservationData:
        """Run an action."""
