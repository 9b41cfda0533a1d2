"""The server's handle on a frozen copy of a worker."""

from __future__ import annotations

import asyncio
import contextlib
import socket

from coding_gym_server.ipc.async_channel import AsyncChannel, ChannelClosedError
from coding_gym_server.ipc.messages import Configure, FromProcess
from coding_gym_server.ipc.snapshot_messages import Thaw, WorkerCopied
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
    """A frozen copy of a worker and of the session's files.

    Args:
        channel: Our end of its channel.
        files: Copy of the files.
        configuration: The worker's configuration.
        max_output_chars: Maximum number of code points of stdout, and of stderr, per step.

    Attributes:
        pid: Its process id, 0 before it is known.
        files: Copy of the files.
        configuration: The worker's configuration.
        max_output_chars: Maximum number of code points of stdout, and of stderr, per step.
        is_lost: Whether the process has ended.
    """

    def __init__(
        self, channel: socket.socket, files: SavedFiles, *, configuration: Configure | None, max_output_chars: int
    ) -> None:
        self.pid = 0
        self.files = files
        self.configuration = configuration
        self.max_output_chars = max_output_chars
        self.is_lost = False
        self._channel: AsyncChannel[FromProcess] = AsyncChannel(channel, on_closed=self._on_closed)

    async def thaw(self, request: Thaw, descriptors: tuple[int, ...]) -> None:
        """Let it fork a worker.

        Args:
            request: The request.
            descriptors: The worker's channel, stdout and stderr.

        Raises:
            SnapshotRefusedError: If it is lost, or cannot fork.
        """
        try:
            response = await self._channel.call(request, descriptors, timeout=_THAW_SECONDS)
        except (ChannelClosedError, TimeoutError):
            self.is_lost = True
            raise SnapshotRefusedError(["the snapshot is lost: its process has ended"]) from None
        if not isinstance(response, WorkerCopied):
            raise SnapshotRefusedError([getattr(response, "reason", "the snapshot does not respond as expected")])

    def close(self) -> None:
        """Close the channel, and delete the files in the background. Idempotent."""
        self.is_lost = True
        self._channel.close()
        with contextlib.suppress(RuntimeError):
            asyncio.get_running_loop().run_in_executor(None, self.files.remove)

    def _on_closed(self) -> None:
        self.is_lost = True
