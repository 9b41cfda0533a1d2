"""The E2B sandboxes and snapshots of a gateway."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import secrets
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime

from coding_gym_e2b.async_session import AsyncSession
from coding_gym_e2b.counts import GatewayCounts
from coding_gym_e2b.failures import ApiError, RpcError, SandboxGoneError
from coding_gym_e2b.hosts import Host, Hosts
from coding_gym_e2b.sandbox import E2BSandbox, Lifecycle

__all__ = ["DEFAULT_TIMEOUT", "SandboxRegistry", "Snapshot"]

DEFAULT_TIMEOUT = 300.0
"""Seconds that a sandbox has if its client does not say."""


@dataclass(frozen=True, eq=False)
class Snapshot:
    """A session that sleeps, from which sandboxes are made.

    Attributes:
        id: Its id.
        names: Its names.
        sandbox_id: Id of the sandbox that it was made of.
        lifecycle: What the client of that one wanted.
        host: The sandbox that has the session.
        session: The session.
        is_listed: Whether clients see it.
        turn: Held while it is copied.
    """

    id: str
    names: tuple[str, ...]
    sandbox_id: str
    lifecycle: Lifecycle
    host: Host
    session: AsyncSession
    is_listed: bool = True
    turn: asyncio.Lock = dataclasses.field(default_factory=asyncio.Lock)


class SandboxRegistry:
    """The E2B sandboxes and snapshots of a gateway.

    Args:
        hosts: The sandboxes that have their sessions.

    Attributes:
        counts: How many have been made and have ended.
    """

    def __init__(self, hosts: Hosts) -> None:
        self._hosts = hosts
        self.counts = GatewayCounts()
        self._sandboxes: dict[str, E2BSandbox] = {}
        self._snapshots: dict[str, Snapshot] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def sandboxes(self) -> list[E2BSandbox]:
        """The sandboxes that clients see, the oldest first."""
        self._drop_lost()
        return [sandbox for sandbox in self._sandboxes.values() if sandbox.lifecycle.is_listed]

    @property
    def snapshots(self) -> list[Snapshot]:
        """The snapshots that clients see, the oldest first."""
        self._drop_lost()
        return [snapshot for snapshot in self._snapshots.values() if snapshot.is_listed]

    def get(self, sandbox_id: str) -> E2BSandbox:
        """Return the sandbox with an id.

        Raises:
            ApiError: If there is none.
        """
        sandbox = self._sandboxes.get(sandbox_id)
        if sandbox is not None and sandbox.is_lost:
            self._remove(sandbox, "lost")
            sandbox = None
        if sandbox is None:
            message = f"Sandbox {sandbox_id!r:.100} not found"
            raise ApiError(404, message)
        return sandbox

    def snapshot(self, name: str) -> Snapshot | None:
        """Return the snapshot with an id or a name, None if there is none."""
        for snapshot in reversed(self.snapshots):
            if name == snapshot.id or name in snapshot.names:
                return snapshot
        return None

    async def create(
        self, lifecycle: Lifecycle, image: str | None, *, timeout: float, is_own: bool, is_root: bool = False
    ) -> E2BSandbox:
        """Make a sandbox.

        Args:
            lifecycle: What the client wants.
            image: Its image, None for the default one.
            timeout: Seconds that it has.
            is_own: Whether it gets its own container.
            is_root: Whether its programs can be root, for which it gets one, too.

        Raises:
            ApiError: If there is no room for it, or it does not start.
        """
        with self.counts.creating("template"):
            return await self._create(lifecycle, image, timeout=timeout, is_own=is_own, is_root=is_root)

    async def _create(
        self, lifecycle: Lifecycle, image: str | None, *, timeout: float, is_own: bool, is_root: bool
    ) -> E2BSandbox:
        # Lost sandboxes hold their places until they are dropped.
        self._drop_lost()
        host, session = await self._hosts.open(image, is_own=is_own, is_root=is_root)
        sandbox = E2BSandbox(lifecycle, host, session, is_fork=False)
        if is_root:
            try:
                await sandbox.processes.add_default_user()
            except BaseException as error:
                sandbox.close()
                self._hosts.release(host)
                if isinstance(error, RpcError):
                    message = f"No sandbox could be started: {error}"
                    raise ApiError(503, message) from error
                raise
        return self._add(sandbox, timeout)

    async def create_from(self, snapshot: Snapshot, lifecycle: Lifecycle, *, timeout: float) -> E2BSandbox:
        """Make a sandbox that continues from a snapshot.

        Raises:
            ApiError: If it cannot be made.
        """
        environment = {**snapshot.lifecycle.environment, **lifecycle.environment}
        lifecycle = dataclasses.replace(lifecycle, environment=environment)
        with self.counts.creating("snapshot"):
            async with snapshot.turn:
                (session,) = await self._hosts.fork(snapshot.host, snapshot.session, 1)
            if isinstance(session, ApiError):
                raise session
        return self._add(E2BSandbox(lifecycle, snapshot.host, session, is_fork=True), timeout)

    async def fork(self, sandbox: E2BSandbox, count: int, *, timeout: float) -> list[E2BSandbox | ApiError]:
        """Make sandboxes that continue from the state of one.

        Raises:
            ApiError: If it cannot be copied, or is paused.
        """
        sessions = await self._copy(sandbox, count)
        self.counts.count_forks(sessions)
        return [
            session
            if isinstance(session, ApiError)
            else self._add(E2BSandbox(sandbox.lifecycle, sandbox.host, session, is_fork=True), timeout)
            for session in sessions
        ]

    async def take_snapshot(self, sandbox: E2BSandbox, name: str | None, *, is_listed: bool = True) -> Snapshot:
        """Keep the state of a sandbox.

        Raises:
            ApiError: If it cannot be copied.
        """
        (session,) = await self._copy(sandbox, 1)
        if isinstance(session, ApiError):
            raise session
        names = () if name is None else (name,)
        snapshot = Snapshot(
            f"s{secrets.token_hex(10)}", names, sandbox.id, sandbox.lifecycle, sandbox.host, session, is_listed=is_listed
        )
        self._snapshots[snapshot.id] = snapshot
        return snapshot

    def delete_snapshot(self, snapshot: Snapshot) -> None:
        """Forget a snapshot, which ends once it is not being copied any more; sandboxes made from it continue."""
        if self._snapshots.pop(snapshot.id, None) is None:
            return
        if snapshot.session.is_lost:
            self._end(snapshot)
        else:
            self._run(self._end_copied(snapshot))

    async def pause(self, sandbox: E2BSandbox) -> None:
        """Stop the processes of a sandbox, and let it exist until it is resumed.

        Raises:
            ApiError: If it is paused already.
        """
        async with sandbox.pausing:
            if sandbox.is_paused:
                message = f"Sandbox {sandbox.id} is paused already"
                raise ApiError(409, message)
            await self._pause(sandbox)

    async def resume(self, sandbox: E2BSandbox, *, timeout: float) -> bool:
        """Let a sandbox continue, if it is paused; otherwise extend its time if that is shorter.

        Returns:
            Whether it was paused.
        """
        async with sandbox.pausing:
            was_paused = sandbox.is_paused
            if was_paused:
                with contextlib.suppress(RpcError):
                    await sandbox.processes.stop(go_on=True)
                sandbox.is_paused = False
                sandbox.log.write("sandbox resumed")
            if was_paused or (sandbox.end_at - datetime.now(UTC)).total_seconds() < timeout:
                self.set_timeout(sandbox, timeout)
            return was_paused

    def set_timeout(self, sandbox: E2BSandbox, seconds: float) -> None:
        """End a sandbox in ``seconds``; one that is paused exists until it is resumed."""
        if sandbox.timer is not None:
            sandbox.timer.cancel()
            sandbox.timer = None
        sandbox.set_end(seconds)
        if not sandbox.is_paused:
            sandbox.timer = asyncio.get_running_loop().call_later(seconds, self._expire, sandbox)

    def kill(self, sandbox: E2BSandbox) -> None:
        """End a sandbox."""
        self._remove(sandbox, "killed")

    def find(self, matches: Callable[[E2BSandbox], bool], sandbox_id: str = "") -> E2BSandbox:
        """Return the sandbox that a request to envd is for.

        Args:
            matches: Whether a sandbox is the one.
            sandbox_id: Its id, if it is known.

        Raises:
            SandboxGoneError: If there is none.
        """
        candidates = [self._sandboxes[sandbox_id]] if sandbox_id in self._sandboxes else [] if sandbox_id else self.sandboxes
        sandbox = next((sandbox for sandbox in candidates if matches(sandbox) and not sandbox.is_lost), None)
        if sandbox is None:
            raise SandboxGoneError(sandbox_id)
        return sandbox

    async def wake(self, sandbox: E2BSandbox) -> None:
        """Resume a sandbox if it is paused, and its lifecycle lets requests resume it.

        Raises:
            SandboxGoneError: If it stays paused.
        """
        if sandbox.is_paused:
            if not sandbox.lifecycle.resumes:
                raise SandboxGoneError(sandbox.id)
            await self.resume(sandbox, timeout=DEFAULT_TIMEOUT)

    def close(self) -> None:
        """End all sandboxes, and forget all snapshots."""
        for sandbox in [*self._sandboxes.values()]:
            self._remove(sandbox, "killed")
        for snapshot in self._snapshots.values():
            self._end(snapshot)
        self._snapshots.clear()

    async def _copy(self, sandbox: E2BSandbox, count: int) -> list[AsyncSession | ApiError]:
        async with sandbox.turn:
            if sandbox.is_paused:
                message = f"Sandbox {sandbox.id} is paused: connect to it first"
                raise ApiError(409, message)
            async with sandbox.files.stopped():
                return await self._hosts.fork(sandbox.host, sandbox.session, count)

    def _add(self, sandbox: E2BSandbox, timeout: float) -> E2BSandbox:
        self._sandboxes[sandbox.id] = sandbox
        self.set_timeout(sandbox, timeout)
        return sandbox

    def _remove(self, sandbox: E2BSandbox, reason: str) -> None:
        if self._sandboxes.pop(sandbox.id, None) is not None:
            self.counts.ended[reason] += 1
            sandbox.close()
            self._hosts.release(sandbox.host, is_fork=sandbox.is_fork)

    def _drop_lost(self) -> None:
        for sandbox in [*self._sandboxes.values()]:
            if sandbox.is_lost:
                self._remove(sandbox, "lost")
        for snapshot in [*self._snapshots.values()]:
            if snapshot.session.is_lost:
                self.delete_snapshot(snapshot)

    async def _pause(self, sandbox: E2BSandbox) -> None:
        sandbox.is_paused = True
        sandbox.log.write("sandbox paused")
        if sandbox.timer is not None:
            sandbox.timer.cancel()
            sandbox.timer = None
        with contextlib.suppress(RpcError):
            # Calls for files that have begun are answered.
            await sandbox.processes.stop(but=await sandbox.files.process())

    async def _pause_expired(self, sandbox: E2BSandbox) -> None:
        async with sandbox.pausing:
            # It may have been paused or given more time since.
            if not sandbox.is_paused and sandbox.timer is None:
                await self._pause(sandbox)

    def _expire(self, sandbox: E2BSandbox) -> None:
        sandbox.timer = None
        if not sandbox.lifecycle.pauses:
            self._remove(sandbox, "expired")
            return
        self._run(self._pause_expired(sandbox))

    def _end(self, snapshot: Snapshot) -> None:
        snapshot.session.close()
        self._hosts.release(snapshot.host, is_fork=True)

    async def _end_copied(self, snapshot: Snapshot) -> None:
        async with snapshot.turn:
            self._end(snapshot)

    def _run(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
