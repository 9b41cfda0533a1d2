"""All units of a sandbox: those in use, and spares that wait, ready to take a session at once."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine
from pathlib import Path

from coding_gym_server.workers import shared_memory
from coding_gym_server.workers.link import LinkClosedError
from coding_gym_server.workers.unit import Unit
from coding_gym_server.workers.zygote_process import ForkError, ZygoteProcess

__all__ = ["Units"]

_log = logging.getLogger(__name__)

_FAULTS = (ForkError, LinkClosedError, TimeoutError, OSError)


class Units:
    """Hands out units that are as good as new.

    Args:
        zygote: Forks the roots.
        base: The directory of all workspaces.
        spares: How many units to keep ready beyond those in use.
        shared_memory_patterns: Which files in ``/dev/shm`` belong to sessions; see ``shared_memory.sweep``.
    """

    def __init__(
        self, zygote: ZygoteProcess, base: Path, *, spares: int, shared_memory_patterns: tuple[str, ...]
    ) -> None:
        self._zygote = zygote
        self._base = base
        self._max_spares = spares
        self._shared_memory_patterns = shared_memory_patterns
        self._started = time.time()
        self._spares: list[Unit] = []
        self._in_work: set[asyncio.Task[None]] = set()

    async def acquire(self) -> Unit:
        """Return a unit in which nothing has run: a spare, or else a new one.

        Raises:
            ForkError: There are no processes, memory or disk left.
            LinkClosedError: The zygote died.
        """
        spare = self._take_spare()
        if spare is None:
            return await self._start()
        self.fill()
        return spare

    async def renew(self, unit: Unit) -> Unit:
        """Exchange a used unit for one as good as new; when this returns, nothing that ran in the old one runs any more.

        Raises:
            ForkError: There are no processes, memory or disk left.
            LinkClosedError: The zygote or the root died.
        """
        try:
            spare = self._take_spare()
            await (unit.recycle() if spare is None else unit.kill())
        except BaseException:
            self._discard(unit)
            raise
        if spare is None:
            self._sweep_shared_memory()
            return unit
        self._in_background(self._recycle(unit))
        return spare

    def release(self, unit: Unit) -> None:
        """Take a unit back, whatever runs in it."""
        if unit.broken or len(self._spares) + len(self._in_work) >= self._max_spares:
            self._discard(unit)
            self._sweep_shared_memory()
        else:
            self._in_background(self._recycle(unit))

    def fill(self) -> None:
        """Start spares in the background until there are as many as there should be."""
        for _ in range(self._max_spares - len(self._spares) - len(self._in_work)):
            self._in_background(self._start_spare())

    async def close(self) -> None:
        """End all spares, and what still starts."""
        for task in self._in_work:
            task.cancel()
        await asyncio.gather(*self._in_work, return_exceptions=True)
        for unit in self._spares:
            unit.close()

    def _take_spare(self) -> Unit | None:
        while self._spares:
            unit = self._spares.pop()
            if not unit.broken:
                return unit
            self._discard(unit)
        return None

    async def _start(self) -> Unit:
        return await Unit.start(self._zygote, self._base)

    async def _start_spare(self) -> None:
        try:
            self._keep(await self._start())
        except _FAULTS as error:
            _log.warning("no spare worker could be started: %s", error)

    async def _recycle(self, unit: Unit) -> None:
        try:
            await unit.recycle()
        except _FAULTS as error:
            _log.warning("a unit could not be recycled: %s", error)
            self._discard(unit)
        except asyncio.CancelledError:
            self._discard(unit)
            raise
        else:
            self._keep(unit)
        self._sweep_shared_memory()

    def _keep(self, unit: Unit) -> None:
        if len(self._spares) < self._max_spares:
            self._spares.append(unit)
        else:
            self._discard(unit)

    def _discard(self, unit: Unit) -> None:
        unit.close()
        asyncio.get_running_loop().run_in_executor(None, unit.remove_workspace)

    def _sweep_shared_memory(self) -> None:
        if shared_memory.exists(self._shared_memory_patterns):
            asyncio.get_running_loop().run_in_executor(
                None, shared_memory.sweep, self._shared_memory_patterns, self._started
            )

    def _in_background(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._in_work.add(task)
        task.add_done_callback(self._in_work.discard)
