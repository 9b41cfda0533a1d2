"""``LoopLock``: a lock for the tasks of one event loop."""

from __future__ import annotations

import asyncio
from types import TracebackType

from coding_gym.errors import ConcurrentUseError

__all__ = ["LoopLock"]


class LoopLock:
    """Asynchronous lock that belongs to the event loop in which it is acquired first, as the connection that it guards does."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def check_loop(self) -> None:
        """Raise if another event loop runs than that of the first call.

        Raises:
            ConcurrentUseError: If it does.
        """
        loop = asyncio.get_running_loop()
        self._loop = self._loop or loop
        if loop is not self._loop:
            state = "has ended" if self._loop.is_closed() else "is another one"
            message = (
                f"This environment belongs to the event loop in which it was started, which {state}: make an environment in "
                "each event loop, in the coroutine that is passed to asyncio.run()"
            )
            raise ConcurrentUseError(message)

    async def __aenter__(self) -> None:
        self.check_loop()
        await self._lock.acquire()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()
