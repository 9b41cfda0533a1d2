"""A run of a submission: its process's connection and output, and the watch over its limits."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from coding_gym_server.grading.messages import GradingLimits
from coding_gym_server.workers.capture import OutputCapture
from coding_gym_server.workers.link import LinkClosedError

__all__ = ["Run", "Watch"]

_GRACE = 2.0
"""Seconds that an examiner has to give its account, once the submission has been killed."""

_REST_SECONDS = 0.01

_Result = TypeVar("_Result")


@dataclass
class Run:
    """A submission's process.

    Attributes:
        connection: Its connection, of which the tests' side is to be.
        stdout: What it prints.
        stderr: Likewise.
        cpu_before: The CPU time that those before it had used.
    """

    connection: socket.socket
    stdout: OutputCapture
    stderr: OutputCapture
    cpu_before: float = 0.0
    _rest: asyncio.TimerHandle = field(init=False)

    def __post_init__(self) -> None:
        # What a short one prints fits into the pipes.
        self._rest = asyncio.get_running_loop().call_later(_REST_SECONDS, self._start_reading)

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def take_output(self) -> tuple[str, str]:
        return self.stdout.take(), self.stderr.take()

    def close(self) -> None:
        self._rest.cancel()
        self.stdout.close()
        self.stderr.close()

    def _start_reading(self) -> None:
        self.stdout.start_reading()
        self.stderr.start_reading()


class Watch:
    """Kills a submission that outlives its limits.

    Args:
        limits: The limits.
        kill: Kills it.
        cpu_time: Returns the CPU time that it has used, in seconds.

    Attributes:
        expired: Whether it has.
    """

    def __init__(self, limits: GradingLimits, *, kill: Callable[[], None], cpu_time: Callable[[], Awaitable[float]]) -> None:
        self.expired = False
        self._limits = limits
        self._kill = kill
        self._cpu_time = cpu_time
        self._loop = asyncio.get_running_loop()
        self._wall = self._loop.call_later(limits.wall_timeout, self._expire)
        # It cannot be used up any sooner.
        self._cpu = self._loop.call_later(limits.cpu_timeout / (os.cpu_count() or 1), self._watch_cpu)
        self._watching: asyncio.Task[None] | None = None
        self._grace: asyncio.TimerHandle | None = None
        self._result: asyncio.Future[Any] | None = None

    async def over(self, result: asyncio.Future[_Result]) -> _Result | None:
        """Wait for what comes of a submission; returns None if it has not come soon after the submission was killed."""
        self._result = result
        return await result

    def stop(self) -> None:
        self._wall.cancel()
        self._cpu.cancel()
        if self._grace is not None:
            self._grace.cancel()
        if self._watching is not None:
            self._watching.cancel()

    def _expire(self) -> None:
        self.expired = True
        self._grace = self._loop.call_later(_GRACE, self._give_up)
        self._kill()

    def _give_up(self) -> None:
        if self._result is not None and not self._result.done():
            self._result.set_result(None)

    def _watch_cpu(self) -> None:
        self._watching = self._loop.create_task(self._poll_cpu())

    async def _poll_cpu(self) -> None:
        cores = os.cpu_count() or 1
        with contextlib.suppress(LinkClosedError, TimeoutError):
            while (left := self._limits.cpu_timeout - await self._cpu_time()) > 0:
                await asyncio.sleep(max(left / cores, _REST_SECONDS))
            self._expire()
