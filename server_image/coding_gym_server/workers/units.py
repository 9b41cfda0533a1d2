"""All units of a sandbox: those in use, and spares that wait, ready to take a session at once."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Coroutine
from itertools import chain
from pathlib import Path

from coding_gym_server.workers.leftovers import Leftovers
from coding_gym_server.workers.link import LinkClosedError
from coding_gym_server.workers.unit import Kind, Unit
from coding_gym_server.workers.zygote_process import ForkError, ZygoteProcess

__all__ = ["Units"]

_log = logging.getLogger(__name__)

_ROOM = 0.1
"""The part of the disk that is free if it is not about to be full."""

_FAULTS = (ForkError, LinkClosedError, TimeoutError, OSError)


class Units:
    """Hands out units that are as good as new.

    Args:
        zygote: Forks the roots.
        base: The directory of all workspaces.
        kind: What most units are; of these, spares are there from the start.
        spares: How many units of a kind to keep ready beyond those in use.
        leftovers: Where sessions can leave something outside of their workspaces.

    Attributes:
        all: Those in use and the spares.
    """

    def __init__(self, zygote: ZygoteProcess, base: Path, *, kind: Kind, spares: int, leftovers: Leftovers) -> None:
        self._zygote = zygote
        self._base = base
        self._kind = kind
        self._max_spares = spares
        self._leftovers = leftovers
        self.all: set[Unit] = set()
        self._spares: dict[Kind, list[Unit]] = {kind: []}
        self._in_work: set[asyncio.Task[None]] = set()
        self._ending: set[asyncio.Task[None]] = set()
        self._cleaning = asyncio.Lock()

    async def acquire(self, kind: Kind) -> Unit:
        """Return a unit in which nothing has run: a spare, or else a new one.

        Args:
            kind: What it is to be.

        Raises:
            ForkError: There are no processes, memory or disk left, or the backend cannot be loaded.
            LinkClosedError: The zygote died.
        """
        if self._leftovers.private and self._ending:
            # Before another session may have these directories, the last one must be over.
            await asyncio.wait(self._ending)
        await self._remove_leftovers()
        unit = self._take_spare(kind) or await self._start(kind)
        self._fill(kind)
        return unit

    async def renew(self, unit: Unit) -> Unit:
        """Exchange a used unit for one as good as new; when this returns, nothing that ran in the old one runs any more.

        Raises:
            ForkError: There are no processes, memory or disk left.
            LinkClosedError: The zygote or the root died.
        """
        # Without room on the disk, what the last episode has left must go before the next one begins, not meanwhile.
        spare = self._take_spare(unit.kind) if self._has_room() else None
        try:
            await (unit.recycle() if spare is None else unit.kill())
            await self._remove_leftovers()
        except BaseException:
            self._discard(unit)
            if spare is not None:
                self._keep(spare)
            raise
        if spare is None:
            self._fill(unit.kind)
            return unit
        self._in_background(self._recycle(unit))
        return spare

    def release(self, unit: Unit) -> None:
        """Take a unit back, whatever runs in it: it is killed at once."""
        task = self._in_background(self._end(unit))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def fill(self) -> None:
        """Start the first spares in the background."""
        self._fill(self._kind)

    async def close(self) -> None:
        """End all spares, and what still starts."""
        for task in self._in_work:
            task.cancel()
        await asyncio.gather(*self._in_work, return_exceptions=True)
        for unit in chain.from_iterable(self._spares.values()):
            unit.close()

    def _fill(self, kind: Kind) -> None:
        """Start spares in the background until there are as many as there should be."""
        for _ in range(self._max_spares - len(self._spares_of(kind)) - len(self._in_work)):
            self._in_background(self._start_spare(kind))

    def _spares_of(self, kind: Kind) -> list[Unit]:
        return self._spares.setdefault(kind, [])

    def _has_room(self) -> bool:
        disk = os.statvfs(self._base)
        return disk.f_bavail >= disk.f_blocks * _ROOM and disk.f_favail >= disk.f_files * _ROOM

    def _take_spare(self, kind: Kind) -> Unit | None:
        while spares := self._spares_of(kind):
            unit = spares.pop()
            if unit.is_alive:
                return unit
            self._discard(unit)
        return None

    async def _start(self, kind: Kind) -> Unit:
        try:
            unit = await Unit.start(self._zygote, self._base, kind)
        except LinkClosedError:
            # The zygote died meanwhile: another one takes its place.
            unit = await Unit.start(self._zygote, self._base, kind)
        self.all.add(unit)
        return unit

    async def _start_spare(self, kind: Kind) -> None:
        try:
            self._keep(await self._start(kind))
        except _FAULTS as error:
            _log.warning("no spare worker could be started: %s", error)

    async def _end(self, unit: Unit) -> None:
        """Take a unit back together with what its session has left elsewhere."""
        await self._recycle(unit)
        await self._remove_leftovers()

    async def _recycle(self, unit: Unit) -> None:
        """Make a used unit a spare, if one is wanted; else end it."""
        wanted = len(self._spares_of(unit.kind)) < self._max_spares
        try:
            await (unit.recycle() if wanted else unit.kill())
        except _FAULTS as error:
            wanted = False
            _log.warning("a unit could not be recycled: %s", error)
        except asyncio.CancelledError:
            self._discard(unit)
            raise
        if wanted:
            self._keep(unit)
        else:
            self._discard(unit)

    def _keep(self, unit: Unit) -> None:
        spares = self._spares_of(unit.kind)
        if len(spares) < self._max_spares:
            spares.append(unit)
        else:
            self._discard(unit)

    def _discard(self, unit: Unit) -> None:
        self.all.discard(unit)
        unit.close()
        asyncio.get_running_loop().run_in_executor(None, unit.remove_workspace)

    async def _remove_leftovers(self) -> None:
        """Clean up after sessions that have ended, before another one begins."""
        if self._leftovers.exist():
            async with self._cleaning:
                await asyncio.get_running_loop().run_in_executor(None, self._leftovers.remove)

    def _in_background(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._in_work.add(task)
        task.add_done_callback(self._in_work.discard)
        return task
