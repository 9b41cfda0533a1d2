"""Processes that clients run in a session: requests and events."""

from __future__ import annotations

import struct
from typing import Annotated, Literal

import msgspec

from coding_gym_server.protocol.grading import Seconds

__all__ = [
    "DEFAULT_MAX_PROCESS_OUTPUT",
    "EVENT_FRAMES",
    "FRAME_LENGTH",
    "MAX_PROCESS_OUTPUT",
    "SESSION_HEADER",
    "CompletedProcess",
    "Keep",
    "Keepalive",
    "ProcessEvent",
    "ProcessExited",
    "ProcessInfo",
    "ProcessOutput",
    "ProcessRequest",
    "ProcessStarted",
    "SignalRequest",
    "TerminalSize",
    "Usage",
]

SESSION_HEADER = "Coding-Gym-Session"
"""WebSocket handshake header with the id of the session, by which HTTP requests address its processes and files."""

DEFAULT_MAX_PROCESS_OUTPUT = 16 << 20
"""Default of ``ProcessRequest.max_output_bytes``."""

MAX_PROCESS_OUTPUT = 256 << 20
"""Maximum of ``ProcessRequest.max_output_bytes``."""

EVENT_FRAMES = "application/vnd.coding-gym.event-frames"
"""Media type of events in msgpack, each behind its length; without it in ``Accept``, they are lines of JSON."""

FRAME_LENGTH = struct.Struct(">I")
"""Length of an event in bytes."""

Keep = Literal["first", "last"]
"""Part of an output."""

_Text = Annotated[str, msgspec.Meta(pattern=r"\A[^\0]*\Z")]
Variables = dict[Annotated[str, msgspec.Meta(pattern=r"\A[^\0=]+\Z")], _Text]
"""Environment variables."""


class TerminalSize(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Size of a terminal.

    Attributes:
        rows: Its height in characters.
        columns: Its width in characters.
    """

    rows: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 24
    columns: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 80


class ProcessRequest(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A process to run.

    Attributes:
        command: A program and its arguments, or a command for the shell: bash, or ``/bin/sh`` without bash.
        stdin: Its standard input, base64 in JSON.
        keep_stdin_open: Whether more input may follow; otherwise the input ends after ``stdin``. That of a terminal stays open.
        cwd: Working directory, relative to that of the session; the latter if absent.
        environment: Environment variables in addition to those of the session.
        timeout_s: Wall-clock limit in seconds, after which the process and its descendants are killed; none if absent.
        user: Name or id of the user to run as, and perhaps that of the group behind a colon. Only the session's user is
            available, unless its programs can be root.
        terminal: Size of the terminal to run it in; stdout and stderr are then one stream. None for pipes.
        max_output_bytes: Maximum number of bytes of stdout, and of stderr, that are kept; others are discarded and counted.
        keep: Whether these are the first or the last ones. In the second case, a stream of events continues beyond the maximum.
    """

    command: _Text | Annotated[list[_Text], msgspec.Meta(min_length=1)]
    stdin: bytes = b""
    keep_stdin_open: bool = False
    cwd: _Text | None = None
    environment: Variables = {}
    timeout_s: Seconds | None = None
    user: _Text | None = None
    terminal: TerminalSize | None = None
    max_output_bytes: Annotated[int, msgspec.Meta(ge=0, le=MAX_PROCESS_OUTPUT)] = DEFAULT_MAX_PROCESS_OUTPUT
    keep: Keep = "first"


class SignalRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A signal to send to a process and its process group.

    Attributes:
        signal: Number of the signal.
    """

    signal: Annotated[int, msgspec.Meta(ge=1, le=64)]


class ProcessStarted(msgspec.Struct, tag="started"):
    """First event of a process.

    Attributes:
        id: Id of the process in its session, by which requests address it.
        pid: Process id, as processes of the sandbox see it.
    """

    id: str
    pid: int


class ProcessOutput(msgspec.Struct, tag="output", omit_defaults=True):
    """Event: output of a process.

    Attributes:
        stdout: Bytes of stdout, base64 in JSON.
        stderr: Bytes of stderr, base64 in JSON.
        skipped_stdout: Number of bytes before ``stdout`` that were discarded, because only the last ones are kept.
        skipped_stderr: Number of bytes before ``stderr`` that were discarded, because only the last ones are kept.
    """

    stdout: bytes = b""
    stderr: bytes = b""
    skipped_stdout: int = 0
    skipped_stderr: int = 0


class Keepalive(msgspec.Struct, tag="keepalive"):
    """Event without a meaning, sent while there is no other one."""


class ProcessExited(msgspec.Struct, tag="exited"):
    """Last event of a process.

    Attributes:
        exit_code: Exit code; 128 plus the number of the signal that ended it; 124 after a timeout.
        signal: Number of the signal that ended it, or None.
        timed_out: Whether it exceeded ``timeout_s``.
        dropped_stdout: Number of bytes after those of stdout that were kept.
        dropped_stderr: Number of bytes after those of stderr that were kept.
        lost: Why it was killed with its session: a reset, for example, or the death of the interpreter; None for any other end.
            Exit code and signal are those of SIGKILL.
        limit_exceeded: Whether it was lost because the processes of the session exceeded a limit; the session continues.
    """

    exit_code: int
    signal: int | None = None
    timed_out: bool = False
    dropped_stdout: int = 0
    dropped_stderr: int = 0
    lost: str | None = None
    limit_exceeded: bool = False


ProcessEvent = ProcessStarted | ProcessOutput | Keepalive | ProcessExited


class CompletedProcess(msgspec.Struct, kw_only=True):
    """A process that has exited, with its output.

    Attributes:
        result: How it ended; ``dropped_stdout`` and ``dropped_stderr`` count all bytes that were discarded.
        stdout: Bytes of stdout, base64 in JSON.
        stderr: Bytes of stderr, base64 in JSON.
    """

    result: ProcessExited
    stdout: bytes
    stderr: bytes


class Usage(msgspec.Struct, kw_only=True):
    """Resource usage of a session.

    Attributes:
        cpu_seconds: CPU time of its processes, the interpreter included, since the episode began.
        memory_bytes: Their memory, in which each has its share of the pages that others have as well.
        disk_used_bytes: Size of its files.
        disk_bytes: Size of its disk.
    """

    cpu_seconds: float
    memory_bytes: int
    disk_used_bytes: int
    disk_bytes: int


class ProcessInfo(msgspec.Struct, kw_only=True):
    """A process of a session.

    Attributes:
        id: Id of the process in its session.
        pid: Process id, as processes of the sandbox see it.
        command: The program and its arguments, or the command for the shell.
        result: How it ended, or None while it runs.
    """

    id: str
    pid: int
    command: str | list[str]
    result: ProcessExited | None
