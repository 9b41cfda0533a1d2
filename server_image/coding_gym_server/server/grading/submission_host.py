"""``SubmissionHost``: the root, the processes and the files of one submission after the other, whatever they are run for."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Collection, Mapping

import msgspec

from coding_gym_server.ipc.async_channel import AsyncChannel, ChannelClosedError
from coding_gym_server.ipc.library_messages import ImportLibraries
from coding_gym_server.ipc.messages import (
    CpuTime,
    CpuTimeUsed,
    End,
    Ended,
    Failed,
    ForkWorker,
    FromProcess,
    Kill,
    WorkerExited,
    WorkerForked,
)
from coding_gym_server.ipc.zygote_messages import SUBMISSION
from coding_gym_server.protocol.grading import FileContent, GradingLimits
from coding_gym_server.remote_objects.program_messages import CommandEnded, RunCommand
from coding_gym_server.server.grading.program_run import Program
from coding_gym_server.server.grading.submission_run import LimitWatch, RunLimits, SubmissionRun, TalkEnds
from coding_gym_server.server.supervisor.systems import SessionSystem
from coding_gym_server.server.supervisor.zygote_handle import ForkError, ZygoteHandle
from coding_gym_server.server.threads import in_thread
from coding_gym_server.workspace.session_directory import SessionDirectory

__all__ = ["ANSWER_TIMEOUT_SECONDS", "IMPORT_TIMEOUT_SECONDS", "SubmissionHost"]

ANSWER_TIMEOUT_SECONDS = 10.0
"""Seconds within which a root responds."""

IMPORT_TIMEOUT_SECONDS = 120.0
"""Seconds within which a root has imported libraries."""


class SubmissionHost:
    """Opens, forks, limits and ends the processes of submissions, one at a time, and empties their files.

    Created by ``SubmissionHost.start``.

    Args:
        user: Id of the submissions' user, None if they have the server's user and no separate mounts.

    Attributes:
        user: As above.
        mounts: Descriptor of their mount namespace, by which test runners borrow their files; None if they have none.
        directory: The files of the submissions.
        root_pid: Process id of the root, the ancestor of all processes of the submission.
        is_recycling: Whether the processes of a submission are being replaced by those of the next one.
    """

    def __init__(self, user: int | None) -> None:
        self.user = user
        self.mounts: int | None = None
        self.directory: SessionDirectory
        self.root_pid = 0
        self.is_recycling = False
        self._root: AsyncChannel[FromProcess] | None = None
        self._ended: asyncio.Future[WorkerExited] | None = None
        self._has_files = False
        self._waiting: SubmissionRun | None = None

    @classmethod
    async def start(cls, system: SessionSystem, libraries: frozenset[str], *, zygote: ZygoteHandle) -> SubmissionHost:
        """Start the root.

        Args:
            system: User and files of the submissions.
            libraries: Names of modules that the root imports, as far as they are installed.
            zygote: Forks the root.

        Raises:
            ForkError: If processes, memory or disk space are exhausted.
            ChannelClosedError: If the zygote or the root died.
            TimeoutError: If the root does not respond.
            OSError: If the directories cannot be created.
        """
        host = cls(system.user)
        try:
            ours, theirs = socket.socketpair()
            root = host._root = AsyncChannel(
                ours,
                on_message=host._on_message,
                on_descriptors=system.on_descriptors,
                on_closed=host._on_closed,
            )
            with theirs:
                host.root_pid = await zygote.fork_root(system.request(SUBMISSION), theirs)
            host.directory = await system.enter(root)
            host.mounts = system.take_mounts()
            host.directory.repair()
            if libraries:
                await root.call(ImportLibraries(sorted(libraries)), timeout=IMPORT_TIMEOUT_SECONDS)
        except BaseException:
            host.close()
            system.discard()
            raise
        return host

    @property
    def is_alive(self) -> bool:
        """Whether the root is still running, as far as known."""
        return self._root is not None

    def kill(self) -> None:
        """Kill all processes of the submission without waiting for their end."""
        self._drop_waiting()
        self._kill()

    def close(self) -> None:
        """End the processes, which does not wait for them. The files remain until they are removed."""
        self._drop_waiting()
        if self._root is not None:
            self._root.close()
            self._root = None
        if self.mounts is not None:
            os.close(self.mounts)
            self.mounts = None

    def take_directory(self) -> SessionDirectory:
        """Return the files, which are not accessed here any more. Call it after ``close``."""
        directory = self.directory
        del self.directory
        return directory

    async def open_run(
        self, files: Mapping[str, str | FileContent], *, max_stdout_chars: int, max_stderr_chars: int
    ) -> SubmissionRun:
        """Write the files of a submission, the only ones, and open the descriptors of its process.

        Args:
            files: Initial content of the working directory.
            max_stdout_chars: Maximum number of characters that are kept of its stdout.
            max_stderr_chars: Maximum number of characters that are kept of its stderr.
        """
        await self.empty()
        await self.write(files)
        run = SubmissionRun.open()
        run.begin(max_stdout_chars=max_stdout_chars, max_stderr_chars=max_stderr_chars)
        return run

    async def start_run(self, program: Program, talk: TalkEnds | None = None) -> SubmissionRun:
        """Return a process that waits for a program, whose files are the only ones.

        Args:
            program: The program.
            talk: Its stdin and stdout, if it talks with another process.

        Raises:
            FilesError: If one of the files cannot be written.
            ForkError: If processes or memory are exhausted.
            ChannelClosedError: If the root died.
            TimeoutError: If it does not respond.
        """
        waiting = self._take_waiting(for_command=isinstance(program.request, RunCommand)) if talk is None else None
        run = waiting or SubmissionRun.open(talk)
        try:
            await self.empty()
            # The process waits for its program.
            forking = [] if waiting else [self.fork(run)]
            await asyncio.gather(*forking, self.write(program.files))
        except BaseException:
            run.close()
            raise
        run.begin(max_stdout_chars=program.max_stdout_chars, max_stderr_chars=program.max_stderr_chars)
        return run

    async def write(self, files: Mapping[str, str | FileContent]) -> None:
        """Write files into the working directory."""
        self._has_files = True
        if files:
            await in_thread(self.directory.write, files)

    async def fork_ahead(self) -> None:
        """Fork the process of the next submission, which waits for it, in the empty directories.

        Raises:
            ForkError: If processes or memory are exhausted.
            ChannelClosedError: If the root died.
            TimeoutError: If it does not respond.
        """
        if self._waiting is not None:
            return
        run = SubmissionRun.open()
        try:
            await self.fork(run)
        except BaseException:
            run.close()
            raise
        self._waiting = run

    def _take_waiting(self, *, for_command: bool) -> SubmissionRun | None:
        """Return the process that waits for a submission, None if there is none, or it has been killed.

        Args:
            for_command: Whether it may be one that has run commands.
        """
        if self._waiting is not None and (self._waiting.ended.done() or self._waiting.has_run > for_command):
            self._drop_waiting()
        waiting, self._waiting = self._waiting, None
        return waiting

    def _drop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.close()
            self._waiting = None

    async def fork(self, run: SubmissionRun) -> None:
        """Fork the process of a submission, which replaces one that waits."""
        self._drop_waiting()
        self.is_recycling = True
        try:
            answer = await self._ask(ForkWorker(has_stdin=run.has_stdin), run.descriptors)
        finally:
            self.is_recycling = False
            run.close_descriptors()
        if isinstance(answer, Failed):
            raise ForkError(answer.reason)
        assert isinstance(answer, WorkerForked)
        run.cpu_before = answer.cpu_seconds
        run.ended = self._ended = asyncio.get_running_loop().create_future()

    async def clean_up(self) -> None:
        """Remove files in memory, which must not remain until the next submission, and end a process that waits."""
        self._drop_waiting()
        try:
            await self.empty()
        except OSError:
            # Without processes, the worker is discarded, and its file system with it.
            self.close()

    async def empty(self) -> None:
        """Remove what a submission and its tests have left, if there has been one.

        Raises:
            OSError: If something cannot be removed.
        """
        if self._has_files and not self.directory.empty_if_bare():
            await in_thread(self.directory.empty)
        self._has_files = False

    async def end(self, run: SubmissionRun, command: CommandEnded | None = None) -> float:
        """Kill all remaining processes; returns the CPU time used, in seconds.

        Args:
            run: The process.
            command: How its command has ended; None if it has run none, or may have exited. It waits for the next one.
        """
        ended: asyncio.Future[WorkerExited] = asyncio.get_running_loop().create_future()
        if command is not None:
            # Its process may exit from now on.
            self._ended = ended
        answer = await self._ask(End(keeps_worker=command is not None))
        assert isinstance(answer, Ended)
        used = answer.cpu_seconds
        if command is not None and answer.has_worker:
            used += command.cpu_seconds
            # Without descriptors, another process is forked.
            with contextlib.suppress(OSError):
                self._waiting = run.again(used)
                self._waiting.ended = ended
        return used - run.cpu_before

    def watch(
        self,
        limits: GradingLimits | RunLimits,
        run: SubmissionRun,
        *,
        roots: Collection[int],
        has_started: Callable[[], bool] = lambda: True,
    ) -> LimitWatch:
        """Return a watch that kills the submission when it exceeds its limits."""

        async def cpu_time() -> float:
            answer = await self._ask(CpuTime())
            assert isinstance(answer, CpuTimeUsed)
            return answer.seconds - run.cpu_before

        return LimitWatch(limits, kill=self._kill, cpu_time=cpu_time, roots=roots, has_started=has_started)

    async def _ask(self, request: msgspec.Struct, descriptors: tuple[int, ...] = ()) -> FromProcess:
        """Send a request to the root; return its response."""
        if self._root is None:
            raise ChannelClosedError
        return await self._root.call(request, descriptors, timeout=ANSWER_TIMEOUT_SECONDS)

    def _kill(self) -> None:
        """Kill all processes of the submission without waiting for their end."""
        if self._root is not None:
            with contextlib.suppress(ChannelClosedError):
                self._root.send(Kill())
                self._root.expect()

    def _on_message(self, message: FromProcess) -> None:
        if isinstance(message, WorkerExited) and self._ended is not None and not self._ended.done():
            self._ended.set_result(message)

    def _on_closed(self) -> None:
        self._root = None
        if self._ended is not None and not self._ended.done():
            self._ended.set_exception(ChannelClosedError())
            # Nothing else may retrieve that.
            self._ended.exception()
