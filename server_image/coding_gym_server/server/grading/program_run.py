"""Run of a program in the processes of a grading worker: what to run, and how it ended."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from coding_gym_server.ipc.channel import HEADER
from coding_gym_server.protocol.grading import FileContent, GradingLimits
from coding_gym_server.remote_objects.exchange import MAX_FRAME_BYTES, Compiled, RunCommand, RunProgram
from coding_gym_server.server.grading.compiled_programs import CompiledPrograms
from coding_gym_server.server.grading.submission_run import RunLimits

__all__ = ["Program", "ProgramRun", "send_program"]

_compiled = msgspec.msgpack.Decoder(Compiled)


@dataclass(frozen=True, kw_only=True)
class Program:
    """A program to run once.

    Attributes:
        request: The request to the process that runs it. A Python program is compiled once, so it has no ``compiled``.
        limits: Time limits.
        files: Initial content of the working directory.
        fetch: Paths of files of the working directory to read afterwards.
        libraries: Modules to import before it arrives, as far as they are installed.
        max_stdout_chars: Maximum number of code points that are kept of its stdout.
        max_stderr_chars: Maximum number of code points that are kept of its stderr.
    """

    request: RunProgram | RunCommand
    limits: GradingLimits | RunLimits
    files: Mapping[str, str | FileContent] = field(default_factory=dict)
    fetch: tuple[str, ...] = ()
    libraries: frozenset[str] = frozenset()
    max_stdout_chars: int
    max_stderr_chars: int


@dataclass(frozen=True, kw_only=True)
class ProgramRun:
    """How a run of a program ended.

    Attributes:
        exit_code: Exit code, or the negative number of the signal that killed it.
        expired: Whether it was killed because it exceeded a time limit.
        kill_reason: The resource of the sandbox that it has exhausted; empty if none is known.
        stdout: Its stdout, truncated in the middle.
        stderr: Its stderr, truncated in the middle.
        seconds: Wall-clock time in seconds.
        cpu_seconds: CPU time in seconds.
        files: Contents of the requested files that exist, by path.
        refused: Reasons for which other requested files were not read.
    """

    exit_code: int
    expired: bool = False
    kill_reason: str = ""
    stdout: str = ""
    stderr: str = ""
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    files: Mapping[str, bytes] = field(default_factory=dict)
    refused: tuple[str, ...] = ()


async def send_program(connection: socket.socket, request: RunProgram | RunCommand, compiled: CompiledPrograms) -> None:
    """Send a program to the process that runs it, compiled if it has been compiled before; keep it if it has not.

    Args:
        connection: The connection with the process.
        request: The program.
        compiled: Compiled programs.
    """
    connection.setblocking(False)
    loop = asyncio.get_running_loop()
    is_new = False
    if isinstance(request, RunProgram):
        code = compiled.get(request.code, request.file)
        is_new = code is None
        request = msgspec.structs.replace(request, compiled=code)
    body = msgspec.msgpack.encode(request)
    with contextlib.suppress(OSError, EOFError, msgspec.MsgspecError):
        await loop.sock_sendall(connection, HEADER.pack(len(body)) + body)
        if is_new and isinstance(request, RunProgram):
            # The first message, which always comes: nothing of the program has been executed when it is sent.
            (size,) = HEADER.unpack(await _receive(connection, HEADER.size))
            if size <= MAX_FRAME_BYTES and (new := _compiled.decode(await _receive(connection, size)).code):
                compiled.put(request.code, request.file, new)


async def _receive(connection: socket.socket, size: int) -> bytes:
    loop = asyncio.get_running_loop()
    received = bytearray()
    while len(received) < size:
        data = await loop.sock_recv(connection, size - len(received))
        if not data:
            raise EOFError
        received += data
    return bytes(received)
