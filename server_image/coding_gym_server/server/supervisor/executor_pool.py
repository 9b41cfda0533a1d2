"""Executor pool: the executors in use, and idle spares that start a session without delay."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import time
from collections import Counter, deque
from collections.abc import Callable, Coroutine
from functools import partial
from itertools import chain

from coding_gym_server.ipc.async_channel import ChannelClosedError
from coding_gym_server.ipc.snapshot_messages import FIRST_SLOT, CloseSlot
from coding_gym_server.isolation.session_user import SessionUsers
from coding_gym_server.linux import procfs
from coding_gym_server.protocol import MAX_FORKS
from coding_gym_server.server.measurements import Measurements
from coding_gym_server.server.supervisor.branching import kill_live
from coding_gym_server.server.supervisor.executor import Executor
from coding_gym_server.server.supervisor.executor_spec import ExecutorSpec
from coding_gym_server.server.supervisor.frozen_worker import FrozenWorker
from coding_gym_server.server.supervisor.process_tree import ProcessTree
from coding_gym_server.server.supervisor.session_zygotes import SessionZygotes
from coding_gym_server.server.supervisor.systems import ContainerSystem, OwnSystem, SessionSystem
from coding_gym_server.server.supervisor.zygote_handle import ForkError
from coding_gym_server.server.threads import in_thread
from coding_gym_server.workspace.layout import PRIVATE, Layout
from coding_gym_server.workspace.session_directory import ContainerDirectory

__all__ = ["ExecutorPool"]

_log = logging.getLogger(__name__)

_MIN_FREE_FRACTION = 0.1
"""Fraction of the disk that must be free to delay the removal of a workspace."""

_CONTAINER_IS_TAKEN = (
    "this container permits no namespaces, so it has one session at a time, and another one is open: close that, "
    "or give each session a sandbox of its own (sessions_per_sandbox=1 in a vector environment)"
)

_EXIT_INTERVAL = 0.005
_TURN_SECONDS = 5.0
"""Time that a session without namespaces has to end, as its connection may be closing, before the next one is refused."""

_INFRASTRUCTURE_ERRORS = (ForkError, ChannelClosedError, TimeoutError, OSError)


class ExecutorPool:
    """Pool of executors in their initial state.

    Args:
        zygotes: Fork the session roots.
        container: The directories of a container without namespaces, which its only session has; else None.
        spec: Specification of most executors. Their spares are started in advance.
        spares: Number of idle executors to keep per specification.
        users: Users and disks of the sessions, None in a container without namespaces.
        max_used_bytes: Number of bytes, on the disk or of episodes that have ended, above which a workspace is emptied before
            the next episode, not in the background, because they occupy memory; None for a disk that does not.
        measurements: Measures how long episodes wait for an executor.
        of_root: Directories of sessions whose programs are root.

    Attributes:
        all: The executors in use and the spares.
    """

    def __init__(
        self,
        zygotes: SessionZygotes,
        container: ContainerDirectory | None,
        *,
        spec: ExecutorSpec,
        spares: int,
        users: SessionUsers | None,
        max_used_bytes: float | None,
        measurements: Measurements,
        of_root: Layout = PRIVATE,
    ) -> None:
        self._zygotes = zygotes
        self._container = container
        self._spec = spec
        self._max_spares = spares
        self._users = users
        # The user that has been free for longest is taken first.
        self._free_users = deque(users.of_sessions if users is not None else ())
        self._max_used_bytes = math.inf if max_used_bytes is None else max_used_bytes
        self._measurements = measurements
        self._of_root = of_root
        # Of executors whose episode has ended and that are not emptied yet, if each has its own disk.
        self._ended_bytes: dict[Executor, int] = {}
        self.all: set[Executor] = set()
        self._spares: dict[ExecutorSpec, list[Executor]] = {spec: []}
        # Used executors with frozen copies or forks, which no session uses.
        self._parked: set[Executor] = set()
        # Spares that are being started, or made of used executors.
        self._coming: Counter[ExecutorSpec] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()
        self._release_tasks: set[asyncio.Task[None]] = set()
        self._occupancy_changed = asyncio.Event()
        # In a container without namespaces: what is being started, and how many sessions are between two executors.
        self._starting: list[ExecutorSpec] = []
        self._taken_over = 0

    async def exchange(self, used: Executor | None, spec: ExecutorSpec) -> Executor:
        """Return an executor for an episode: see ``renew`` if there is a used one for it, else ``acquire``."""
        began = time.perf_counter()
        if used is not None and used.spec == spec:
            executor = await self.renew(used)
        else:
            if used is not None:
                self.release(used)
            executor = await self.acquire(spec, has_turn=used is not None)
        self._measurements.worker_waits.add(time.perf_counter() - began)
        return executor

    async def acquire(self, spec: ExecutorSpec, *, has_turn: bool = False) -> Executor:
        """Return an executor that has not run any code: a spare if available, otherwise a new one.

        Args:
            spec: Specification of the executor.
            has_turn: Whether it replaces one that has just been released, before which nobody else's turn comes.

        Raises:
            ForkError: If the process limit, memory or disk is exhausted, the backend fails to load, or another session has the
                container.
            ChannelClosedError: If the zygote died.
        """
        if self._container is None:
            return await self._acquire(spec)
        await self._wait_for_container(shared=spec.shared is not None, has_turn=has_turn)
        # In the same iteration of the event loop, so that it is the next one's turn.
        self._starting.append(spec)
        try:
            return await self._acquire(spec)
        finally:
            self._starting.remove(spec)
            self._occupancy_changed.set()

    async def wait_until_shareable(self) -> None:
        """Wait until no session has a container without namespaces for itself.

        Raises:
            ForkError: If another session has it, and does not end soon.
        """
        await self._wait_for_container(shared=True, has_turn=False)

    async def _wait_for_container(self, *, shared: bool, has_turn: bool) -> None:
        """Wait until the previous session has ended, and its files are removed, before the next one gets its directories.

        Raises:
            ForkError: If it does not end soon.
        """

        def is_free() -> bool:
            if self._release_tasks or (self._taken_over and not has_turn):
                return False
            if shared:
                return all(spec.shared is not None for spec in (*(executor.spec for executor in self.all), *self._starting))
            return not (self.all or self._starting)

        left = None if has_turn else _TURN_SECONDS
        self._taken_over += has_turn
        try:
            while not is_free():
                self._occupancy_changed.clear()
                if self._release_tasks:
                    # What has ended is removed, however long that takes.
                    await self._occupancy_changed.wait()
                    continue
                began = time.monotonic()
                async with asyncio.timeout(left):
                    await self._occupancy_changed.wait()
                left = None if left is None else left - (time.monotonic() - began)
        except TimeoutError:
            raise ForkError(_CONTAINER_IS_TAKEN) from None
        finally:
            self._taken_over -= has_turn
            self._occupancy_changed.set()

    async def _acquire(self, spec: ExecutorSpec) -> Executor:
        executor = self._take_spare(spec) or await self._start(spec)
        try:
            await executor.revive()
        except BaseException:
            self._discard(executor)
            raise
        self._fill(spec)
        return executor

    def unpark(self, executor: Executor) -> bool:
        """Take a used executor for a session that continues from a frozen copy; return False if another session uses it."""
        if executor not in self._parked:
            return False
        self._parked.remove(executor)
        return True

    def add_fork(self, executor: Executor) -> None:
        """Let the pool own the executor of a fork, which ends with ``release`` or ``renew``."""
        self.all.add(executor)

    def reclaim(self, tree: ProcessTree) -> None:
        """Return the first executor of a process tree to the pool if no session uses it and it is alone again."""
        parked = next((executor for executor in self._parked if executor.tree is tree), None)
        if parked is not None and tree.is_alone:
            self._parked.remove(parked)
            self.release(parked)

    @property
    def spares(self) -> int:
        """Number of executors that wait for an episode."""
        return sum(map(len, self._spares.values()))

    @property
    def parked(self) -> int:
        """Number of executors without a session that are kept for their snapshots or forks."""
        return len(self._parked)

    @property
    def forks(self) -> int:
        """Number of forks."""
        return sum(executor.slot != FIRST_SLOT for executor in self.all)

    @property
    def frozen(self) -> list[FrozenWorker]:
        """The frozen copies of all workers."""
        return [frozen for tree in self._trees for frozen in tree.frozen]

    @property
    def frozen_pids(self) -> list[int]:
        """Process ids of the frozen copies that have a process of their own."""
        return [tree.pid_outside(frozen.own_pid) for tree in self._trees for frozen in tree.frozen if frozen.own_pid]

    @property
    def _trees(self) -> list[ProcessTree]:
        return [executor.tree for executor in self.all if executor.slot == FIRST_SLOT]

    async def renew(self, executor: Executor) -> Executor:
        """Exchange a used executor for one in the initial state. On return, all processes of the old one are killed.

        Args:
            executor: The used executor, which must not be used afterwards.

        Raises:
            ForkError: If the process limit, memory or disk is exhausted.
            ChannelClosedError: If the zygote or the root died.
        """
        if executor.slot != FIRST_SLOT:
            await self._end_fork(executor)
            return await self.acquire(executor.spec)
        if executor.spec.is_root or (self._container is not None and not executor.tree.is_alone):
            # Its snapshots end: the next episode has its directories.
            try:
                await executor.kill()
            finally:
                self._discard(executor)
            return await self.acquire(executor.spec, has_turn=True)
        if not executor.tree.is_alone:
            self._parked.add(executor)
            await self._kill_live(executor)
            return await self.acquire(executor.spec)
        # If the disk or the memory is almost full, empty the old workspace before the next episode, not in the background.
        spare = self._take_spare(executor.spec) if self._has_room(executor) else None
        if spare is not None:
            self._count_until_emptied(executor)
        try:
            await (executor.recycle() if spare is None else executor.kill())
            await (executor if spare is None else spare).revive()
        except BaseException:
            self._discard(executor)
            if spare is not None:
                self._add_spare(spare)
            raise
        if spare is None:
            self._fill(executor.spec)
            return executor
        self._add_in_background(executor.spec, partial(self._recycle, executor))
        return spare

    def release(self, executor: Executor) -> None:
        """Return an executor to the pool; its processes are killed in the background.

        One with frozen copies or forks is kept until ``reclaim``.
        """
        if executor.slot != FIRST_SLOT:
            self._in_background(self._end_fork(executor))
            return
        if self._container is None and not executor.tree.is_alone:
            self._parked.add(executor)
            self._in_background(self._kill_live(executor))
            return
        self._count_until_emptied(executor)
        self._release_in_background(self._recycle(executor))

    def fill(self) -> None:
        """Start the initial spares in the background."""
        self._fill(self._spec)

    async def close(self) -> None:
        """Close all spares, and cancel those that are starting."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for executor in chain(self._parked, *self._spares.values()):
            executor.close()

    def _fill(self, spec: ExecutorSpec) -> None:
        """Start missing spares in the background."""
        for _ in range(self._most_spares(spec) - len(self._spares_of(spec)) - self._coming[spec]):
            self._add_in_background(spec, partial(self._start_spare, spec))

    def _spares_of(self, spec: ExecutorSpec) -> list[Executor]:
        return self._spares.setdefault(spec, []) if self._most_spares(spec) else []

    def _most_spares(self, spec: ExecutorSpec) -> int:
        return self._max_spares if spec.shared is None or spec.shared.is_lasting else 0

    def _has_room(self, executor: Executor) -> bool:
        """Return whether the files of an executor's episode, which ends, may remain while the next one begins."""
        disk = os.statvfs(executor.directory.work)
        return (
            disk.f_bavail >= disk.f_blocks * _MIN_FREE_FRACTION
            and disk.f_favail >= disk.f_files * _MIN_FREE_FRACTION
            and _used_bytes(disk) + sum(self._ended_bytes.values()) <= self._max_used_bytes
        )

    def _count_until_emptied(self, executor: Executor) -> None:
        """Count the files of an ended episode, which are removed in the background."""
        if self._users is not None and executor.spec.shared is None:
            self._ended_bytes[executor] = _used_bytes(os.statvfs(executor.directory.work))

    def _take_spare(self, spec: ExecutorSpec) -> Executor | None:
        while spares := self._spares_of(spec):
            executor = spares.pop()
            if executor.is_alive:
                return executor
            self._discard(executor)
        return None

    async def _start(self, spec: ExecutorSpec) -> Executor:
        user = self._take_user(spec)
        try:
            try:
                executor = await Executor.start(self._zygotes.of(spec.backend), spec, self._system(spec, user))
            except ChannelClosedError:
                # The zygote died and has been replaced: retry once.
                executor = await Executor.start(self._zygotes.of(spec.backend), spec, self._system(spec, user))
        except BaseException:
            self._return_user(user)
            raise
        executor.processes.open_terminals = self._users is not None and executor.user != self._users.server
        self.all.add(executor)
        return executor

    def _system(self, spec: ExecutorSpec, user: int | None) -> SessionSystem:
        if spec.shared is not None:
            return spec.shared
        if self._container is not None:
            return ContainerSystem(self._container)
        assert user is not None
        return OwnSystem(user, slots=MAX_FORKS if spec.can_branch else 0, of_root=self._of_root if spec.is_root else None)

    def _take_user(self, spec: ExecutorSpec) -> int | None:
        """Return the id of the user of a new executor's session, None in a container without namespaces."""
        if self._users is None:
            return None
        if spec.shared is not None:
            return spec.shared.user
        if not self._users.count:
            return self._users.server
        if not self._free_users:
            message = f"all {len(self._users.of_sessions)} users of the sandbox are in use"
            raise ForkError(message)
        return self._free_users.popleft()

    def _return_user(self, user: int | None) -> None:
        if self._users is not None and user is not None and user in self._users.of_sessions:
            self._free_users.append(user)

    async def _start_spare(self, spec: ExecutorSpec) -> None:
        try:
            self._add_spare(await self._start(spec))
        except _INFRASTRUCTURE_ERRORS as error:
            _log.warning("cannot start a spare worker: %s", error)

    async def _recycle(self, executor: Executor) -> None:
        """Turn a used executor into a spare if one is missing, otherwise close it."""
        is_needed = not executor.spec.is_root and len(self._spares_of(executor.spec)) < self._most_spares(executor.spec)
        try:
            await (executor.recycle() if is_needed else executor.kill())
        except _INFRASTRUCTURE_ERRORS as error:
            is_needed = False
            _log.warning("cannot recycle an executor: %s", error)
        except asyncio.CancelledError:
            self._discard(executor)
            raise
        finally:
            self._ended_bytes.pop(executor, None)
        if is_needed:
            self._add_spare(executor)
        else:
            self._discard(executor)

    async def _kill_live(self, executor: Executor) -> None:
        try:
            await kill_live(executor)
        except (ChannelClosedError, TimeoutError):
            # The snapshots are lost with the root, and reported as such.
            _log.warning("the root of an executor with snapshots died")

    async def _end_fork(self, executor: Executor) -> None:
        """Kill the processes of a fork, remove its files, and free its slot."""
        try:
            await executor.pending_snapshot.stay()
            await executor.call_root(CloseSlot(executor.slot))
            await executor.end_file_work()
            await in_thread(executor.directory.empty)
        except _INFRASTRUCTURE_ERRORS as error:
            _log.warning("cannot end a fork: %s", error)
        finally:
            executor.close()
            self.all.discard(executor)
            executor.tree.members.pop(executor.slot, None)
            self.reclaim(executor.tree)

    def _add_spare(self, executor: Executor) -> None:
        spares = self._spares_of(executor.spec)
        if len(spares) < self._most_spares(executor.spec):
            spares.append(executor)
        else:
            self._discard(executor)

    def _discard(self, executor: Executor) -> None:
        self._ended_bytes.pop(executor, None)
        if executor in self.all:
            self.all.remove(executor)
            self._return_user(executor.user)
        executor.close()
        self._release_in_background(self._remove_files(executor))

    async def _remove_files(self, executor: Executor) -> None:
        await executor.end_file_work()
        while self._container is not None and not procfs.has_exited(executor.tree.root_pid):
            # Until then, processes of the session may be left, and the next one has its directories.
            await asyncio.sleep(_EXIT_INTERVAL)
        # The reference is dropped: a file system in memory is freed with the last one.
        await in_thread(executor.take_directory().remove)

    def _add_in_background(self, spec: ExecutorSpec, work: Callable[[], Coroutine[None, None, None]]) -> None:
        """Do something in the background that adds a spare."""

        async def count() -> None:
            try:
                await work()
            finally:
                self._coming[spec] -= 1

        self._coming[spec] += 1
        self._in_background(count())

    def _release_in_background(self, work: Coroutine[None, None, None]) -> None:
        """End an executor, or remove its files, in the background."""
        task = self._in_background(work)
        self._release_tasks.add(task)
        self._occupancy_changed.set()
        task.add_done_callback(self._on_released)

    def _on_released(self, task: asyncio.Task[None]) -> None:
        self._release_tasks.discard(task)
        self._occupancy_changed.set()

    def _in_background(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _used_bytes(disk: os.statvfs_result) -> int:
    return (disk.f_blocks - disk.f_bfree) * disk.f_frsize
