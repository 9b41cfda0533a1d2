"""``Grading``: gives each submission a booth, of which there are hardly more than cores."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from pathlib import Path

import msgspec

from coding_gym_server.grading.booth import Booth, not_run
from coding_gym_server.grading.messages import Graded, Submission, VerdictOutcome
from coding_gym_server.isolation.confinement import Confinement
from coding_gym_server.workers.leftovers import Leftovers
from coding_gym_server.workers.link import LinkClosedError
from coding_gym_server.workers.messages import SUBMISSION
from coding_gym_server.workers.zygote import ZygoteConfig
from coding_gym_server.workers.zygote_process import ForkError, ZygoteProcess

__all__ = ["Grading"]

_log = logging.getLogger(__name__)

_SPARE_BOOTHS = 1
"""How many more there are than cores: tests and submissions wait for one another, and for the server."""

_FAULTS = (ForkError, LinkClosedError, TimeoutError)

_PRELOAD = (
    *("abc", "bisect", "cmath", "collections", "copy", "dataclasses", "datetime", "decimal", "enum", "fractions", "functools"),
    *("heapq", "io", "itertools", "json", "math", "operator", "random", "re", "statistics", "string", "typing"),
)
"""What submissions import most, and what costs a fork next to nothing."""


class Grading:
    """Grades submissions, several at a time.

    Args:
        zygote: Forks examiners.
        base: The directory of all workspaces.
        leftovers: Where submissions can leave something outside of theirs.
        confinement: What sessions are confined to.
    """

    def __init__(self, zygote: ZygoteProcess, base: Path, *, leftovers: Leftovers, confinement: Confinement) -> None:
        self._zygote = zygote
        self._base = base
        # What is the only session's is not for submissions, which come and go beside it.
        self._leftovers = msgspec.structs.replace(leftovers, private=())
        self._confinement = msgspec.structs.replace(
            confinement, shared=True, private_directories=(), adopted_by_init=False, ports=()
        )
        self._nursery: ZygoteProcess | None = None
        self._idle: list[Booth] = []
        self._busy: set[Booth] = set()
        self._room = asyncio.Semaphore((os.cpu_count() or 1) + _SPARE_BOOTHS)

    @property
    def booths(self) -> list[Booth]:
        """All that there are now."""
        return [*self._idle, *self._busy]

    async def grade(self, submission: Submission) -> Graded:
        """Grade a submission.

        A fault of ours is one, and the verdict says so. But a submission whose grading ends, twice, processes that it has no
        access to, has found a way, and its verdict says that it was killed.

        Raises:
            FilesError: One of its files cannot be written.
        """
        async with self._room:
            for is_last in (False, True):
                try:
                    booth = await self._take()
                except (*_FAULTS, OSError) as error:
                    return _fault(error)
                try:
                    graded = await booth.grade(submission)
                except LinkClosedError as error:
                    self._discard(booth)
                    if is_last:
                        return _lost(submission)
                    _log.warning("a submission is graded anew: %s", error)
                except (*_FAULTS, OSError) as error:
                    self._discard(booth)
                    return _fault(error)
                except BaseException:
                    self._discard(booth)
                    raise
                else:
                    self._give_back(booth)
                    return graded
        raise AssertionError

    def close(self) -> None:
        """End all booths."""
        for booth in self.booths:
            booth.close()
        if self._nursery is not None:
            self._nursery.close()

    async def _take(self) -> Booth:
        if self._leftovers.exist():
            await asyncio.to_thread(self._leftovers.remove)
        while self._idle:
            booth = self._idle.pop()
            if booth.is_alive:
                self._busy.add(booth)
                return booth
            self._discard(booth)
        if self._nursery is None:
            wanted = ZygoteConfig(preload=list(_PRELOAD), backend=SUBMISSION, confinement=self._confinement)
            self._nursery = ZygoteProcess(wanted)
            self._nursery.attach(on_gone=self._forget_nursery)
        booth = await Booth.open(self._base, zygote=self._zygote, nursery=self._nursery)
        self._busy.add(booth)
        return booth

    def _forget_nursery(self) -> None:
        _log.error("the zygote of submissions died too often; the next submission starts another one")
        self._nursery = None

    def _give_back(self, booth: Booth) -> None:
        self._busy.discard(booth)
        if booth.is_alive:
            self._idle.append(booth)
        else:
            self._discard(booth)

    def _discard(self, booth: Booth) -> None:
        self._busy.discard(booth)
        booth.close()
        with contextlib.suppress(RuntimeError):
            asyncio.get_running_loop().run_in_executor(None, booth.remove_directory)


def _fault(error: Exception) -> Graded:
    message = f"the sandbox failed to grade this submission: {str(error) or type(error).__name__}"
    return Graded(outcome=VerdictOutcome.INFRASTRUCTURE, message=message)


def _lost(submission: Submission) -> Graded:
    message = "grading it has ended a process of the sandbox, twice"
    return Graded(outcome=VerdictOutcome.KILLED, message=message, cases=tuple(not_run(submission)))
