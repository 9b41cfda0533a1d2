"""Execution of a submission: the connection and output of its process, and the enforcement of its limits."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple, TypeVar

from coding_gym_server.ipc.async_channel import ChannelClosedError
from coding_gym_server.ipc.channel import close_all
from coding_gym_server.ipc.messages import ForkWorker, WorkerExited
from coding_gym_server.ipc.streams import open_output_pipes
from coding_gym_server.linux import procfs
from coding_gym_server.linux.program_clock import ProgramClock
from coding_gym_server.protocol.grading import GradingLimits
from coding_gym_server.server.supervisor.output_capture import OutputCapture

__all__ = ["LimitWatch", "RunLimits", "SubmissionRun", "TalkEnds", "open_talk"]

_GRACE = 2.0
"""Seconds that a test runner has to report its results after the submission has been killed."""

_READ_DELAY = 0.01

_MAX_INTERVAL = 1.0
"""Maximum number of seconds between two looks at the time that processes waited for a processor."""

_Result = TypeVar("_Result")


@dataclass(frozen=True, kw_only=True)
class RunLimits:
    """Time limits of a run whose client waits for it.

    Attributes:
        wall_timeout: Wall-clock time in seconds. Time in which a process waits for a processor does not count, as far as the
            kernel reports it.
        max_seconds: Wall-clock time after which it is ended even if its processes were waiting for a processor.
    """

    wall_timeout: float
    max_seconds: float

    @property
    def cpu_timeout(self) -> float:
        """CPU time in seconds, which a run cannot exceed within ``max_seconds``."""
        return self.max_seconds * (os.cpu_count() or 1)


class TalkEnds(NamedTuple):
    """The streams of a process that talks with another one.

    Attributes:
        stdin: Descriptor from which it reads what the other one prints.
        stdout: Descriptor to which it prints.
    """

    stdin: int
    stdout: int


def open_talk() -> tuple[TalkEnds, TalkEnds]:
    """Return the streams of two processes that talk with each other.

    As long as those of one are open here, the other one does not notice its end.

    Raises:
        OSError: If file descriptors are exhausted.
    """
    (read, others_write), (others_read, write) = open_output_pipes()
    return TalkEnds(read, write), TalkEnds(others_read, others_write)


@dataclass
class SubmissionRun:
    """A submission's process. Created by ``SubmissionRun.open``.

    Attributes:
        connection: The tests' end of the connection with it.
        stdout: Capture of its stdout.
        stderr: Capture of its stderr.
        descriptors: Those that its process receives: its end of the connection, stdout, stderr and, of one that talks, stdin;
            stdout and stderr only if it has run a command before.
        cpu_before: CPU time used by earlier processes and commands, in seconds.
        has_run: Whether it has run a command before.
        ended: How it, or its command, has exited, once it has been forked; fails with ``ChannelClosedError`` if its root dies.
    """

    connection: socket.socket
    stdout: OutputCapture
    stderr: OutputCapture
    descriptors: tuple[int, ...]
    cpu_before: float = 0.0
    has_run: bool = False
    ended: asyncio.Future[WorkerExited] = field(init=False)
    _read_timer: asyncio.TimerHandle | None = field(init=False, default=None)

    @classmethod
    def open(cls, talk: TalkEnds | None = None) -> SubmissionRun:
        """Open the connection and the pipes of a process that is not forked yet.

        Args:
            talk: Its stdin and stdout, if it talks with another process.
        """
        ours, theirs = socket.socketpair()
        stdout, stderr, (out_write, err_write) = _open_captures()
        descriptors: tuple[int, ...] = (theirs.detach(), out_write, err_write)
        if talk is not None:
            os.close(out_write)
            descriptors = (descriptors[0], os.dup(talk.stdout), err_write, os.dup(talk.stdin))
        return cls(ours, stdout, stderr, descriptors)

    def again(self, cpu_before: float) -> SubmissionRun:
        """Return the run of the next command in the same process, with new pipes.

        Args:
            cpu_before: CPU time used by earlier processes and commands, in seconds.
        """
        stdout, stderr, descriptors = _open_captures()
        return SubmissionRun(self.connection.dup(), stdout, stderr, descriptors, cpu_before, has_run=True)

    @property
    def has_stdin(self) -> bool:
        """Whether its process receives a stdin."""
        return len(self.descriptors) > ForkWorker().DESCRIPTORS

    def begin(self, *, max_stdout_chars: int, max_stderr_chars: int) -> None:
        """Begin to read what the process prints.

        Args:
            max_stdout_chars: Maximum number of characters that are kept of its stdout.
            max_stderr_chars: Maximum number of characters that are kept of its stderr.
        """
        self.stdout.max_chars, self.stderr.max_chars = max_stdout_chars, max_stderr_chars
        # The output of a short run fits into the pipe buffers, so that reading need not start.
        self._read_timer = asyncio.get_running_loop().call_later(_READ_DELAY, self._start_reading)

    def close_descriptors(self) -> None:
        """Close the descriptors of the process, once it has received them. Idempotent."""
        close_all(self.descriptors)
        self.descriptors = ()

    def __enter__(self) -> SubmissionRun:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def take_output(self) -> tuple[str, str]:
        return self.stdout.take(), self.stderr.take()

    def close(self) -> None:
        """Close the connection and the pipes."""
        if self._read_timer is not None:
            self._read_timer.cancel()
        self.close_descriptors()
        self.connection.close()
        self.stdout.close()
        self.stderr.close()

    def _start_reading(self) -> None:
        self.stdout.start_reading()
        self.stderr.start_reading()


def _open_captures() -> tuple[OutputCapture, OutputCapture, tuple[int, int]]:
    """Return the captures of stdout and stderr that are not read yet, and the descriptors to which a process prints."""
    (out_read, out_write), (err_read, err_write) = open_output_pipes()
    return OutputCapture(out_read, max_chars=0), OutputCapture(err_read, max_chars=0), (out_write, err_write)


class LimitWatch:
    """Kills a submission that exceeds its limits before the end of a block.

    Args:
        limits: The limits.
        kill: Kills the submission.
        cpu_time: Returns the CPU time that it has used, in seconds.
        roots: Ids of the processes whose descendants are those of the submission and of its tests.
        has_started: Returns whether it has been started, before which only the limit of all seconds holds.

    Attributes:
        expired: Whether it has exceeded a limit.
    """

    def __init__(
        self,
        limits: GradingLimits | RunLimits,
        *,
        kill: Callable[[], None],
        cpu_time: Callable[[], Awaitable[float]],
        roots: Collection[int],
        has_started: Callable[[], bool] = lambda: True,
    ) -> None:
        self.expired = False
        self._has_started = has_started
        self._limits = limits
        self._kill = kill
        self._cpu_time = cpu_time
        self._loop = asyncio.get_running_loop()
        self._roots = roots
        self._began = self._loop.time()
        self._clock = ProgramClock()
        # Processes that exit take their waiting time along, so it is looked up while they run.
        self._interval = max(_READ_DELAY, min(_MAX_INTERVAL, limits.wall_timeout / 8))
        self._wall = self._loop.call_later(self._interval, self._watch_wall)
        # The earliest time at which the CPU time can be used up.
        self._cpu = self._loop.call_later(limits.cpu_timeout / (os.cpu_count() or 1), self._watch_cpu)
        self._watching: asyncio.Task[None] | None = None
        self._grace: asyncio.TimerHandle | None = None
        self._result: asyncio.Future[Any] | None = None

    async def over(self, result: asyncio.Future[_Result]) -> _Result | None:
        """Wait for the result of a submission; returns None if there is none shortly after it was killed."""
        self._result = result
        return await result

    def __enter__(self) -> LimitWatch:
        return self

    def __exit__(self, *_: object) -> None:
        self._wall.cancel()
        self._cpu.cancel()
        if self._grace is not None:
            self._grace.cancel()
        if self._watching is not None:
            self._watching.cancel()

    def _expire(self) -> None:
        if self.expired or (self._result is not None and self._result.done()):
            return
        self.expired = True
        self._grace = self._loop.call_later(_GRACE, self._give_up)
        self._kill()

    def _give_up(self) -> None:
        if self._result is not None and not self._result.done():
            self._result.set_result(None)

    def _watch_wall(self) -> None:
        counted = self._clock.read(chain.from_iterable(map(procfs.descendants, self._roots)))
        elapsed = self._loop.time() - self._began
        left = min(self._limits.wall_timeout - counted, self._limits.max_seconds - elapsed)
        if elapsed >= self._limits.max_seconds or (left <= 0 and self._has_started()):
            self._expire()
        else:
            self._wall = self._loop.call_later(min(max(left, _READ_DELAY), self._interval), self._watch_wall)

    def _watch_cpu(self) -> None:
        self._watching = self._loop.create_task(self._poll_cpu())

    async def _poll_cpu(self) -> None:
        cores = os.cpu_count() or 1
        with contextlib.suppress(ChannelClosedError, TimeoutError):
            while (left := self._limits.cpu_timeout - await self._cpu_time()) > 0:
                await asyncio.sleep(max(left / cores, _READ_DELAY))
            self._expire()
