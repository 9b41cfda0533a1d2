"""A frozen worker that is still the worker of its session, and is copied only if the session continues."""

from __future__ import annotations

import asyncio
import contextlib
import socket

from coding_gym_server.ipc.async_channel import ChannelClosedError
from coding_gym_server.ipc.messages import Failed
from coding_gym_server.ipc.snapshot_messages import AdoptCopy, CopyAdopted, CopyWorker, StayFrozen, WorkerCopied
from coding_gym_server.server.supervisor.frozen_worker import FrozenWorker
from coding_gym_server.server.supervisor.process_tree import ProcessTree
from coding_gym_server.server.supervisor.worker_handle import WorkerHandle

__all__ = ["PendingSnapshot"]


class PendingSnapshot:
    """The last snapshot of a slot, while its worker has not continued.

    A search that restores another snapshot next needs no copy: the worker itself stays frozen.

    Args:
        tree: The executors that have the same root.
        slot: Number of the slot.
    """

    def __init__(self, tree: ProcessTree, slot: int) -> None:
        self._tree = tree
        self._slot = slot
        self._held: tuple[FrozenWorker, WorkerHandle] | None = None
        self._detaching = asyncio.Lock()

    def hold(self, frozen: FrozenWorker, worker: WorkerHandle) -> None:
        """Let a worker be a frozen one, which has no separate process, until the session continues."""
        self._held = frozen, worker

    async def leave(self) -> None:
        """Copy the worker if it is frozen, so that it can continue. If that fails, the snapshot is lost."""
        await self._detach(CopyWorker())

    async def stay(self) -> None:
        """Let the worker be the frozen copy if it is frozen. The slot has no worker afterwards."""
        await self._detach(StayFrozen())

    async def _detach(self, request: CopyWorker | StayFrozen) -> None:
        """Give the frozen worker a process. Concurrent calls return when it has one, or is lost."""
        if self._held is None and not self._detaching.locked():
            return
        async with self._detaching:
            held, self._held = self._held, None
            if held is None or held[0].loss is not None:
                return
            frozen, worker = held
            ours, theirs = socket.socketpair()
            try:
                with theirs, contextlib.suppress(ChannelClosedError, TimeoutError):
                    copied = await worker.ask(request, (theirs.fileno(),))
                    if not isinstance(copied, WorkerCopied):
                        frozen.lose(getattr(copied, "reason", "the interpreter did not respond as expected"))
                        return
                    # A worker that stays frozen is the copy itself.
                    pid = copied.pid if isinstance(request, CopyWorker) else 0
                    adopted = await self._tree.call_root(AdoptCopy(pid, worker.own_pid, is_worker=False, slot=self._slot))
                    if isinstance(adopted, Failed):
                        frozen.lose(adopted.reason)
                    # It may have been released in the meantime.
                    if frozen.loss is None:
                        assert isinstance(adopted, CopyAdopted)
                        frozen.connect(ours, adopted.pid)
            finally:
                if not frozen.own_pid:
                    frozen.lose("its process was killed")
                    ours.close()
