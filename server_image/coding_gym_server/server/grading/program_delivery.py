"""Delivery of a program to the process that runs it, and what the process tells of it."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import msgspec

from coding_gym_server.ipc.channel import HEADER
from coding_gym_server.ipc.messages import WorkerExited
from coding_gym_server.protocol.errors import DECODING_ERRORS
from coding_gym_server.remote_objects.program_messages import (
    MAX_COMPILED_BYTES,
    CommandEnded,
    Compiled,
    NotStarted,
    RunCommand,
    RunProgram,
    Started,
)
from coding_gym_server.server.grading.compiled_programs import CompiledPrograms
from coding_gym_server.server.grading.submission_run import SubmissionRun
from coding_gym_server.workspace.file_errors import STORAGE_ERRORS, FilesError

__all__ = ["NotStartedError", "ProgramDelivery"]

_MAX_START_BYTES = 4096
_MAX_OVERHEAD_BYTES = 16
_READ_BYTES = 65_536

_first_messages = msgspec.msgpack.Decoder(Started | NotStarted)
_second_messages = msgspec.msgpack.Decoder(Compiled | CommandEnded | NotStarted)


class NotStartedError(RuntimeError):
    """A program was not started, for a reason that says nothing about it."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"The sandbox failed to start the program: {reason}")


class ProgramDelivery:
    """Sends a program to the process that runs it, and receives what the process tells before it executes anything of it.

    Nothing is read that the process sends later, because the program could have forged it, unless it is a command, which runs
    in another process.

    Args:
        run: The process.
        request: The program. If it has been compiled before, so is what is sent; if it has not, the compiled one is kept.
        compiled: Compiled programs.

    Attributes:
        command: How a command has ended; None if it has not, or its process has.
    """

    def __init__(self, run: SubmissionRun, request: RunProgram | RunCommand, compiled: CompiledPrograms) -> None:
        run.connection.setblocking(False)
        self._run = run
        self._connection = run.connection
        self.command: CommandEnded | None = None
        self._loop = asyncio.get_running_loop()
        self._compiled = compiled
        self._new: RunProgram | None = None
        if isinstance(request, RunProgram):
            code = compiled.get(request.code, request.file)
            if code is None:
                self._new = request
            else:
                request = msgspec.structs.replace(request, compiled=code)
        elif run.has_run:
            request = msgspec.structs.replace(request, has_streams=True)
        self._request = request
        self._received = bytearray()
        self._expected = HEADER.size
        self._first: Started | NotStarted | None = None
        self._is_over = False

    async def send(self, timeout: float) -> None:
        """Send the program.

        Args:
            timeout: Timeout in seconds.

        Raises:
            NotStartedError: If the process ends before it has received the program, or does not receive it.
        """
        try:
            body = msgspec.msgpack.encode(self._request)
            data = HEADER.pack(len(body)) + body
            # The process has received those of its first program already.
            sent = socket.send_fds(self._connection, [data], self._run.descriptors) if self._run.descriptors else 0
            self._run.close_descriptors()
            async with asyncio.timeout(timeout):
                await self._loop.sock_sendall(self._connection, memoryview(data)[sent:])
        except TimeoutError:
            reason = f"its process did not receive it within {timeout:.1f} s"
            raise NotStartedError(reason) from None
        except (OSError, ValueError, MemoryError) as error:
            reason = f"it could not be sent to its process: {error or type(error).__name__}"
            raise NotStartedError(reason) from error
        if self._has_more:
            # What is compiled may not fit into the buffer of the connection.
            self._loop.add_reader(self._connection.fileno(), self._read)

    def has_started(self) -> bool:
        """Return whether the process has begun to compile or to execute the program, as far as it has told."""
        self._read()
        return isinstance(self._first, Started)

    def check_started(self) -> None:
        """Check that the program was started, once its process has ended.

        Raises:
            NotStartedError: If it was not.
            FilesError: If its file cannot be written for a reason that concerns the path.
        """
        if self.has_started():
            return
        if self._first is None:
            reason = "its process ended before"
            raise NotStartedError(reason)
        assert isinstance(self._first, NotStarted)
        if self._first.number and self._first.number not in STORAGE_ERRORS:
            raise FilesError(self._first.reason)
        raise NotStartedError(self._first.reason)

    def close(self) -> None:
        """Stop receiving, before the connection is closed. Idempotent."""
        if self._has_more and self._connection.fileno() >= 0:
            self._loop.remove_reader(self._connection.fileno())
        self._is_over = True

    @property
    def _has_more(self) -> bool:
        """Whether a second message follows the first one."""
        return self._new is not None or isinstance(self._request, RunCommand)

    def _read(self) -> None:
        while not self._is_over:
            try:
                data = self._connection.recv(min(self._expected - len(self._received), _READ_BYTES))
            except BlockingIOError:
                return
            except OSError:
                data = b""
            self._received += data
            if not data or (len(self._received) == self._expected and not self._take()):
                self.close()

    def _take(self) -> bool:
        """Take a header, or a message, off what has been received; return whether something follows that is to be read."""
        if self._expected == HEADER.size:
            (size,) = HEADER.unpack(self._received)
            self._expected += size
            return bool(size <= (_MAX_START_BYTES if self._first is None else MAX_COMPILED_BYTES + _MAX_OVERHEAD_BYTES))
        body = bytes(memoryview(self._received)[HEADER.size :])
        self._received.clear()
        self._expected = HEADER.size
        with contextlib.suppress(*DECODING_ERRORS):
            if self._first is None:
                self._first = _first_messages.decode(body)
                return self._has_more and isinstance(self._first, Started)
            self._take_second(_second_messages.decode(body))
        return False

    def _take_second(self, message: Compiled | CommandEnded | NotStarted) -> None:
        if isinstance(message, Compiled):
            if self._new is not None and message.code:
                self._compiled.put(self._new.code, self._new.file, message.code)
        elif not isinstance(self._request, RunCommand):
            return
        elif isinstance(message, NotStarted):
            self._first = message
        elif not self._run.ended.done():
            self.command = message
            exited = WorkerExited(message.status, peak_bytes=message.peak_bytes, shared_bytes=message.shared_bytes)
            self._run.ended.set_result(exited)
