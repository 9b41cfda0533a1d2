"""Processes that clients run in a session, beside its worker."""

from __future__ import annotations

import asyncio
import fcntl
import os
import secrets
import shutil
import signal
import struct
import termios
from collections.abc import AsyncIterator

import msgspec

from coding_gym_server.ipc.async_channel import AsyncChannel, ChannelClosedError
from coding_gym_server.ipc.channel import close_all
from coding_gym_server.ipc.messages import FromProcess
from coding_gym_server.ipc.program_messages import pack_program
from coding_gym_server.ipc.streams import open_pipe
from coding_gym_server.protocol import TIMEOUT_EXIT_CODE
from coding_gym_server.protocol.processes import (
    CompletedProcess,
    Keepalive,
    ProcessEvent,
    ProcessExited,
    ProcessInfo,
    ProcessOutput,
    ProcessRequest,
    ProcessStarted,
    TerminalSize,
)
from coding_gym_server.server.supervisor.process_streams import InputPipe, Output, OutputReader
from coding_gym_server.server.supervisor.spawner_handle import ROOT_TIMEOUT_SECONDS, ShimHandle, SpawnerHandle
from coding_gym_server.workspace.layout import Layout

__all__ = ["Process", "ProcessNotFoundError", "ProcessTable", "TooManyProcessesError"]

_MAX_PROCESSES = 64
_MAX_RETAINED_BYTES = 64 << 20
"""Maximum output of finished processes that a session keeps, except for the last one."""

_UNEXPECTED = "the process of the sandbox that ran it died"
_EVENT_BYTES = 1 << 18
_KEEPALIVE_SECONDS = 5.0
_TERMINAL_TYPE = "xterm-256color"
_WINDOW_SIZE = struct.Struct("4H")


class ProcessNotFoundError(LookupError):
    """The session has no process with the given id."""

    def __init__(self, identifier: str) -> None:
        super().__init__(f"Process {identifier} not found: it belongs to another session or episode, or was forgotten")


class TooManyProcessesError(RuntimeError):
    """The session has too many running processes."""

    def __init__(self) -> None:
        super().__init__(f"The session runs {_MAX_PROCESSES} processes already; wait for one or signal it")


class Process:
    """A process of a session, or what is known of it after its exit.

    Args:
        request: What it runs.

    Attributes:
        id: Its id in the session.
        pid: Its process id.
        result: How it ended, or None while it runs.
        loss: Why it ends, if the server does not learn its exit status.
    """

    def __init__(self, request: ProcessRequest) -> None:
        self.id = secrets.token_hex(8)
        self.pid = 0
        self.result: ProcessExited | None = None
        self.loss = _UNEXPECTED
        self._request = request
        self._shim: ShimHandle | None = None
        self._stdin: InputPipe | None = None
        self._stdout, self._stderr = (Output(request.max_output_bytes, request.keep) for _ in range(2))
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

    def open_streams(self) -> tuple[int, int, int]:
        """Open the streams; return the ends that the process inherits, which the caller closes."""
        return self._open_pipes() if self._request.terminal is None else self._open_terminal(self._request.terminal)

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

    async def wait(self) -> CompletedProcess:
        """Wait for the exit; return the outcome with the output that is kept."""
        while self.result is None:
            await self._changed.wait()
        stdout, stderr = self._stdout, self._stderr
        result = msgspec.structs.replace(
            self.result, dropped_stdout=stdout.start + stdout.dropped, dropped_stderr=stderr.start + stderr.dropped
        )
        return CompletedProcess(result=result, stdout=bytes(stdout.data), stderr=bytes(stderr.data))

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
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, _WINDOW_SIZE.pack(size.rows, size.columns, 0, 0))

    def end(self, status: int | None) -> None:
        """Complete the process. Its descendants may keep writing to its streams, without effect.

        Args:
            status: Its wait status, None if it was lost.
        """
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
            lost=self.loss if status is None else None,
        )
        self._notify()

    def close(self) -> None:
        """Close the streams; a process that still runs is killed. Idempotent."""
        self.end(None)
        if self._shim is not None:
            self._shim.close()
        if self._stdin is not None:
            self._stdin.close()
        for reader in self._readers:
            reader.close()
        if self._terminal >= 0:
            os.close(self._terminal)
            self._terminal = -1

    def _open_pipes(self) -> tuple[int, int, int]:
        if self._request.stdin or self._request.keep_stdin_open:
            stdin, ours = open_pipe()
            self._stdin = InputPipe(ours, is_terminal=False)
        else:
            stdin = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        ours, stdout = open_pipe()
        self._read(ours, self._stdout)
        ours, stderr = open_pipe()
        self._read(ours, self._stderr)
        return stdin, stdout, stderr

    def _open_terminal(self, size: TerminalSize) -> tuple[int, int, int]:
        self._terminal, terminal = os.openpty()
        self.resize(size)
        self._stdin = InputPipe(os.dup(self._terminal), is_terminal=True)
        self._read(os.dup(self._terminal), self._stdout)
        return terminal, os.dup(terminal), os.dup(terminal)

    def _read(self, descriptor: int, output: Output) -> None:
        self._readers.append(OutputReader(descriptor, output, on_data=self._notify))

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _expire(self) -> None:
        assert self._shim is not None
        self._timed_out = True
        self._shim.send(signal.SIGKILL)


