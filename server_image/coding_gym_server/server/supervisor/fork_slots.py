"""``ForkSlotFactory``: makes the namespaces of forks."""

from __future__ import annotations

import asyncio
import os
import socket

from coding_gym_server.ipc.async_channel import AsyncChannel
from coding_gym_server.ipc.channel import close_all
from coding_gym_server.ipc.messages import Failed, FromProcess
from coding_gym_server.ipc.snapshot_messages import ForkSlotMaker, OpenSlot, ShareNamespaces
from coding_gym_server.ipc.zygote_messages import SLOT_MAKER
from coding_gym_server.isolation.profile import IsolationProfile
from coding_gym_server.server.supervisor.executor import Executor
from coding_gym_server.server.supervisor.frozen_worker import FrozenWorker, SnapshotRefusedError
from coding_gym_server.server.supervisor.zygote_handle import ForkError, ZygoteHandle
from coding_gym_server.server.threads import in_thread
from coding_gym_server.workspace.session_directory import MountedDirectory, SlotDirectory
from coding_gym_server.zygote.config import ZygoteConfig

__all__ = ["ForkSlotFactory"]

_MAX_DEPTH = 12
"""Maximum number of nested forks: each has one of the 16 Landlock layers that a process can have, and a user namespace."""

_TIMEOUT_SECONDS = 10.0
_NAMESPACES = 5


class ForkSlotFactory:
    """Opens slots for forks. Starts a small zygote for them at the first one.

    Args:
        zygote: The zygote of the sessions.
        profile: The isolation profile of the sessions.
    """

    def __init__(self, zygote: ZygoteHandle, profile: IsolationProfile) -> None:
        self._zygote = zygote
        self._profile = profile
        self._started: ZygoteHandle | None = None

    async def open(self, origin: Executor, frozen: FrozenWorker) -> tuple[Executor, tuple[int, ...]]:
        """Open a slot in a process tree.

        Args:
            origin: The executor that a frozen copy was made of; it may have been closed.
            frozen: The copy, which the fork is to continue from.

        Returns:
            The executor of the slot, which has no worker yet; and its namespaces, which the caller closes.

        Raises:
            SnapshotRefusedError: If the session or the kernel permits no further fork.
            ChannelClosedError: If the root died.
            TimeoutError: If the root does not respond.
        """
        if not frozen.own_pid:
            await origin.pending_snapshot.leave()
        frozen.check()
        tree = origin.tree
        directory = tree.directory
        number = tree.free_slot()
        if not isinstance(directory, MountedDirectory) or directory.slots is None:
            reason = "sessions of this sandbox have no separate mounts, so that they can be restored in place only"
            raise SnapshotRefusedError([reason])
        if origin.depth >= _MAX_DEPTH:
            raise SnapshotRefusedError([f"a fork of a fork can be nested {_MAX_DEPTH} times; restore it in place or by replay"])
        if number is None:
            raise SnapshotRefusedError(["the session has the maximum number of forks: close some, or start another sandbox"])
        executor = Executor(origin.spec, origin.user, tree, slot=number, depth=origin.depth + 1)
        executor.directory = SlotDirectory(directory, number)
        try:
            control, own, *namespaces = await self._make(origin, frozen, number, directory.slots)
            try:
                try:
                    await tree.call_root(OpenSlot(number), (control, own, *namespaces))
                finally:
                    close_all((control, own))
                if not executor.directory.empty_if_bare():
                    # The last fork with this slot could not be ended properly.
                    await in_thread(executor.directory.empty)
            except BaseException:
                close_all(namespaces)
                raise
        except (ForkError, TimeoutError, OSError) as error:
            del tree.members[number]
            raise SnapshotRefusedError([str(error) or "the namespaces of the fork were not made in time"]) from error
        except BaseException:
            del tree.members[number]
            raise
        return executor, tuple(namespaces)

    def close(self) -> None:
        """End the zygote, if it has been started."""
        if self._started is not None:
            self._started.close()

    async def _make(self, origin: Executor, frozen: FrozenWorker, number: int, slots: int) -> tuple[int, ...]:
        response, shared = await origin.tree.call_for_descriptors(ShareNamespaces(frozen.own_pid))
        try:
            if isinstance(response, Failed):
                raise ForkError(response.reason)
            return await self._fork(ForkSlotMaker(number), *shared, slots)
        finally:
            close_all(shared)

    async def _fork(self, request: ForkSlotMaker, *shared: int) -> tuple[int, ...]:
        received: list[int] = []
        made: asyncio.Future[FromProcess] = asyncio.get_running_loop().create_future()

        def finish(response: FromProcess) -> None:
            if not made.done():
                made.set_result(response)

        ours, theirs = socket.socketpair()
        channel: AsyncChannel[FromProcess] = AsyncChannel(
            ours,
            on_message=finish,
            on_descriptors=received.extend,
            on_closed=lambda: finish(Failed("the process that makes the namespaces of forks has ended")),
        )
        try:
            with theirs:
                await self._zygote_of_slots().fork_slot_maker(request, theirs, *shared)
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                response = await made
            if isinstance(response, Failed) or len(received) < 1 + _NAMESPACES:
                raise ForkError(getattr(response, "reason", "the server has no free file descriptor"))
            # The root continues the conversation.
            received.insert(0, os.dup(ours.fileno()))
        except BaseException:
            close_all(received)
            raise
        finally:
            channel.close()
        return tuple(received)

    def _zygote_of_slots(self) -> ZygoteHandle:
        if self._started is None:
            self._started = self._zygote.start_another(ZygoteConfig(preload=[], backend=SLOT_MAKER, profile=self._profile))
            self._started.attach(on_gone=self._on_gone)
        return self._started

    def _on_gone(self) -> None:
        self._started = None
