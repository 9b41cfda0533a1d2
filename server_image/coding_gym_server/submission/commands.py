"""Commands: runs other programs than Python's, one after the other, as children of a submission's process.

The process has been forked for them, and ends with the submission. To start one takes no copy of its page tables, as a fork
would: see posix_spawn(3). No program can inspect it, or change its limits and its priority. One that ends it has ended itself,
as the root ends all others then.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NoReturn

import msgspec

from coding_gym_server.ipc.channel import Channel, close_all
from coding_gym_server.linux.forking import fork_when_possible
from coding_gym_server.linux.stack import limit_stack
from coding_gym_server.linux.user_namespaces import forbid_inspection
from coding_gym_server.remote_objects.program_messages import CommandEnded, NotStarted, RunCommand
from coding_gym_server.submission.programs import open_input, preparation

__all__ = ["run_commands"]

_NOT_EXECUTABLE, _NOT_FOUND = 126, 127

_IGNORED = (signal.SIGPIPE, signal.SIGXFSZ)
"""Signals that Python ignores, and that programs would ignore, too."""


_decoder = msgspec.msgpack.Decoder(RunCommand)


def run_commands(request: RunCommand, connection: socket.socket, directory: str) -> NoReturn:
    """Run a command, then each that arrives, until the connection ends; then exit.

    Args:
        request: The first command, whose streams are those of the process.
        connection: The connection with the server, through which others arrive.
        directory: The working directory of all.
    """
    channel = Channel(connection, _decoder)
    try:
        # What it reports would else be what a program makes of it.
        forbid_inspection()
        streams = _take_streams()
        while True:
            _run(request, streams, channel, directory)
            request, streams = channel.receive_with_descriptors()
    finally:
        # Not 0: nothing has been reported of a command that may be running.
        os._exit(1)


def _take_streams() -> list[int]:
    """Return stdout, stderr and stdin of the process, which has none from now on: it would keep them open."""
    streams = [os.dup(number) for number in (1, 2, 0)]
    null = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(null, number)
    os.close(null)
    return streams


def _run(request: RunCommand, streams: list[int], channel: Channel[RunCommand], directory: str) -> None:
    """Run a command.

    Args:
        request: The command.
        streams: Its stdout, its stderr and, if it is another one than that of the process, its stdin. They are closed.
        channel: Channel of the reports.
        directory: Its working directory.
    """
    with preparation(channel.send):
        os.chdir(directory)
        limit_stack(request.stack_bytes)
        if request.stdin is not None:
            close_all(streams[2:])
            streams[2:] = [open_input(request.stdin)]
    # The program may end this process at once.
    status, peak = _execute(request, streams, channel)
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    used = own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime
    channel.send(CommandEnded(status, peak, own.ru_maxrss << 10, used))


def _execute(request: RunCommand, streams: Sequence[int], channel: Channel[RunCommand]) -> tuple[int, int]:
    """Run the program of a command to its end.

    Returns:
        Its wait status, that of a shell if it cannot be executed, and the most memory that it had in use, in bytes.
    """
    try:
        with _memory_limit(request.max_memory_bytes):
            pid = fork_when_possible(partial(_spawn, request, streams))
    except BlockingIOError as error:
        # Too many processes, which are those of others.
        channel.send(NotStarted(f"{error.strerror}"))
        os._exit(1)
    except (OSError, ValueError, OverflowError, MemoryError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        with contextlib.suppress(OSError):
            os.write(streams[1], f"{request.command[0]}: {reason}\n".encode(errors="surrogateescape"))
        return (_NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_EXECUTABLE) << 8, 0
    finally:
        # The other end of a pipe waits for the last process that holds it.
        close_all(streams)
    _, status, usage = os.wait4(pid, 0)
    return status, usage.ru_maxrss << 10


def _spawn(request: RunCommand, streams: Sequence[int]) -> int:
    """Start the program of a command in its own process group; return its process id."""
    return os.posix_spawnp(
        request.command[0],
        request.command,
        {**os.environ, **request.variables},
        file_actions=[(os.POSIX_SPAWN_DUP2, stream, number) for stream, number in zip(streams, (1, 2, 0), strict=False)],
        setpgroup=0,
        setsigdef=_IGNORED,
    )


@contextlib.contextmanager
def _memory_limit(limit: int | None) -> Iterator[None]:
    """Context manager in which new processes have a limit on their private memory, which they can raise again.

    One that does is still judged by the memory that it has in use.
    """
    if limit is None:
        yield
        return
    before, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (before, hard))
