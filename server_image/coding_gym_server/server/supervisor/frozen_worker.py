"""The server's handle on a frozen worker."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine

from coding_gym_server.ipc.async_channel import AsyncChannel, ChannelClosedError
from coding_gym_server.ipc.messages import Configure, FromProcess
from coding_gym_server.ipc.snapshot_messages import Thaw, WorkerCopied
from coding_gym_server.server.supervisor.worker_handle import WorkerHandle
from coding_gym_server.server.threads import start_in_thread
from coding_gym_server.workspace.saved_files import SavedFiles

__all__ = ["FrozenWorker", "SnapshotRefusedError"]

_THAW_SECONDS = 10.0


class SnapshotRefusedError(RuntimeError):
    """A worker cannot be copied, or a copy is lost.

    Attributes:
        reasons: What prevents it.
    """

    def __init__(self, reasons: list[str]) -> None:
        super().__init__("; ".join(reasons))
        self.reasons = reasons


class FrozenWorker:
    """A frozen worker and a copy of the session's files. It has no separate process before ``connect``.

    Args:
        files: Copy of the files.
        configuration: The worker's configuration.
        max_output_chars: Maximum number of code points of stdout, and of stderr, per step.

    Attributes:
        own_pid: Its process id in the pid namespace of the root, 0 before it has a process.
        files: Copy of the files.
        configuration: The worker's configuration.
        max_output_chars: Maximum number of code points of stdout, and of stderr, per step.
        loss: Why it can no longer be restored, None if it can.
        spare: A worker that was forked from it in advance, None without one.
        preparation: The task that forks the spare, or has done so; None before it was needed.
    """

    def __init__(self, files: SavedFiles, *, configuration: Configure | None, max_output_chars: int) -> None:
        self.own_pid = 0
        self.files = files
        self.configuration = configuration
        self.max_output_chars = max_output_chars
        self.loss: str | None = None
        self.spare: WorkerHandle | None = None
        self._restores = 0
        self.preparation: asyncio.Task[None] | None = None
        self._channel: AsyncChannel[FromProcess] | None = None

    def connect(self, channel: socket.socket, own_pid: int) -> None:
        """Take over a process that has frozen.

        Args:
            channel: Our end of its channel.
            own_pid: Its process id in the pid namespace of the root.
        """
        self.own_pid = own_pid
        self._channel = AsyncChannel(channel, on_closed=lambda: self.lose("its process was killed"), is_trusted=False)

    def lose(self, reason: str) -> None:
        """Mark it as lost: it cannot be restored any more."""
        self.loss = self.loss or reason

    def check(self) -> None:
        """Raise if it is lost.

        Raises:
            SnapshotRefusedError: If it is.
        """
        if self.loss is not None:
            raise SnapshotRefusedError([f"the snapshot is lost: {self.loss}"])

    async def thaw(self, descriptors: tuple[int, ...], *, keep: bool) -> int:
        """Let it fork a worker, or become one; return the worker's process id in its own pid namespace, as the process claims.

        Args:
            descriptors: The worker's channel, stdout and stderr.
            keep: Whether it forks, and can be restored again.

        Raises:
            SnapshotRefusedError: If it is lost, or cannot fork.
        """
        self.check()
        assert self._channel is not None
        try:
            response = await self._channel.call(Thaw(keep), descriptors, timeout=_THAW_SECONDS)
        except (ChannelClosedError, TimeoutError):
            self.lose("its process has ended")
            self.check()
            raise
        if not isinstance(response, WorkerCopied):
            raise SnapshotRefusedError([getattr(response, "reason", "the snapshot does not respond as expected")])
        if not keep:
            self.own_pid = 0
            self.lose("it was released")
        return response.pid

    def take_spare(self) -> WorkerHandle | None:
        """Return the worker that was forked in advance, which belongs to the caller then; None if there is none."""
        spare, self.spare = self.spare, None
        if spare is not None and spare.has_exited:
            spare.close()
            return None
        return spare

    def count_restore(self, prepare: Callable[[], Coroutine[None, None, None]]) -> None:
        """Count a restore; from the second on, prepare the next one in the background.

        Args:
            prepare: Makes a spare.
        """
        self._restores += 1
        if self._restores > 1 and (self.preparation is None or self.preparation.done()):
            self.preparation = asyncio.get_running_loop().create_task(prepare())

    def close(self) -> None:
        """Close the channel and the spare, and delete the files in the background. Idempotent."""
        self.lose("it was released")
        if self.preparation is not None:
            self.preparation.cancel()
        if self.spare is not None:
            self.spare.close()
        if self._channel is not None:
            self._channel.close()
        if self.files.exist:
            start_in_thread(self.files.remove)