class ProcessTable:
    """The processes of a session, running and finished.

    Args:
        root: Channel to the session root.
    """

    def __init__(self, root: AsyncChannel[FromProcess]) -> None:
        self._root = root
        self._spawner = SpawnerHandle(root)
        self._processes: dict[str, Process] = {}
        self._starting = 0

    async def start(self, request: ProcessRequest, layout: Layout, *, display: str | None) -> Process:
        """Start a process.

        Args:
            request: What to run.
            layout: The directories of the session.
            display: Name of the display, or None without a screen.

        Raises:
            TooManyProcessesError: If the session has too many running processes.
            ForkError: If the process limit or memory is exhausted.
            ChannelClosedError: If the root died.
            TimeoutError: If the root does not respond.
        """
        directory = layout.work if request.cwd is None else os.path.join(layout.work, request.cwd)
        environment = layout.program_variables(display)
        if request.terminal is not None:
            environment["TERM"] = _TERMINAL_TYPE
        environment |= {"PWD": directory, **request.environment}
        self._make_room()
        process = Process(request)
        program = pack_program(_argv(request.command), directory, environment)

        def on_exit(status: int | None) -> None:
            process.end(status)
            self._forget_old_output()

        spawner = self._spawner
        self._starting += 1
        try:
            streams = process.open_streams()
            try:
                has_terminal = request.terminal is not None
                process.begin(await spawner.run(program, streams, has_terminal=has_terminal, on_exit=on_exit))
            finally:
                close_all(streams)
            if spawner.is_closed:
                # The episode has ended in the meantime.
                raise ChannelClosedError
        except BaseException:
            process.close()
            raise
        finally:
            self._starting -= 1
        self._processes[process.id] = process
        return process

    def get(self, identifier: str) -> Process:
        """Return the process with an id.

        Raises:
            ProcessNotFoundError: If there is none.
        """
        try:
            return self._processes[identifier]
        except KeyError:
            raise ProcessNotFoundError(identifier) from None

    def list(self) -> list[Process]:
        """Return all processes, the oldest first."""
        return [*self._processes.values()]

    def expect_end(self, reason: str) -> None:
        """Expect the end of the running processes, which the root is about to kill.

        Args:
            reason: Why, for their results; the first reason counts.
        """
        for process in self._processes.values():
            if process.loss is _UNEXPECTED:
                process.loss = reason
        # Requests that are being processed must not start another one.
        self._spawner.close()
        self._spawner = SpawnerHandle(self._root)

    def clear(self, reason: str = "the session was closed") -> None:
        """Forget all processes; the root has killed them, or is about to.

        Args:
            reason: Why, for the results of those that run.
        """
        self.expect_end(reason)
        for process in self._processes.values():
            process.close()
        self._processes.clear()

    def _forget_old_output(self) -> None:
        """Forget the oldest finished processes while all but the last have more output than the limit."""
        finished = [process for process in self._processes.values() if process.result is not None]
        size = sum(process.output_bytes for process in finished)
        for process in finished[:-1]:
            if size <= _MAX_RETAINED_BYTES:
                return
            size -= process.output_bytes
            self._processes.pop(process.id).close()

    def _make_room(self) -> None:
        """Forget the oldest finished process if the table is full."""
        if len(self._processes) + self._starting < _MAX_PROCESSES:
            return
        for process in self._processes.values():
            if process.result is not None:
                self._processes.pop(process.id).close()
                return
        raise TooManyProcessesError


def _argv(command: str | list[str]) -> list[str]:
    if isinstance(command, str):
        return [shutil.which("bash") or "/bin/sh", "-c", command]
    return command
