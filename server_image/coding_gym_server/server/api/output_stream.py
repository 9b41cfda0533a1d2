"""Output of a running step, sent before its observation."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType

from coding_gym_server.protocol import OutputData, OutputMessage
from coding_gym_server.server.supervisor.worker_handle import Event, OutputChunk

__all__ = ["OutputStream"]

_INTERVAL = 0.05
"""Seconds between two messages, in which output is collected."""

_MAX_CHARS = 1 << 18
"""Maximum number of code points that are sent of a step: the observation has the begin and the end of longer output."""


class OutputStream:
    """Sends the output of a step while it runs. Use it as an asynchronous context manager.

    Args:
        send: Sends a message.
    """

    def __init__(self, send: Callable[[OutputMessage], Awaitable[None]]) -> None:
        self._send = send
        self._pending: dict[str, list[str]] = {"stdout": [], "stderr": []}
        self._arrived = asyncio.Event()
        self._budget = _MAX_CHARS
        self._task: asyncio.Task[None] | None = None

    def add(self, event: Event) -> None:
        """Send the text of an event soon; results are part of the observation only."""
        if isinstance(event, OutputChunk) and self._budget > 0:
            text = event.text[: self._budget]
            self._budget -= len(text)
            self._pending[event.stream].append(text)
            self._arrived.set()

    async def __aenter__(self) -> OutputStream:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._task is not None
        # What is still to be sent is part of the observation.
        self._task.cancel()
        # If the client is gone, the next message says so, too.
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await self._arrived.wait()
            await asyncio.sleep(_INTERVAL)
            self._arrived.clear()
            taken = {stream: "".join(texts) for stream, texts in self._pending.items()}
            for texts in self._pending.values():
                texts.clear()
            await self._send(OutputMessage(OutputData(**taken)))
