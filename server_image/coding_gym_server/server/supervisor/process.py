"""A process that a client runs in a session, beside its worker."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
from collections.abc import AsyncIterator, Callable

import msgspec

from coding_gym_server.ipc.channel import close_all
from coding_gym_server.ipc.program_messages import TERMINAL_SIZE, WITH_OWN_TERMINAL, WITH_STREAMS, WITH_TERMINAL
from coding_gym_server.ipc.streams import open_pipe
from coding_gym_server.linux.terminals import open_terminal, set_size
from coding_gym_server.protocol import TIMEOUT_EXIT_CODE
from coding_gym_server.protocol.processes import (
    Keepalive,
    ProcessEvent,
    ProcessExited,
    ProcessInfo,
    ProcessOutput,
    ProcessRequest,
    ProcessStarted,
    TerminalSize,
)
from coding_gym_server.server.supervisor.process_streams import BoundedOutput, OutputReader, StdinWriter
from coding_gym_server.server.supervisor.spawner_handle import ROOT_TIMEOUT_SECONDS, ShimHandle

__all__ = ["Process"]

_UNEXPECTED = "the process of the sandbox that ran it died"
_EVENT_BYTES = 1 << 18
_KEEPALIVE_SECONDS = 5.0


class Process:
    """A process of a session, or what is known of it after its exit.

    Args:
        request: What it runs.
        on_end: Called when it has exited.

    Attributes:
        id: Its id in the session.
        pid: Its process id.
        result: How it ended, or None while it runs.
    """

    def __init__(self, request: ProcessRequest, *, on_end: Callable[[], None]) -> None:
        self.id = secrets.token_hex(8)
        self.pid = 0
        self.result: ProcessExited | None = None
        self._loss = _UNEXPECTED
        self._limit_exceeded = False
        self._request = request
        self._on_end = on_end
        self._shim: ShimHandle | None = None
        self._stdin: StdinWriter | None = None
        self._stdout, self._stderr = (BoundedOutput(request.max_output_bytes, request.keep) for _ in range(2))
        self._readers: list[OutputReader] = []
        self._terminal = -1
        self._changed = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._timed_out = False

    @property
    def info(self) -> ProcessInfo:
        """The description for clients."""
        return ProcessInfo(id=self.id, pid=self.pid, command=self._request.command, result=self.result)

    @property
    def output_bytes(self) -> int:
        """Number of bytes of output that are kept."""
        return len(self._stdout.data) + len(self._stderr.data)

    def open_streams(self, *, opens_terminal: bool) -> tuple[bytes, tuple[int, ...]]:
        """Open the streams.

        Args:
            opens_terminal: Whether the process opens a terminal itself if it needs one, so that it belongs to the session.

        Returns:
            The request to the spawner, and the ends that the process inherits, which the caller closes.

        Raises:
            OSError: If the server has no free file descriptor.
        """
        size = self._request.terminal
        if size is None:
            return WITH_STREAMS, self._open_pipes()
        if opens_terminal:
            return WITH_OWN_TERMINAL + TERMINAL_SIZE.pack(size.rows, size.columns), ()
        controller, terminal = open_terminal(size.rows, size.columns)
        self.on_terminal(controller)
        return WITH_TERMINAL, (terminal, os.dup(terminal), os.dup(terminal))

    def on_terminal(self, descriptor: int) -> None:
        """Take ownership of the end that controls the terminal."""
        self._terminal = descriptor
        self._stdin = StdinWriter(os.dup(descriptor), is_terminal=True)
        self._read(os.dup(descriptor), self._stdout)

    def begin(self, shim: ShimHandle) -> None:
        """Supervise the started process: send its input and measure its time.

        Args:
            shim: Its parent.
        """
        self.pid, self._shim = shim.pid, shim
        if self.result is not None:
            # It has exited already.
            return
        if self._stdin is not None:
            self._stdin.put(self._request.stdin)
            self._request.stdin = b""
            if not self._request.keep_stdin_open and self._request.terminal is None:
                self._stdin.end()
        if self._request.timeout_s is not None:
            self._timer = asyncio.get_running_loop().call_later(self._request.timeout_s, self._expire)

    async def events(self, *, stdout: int = 0, stderr: int = 0) -> AsyncIterator[list[ProcessEvent]]:
        """Yield the start, the output so far, then what happens, up to the exit; events at the same time together.

        Args:
            stdout: Number of bytes of stdout to leave out.
            stderr: Number of bytes of stderr to leave out.
        """
        events: list[ProcessEvent] = [ProcessStarted(self.id, self.pid)]
        while True:
            result, changed = self.result, self._changed
            skipped, output = self._stdout.after(stdout, _EVENT_BYTES)
            if skipped or output:
                stdout += skipped + len(output)
                events.append(ProcessOutput(stdout=output, skipped_stdout=skipped))
            skipped, output = self._stderr.after(stderr, _EVENT_BYTES)
            if skipped or output:
                stderr += skipped + len(output)
                events.append(ProcessOutput(stderr=output, skipped_stderr=skipped))
            if result is not None and stdout >= self._stdout.end and stderr >= self._stderr.end:
                yield [*events, result]
                return
            if not events:
                try:
                    async with asyncio.timeout(_KEEPALIVE_SECONDS):
                        await changed.wait()
                    continue
                except TimeoutError:
                    events.append(Keepalive())
            yield events
            events = []

    async def wait(self) -> ProcessExited:
        """Wait for the exit; return the outcome, which counts all bytes that are not in ``output``."""
        while self.result is None:
            await self._changed.wait()
        stdout, stderr = self._stdout, self._stderr
        return msgspec.structs.replace(
            self.result, dropped_stdout=stdout.start + stdout.dropped, dropped_stderr=stderr.start + stderr.dropped
        )

    @property
    def output(self) -> tuple[memoryview, memoryview]:
        """The kept parts of stdout and stderr; the process must have exited."""
        return memoryview(self._stdout.data), memoryview(self._stderr.data)

    async def write(self, data: bytes) -> None:
        """Write to stdin.

        Raises:
            BrokenPipeError: If stdin is closed.
        """
        if self._stdin is None:
            raise BrokenPipeError
        await self._stdin.write(data)

    def end_input(self) -> None:
        """Close stdin after the data written so far; in a terminal, send the end-of-input character."""
        if self._stdin is not None:
            self._stdin.end()

    async def signal(self, number: int) -> None:
        """Send a signal to the process group; SIGKILL also reaches all descendants. No effect after the exit.

        Raises:
            TimeoutError: If the parent of the process does not respond.
        """
        if self.result is None and self._shim is not None:
            async with asyncio.timeout(ROOT_TIMEOUT_SECONDS):
                await self._shim.send(number)

    def resize(self, size: TerminalSize) -> None:
        """Change the size of the terminal.

        Raises:
            ValueError: If the process has no terminal.
        """
        if self._terminal < 0:
            message = "the process has no terminal; start it with one"
            raise ValueError(message)
        set_size(self._terminal, size.rows, size.columns)

    def on_exit(self, status: int | None) -> None:
        """Complete the process. Its descendants may keep writing to its streams, without effect.

        Args:
            status: Its wait status, None if it was lost.
        """
        self._end(status)
        self._on_end()

    def expect_end(self, reason: str, *, limit_exceeded: bool = False) -> None:
        """Expect the end of the process, which is about to be killed; the first reason counts."""
        if self._loss is _UNEXPECTED:
            self._loss, self._limit_exceeded = reason, limit_exceeded

    def _end(self, status: int | None) -> None:
        if self.result is not None:
            return
        if self._timer is not None:
            self._timer.cancel()
        if self._stdin is not None:
            self._stdin.close()
        for reader in self._readers:
            reader.drain()
            reader.freeze()
        exit_code = -signal.SIGKILL if status is None else os.waitstatus_to_exitcode(status)
        self.result = ProcessExited(
            exit_code=TIMEOUT_EXIT_CODE if self._timed_out else exit_code if exit_code >= 0 else 128 - exit_code,
            signal=-exit_code if exit_code < 0 else None,
            timed_out=self._timed_out,
            dropped_stdout=self._stdout.dropped,
            dropped_stderr=self._stderr.dropped,
            lost=self._loss if status is None else None,
            limit_exceeded=status is None and self._limit_exceeded,
        )
        self._notify()

    def close(self) -> None:
        """Close the streams; a process that still runs is killed. Idempotent."""
        self._end(None)
        if self._shim is not None:
            self._shim.close()
        if self._stdin is not None:
            self._stdin.close()
        for reader in self._readers:
            reader.close()
        if self._terminal >= 0:
            os.close(self._terminal)
            self._terminal = -1

    def _open_pipes(self) -> tuple[int, ...]:
        inherited: list[int] = []
        try:
            if self._request.stdin or self._request.keep_stdin_open:
                stdin, ours = open_pipe()
                self._stdin = StdinWriter(ours, is_terminal=False)
            else:
                stdin = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
            inherited.append(stdin)
            for output in (self._stdout, self._stderr):
                ours, theirs = open_pipe()
                inherited.append(theirs)
                self._read(ours, output)
        except OSError:
            close_all(inherited)
            raise
        return tuple(inherited)

    def _read(self, descriptor: int, output: BoundedOutput) -> None:
        self._readers.append(OutputReader(descriptor, output, on_data=self._notify))

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _expire(self) -> None:
        assert self._shim is not None
        self._timed_out = True
        self._shim.send(signal.SIGKILL)
