"""Messages between the server, the spawner of a session and the shims of its programs.

They are packed by hand, because spawners and shims use the standard library only. A request to the spawner is a packet that
passes descriptors: the shim's control socket, a file with the program, and usually the program's stdin, stdout and stderr. A
request to a shim is one byte, the number of a signal to send.
"""

from __future__ import annotations

import struct

__all__ = [
    "DESCRIPTORS",
    "EXITED",
    "FAILED",
    "MAX_REQUEST_BYTES",
    "REPORT",
    "SIGNALED",
    "STARTED",
    "TERMINAL_SIZE",
    "WITH_OWN_TERMINAL",
    "WITH_STREAMS",
    "WITH_TERMINAL",
    "pack_program",
    "unpack_program",
]

WITH_STREAMS, WITH_TERMINAL, WITH_OWN_TERMINAL = b"s", b"t", b"o"
"""Kinds of requests to a spawner, their first byte.

The streams are pipes, for example; or a terminal, which becomes the controlling terminal of the program; or the program opens a
terminal of the session's user, whose ``TERMINAL_SIZE`` follows and whose controlling end is passed with the report ``STARTED``.
"""

TERMINAL_SIZE = struct.Struct("<HH")
"""Rows and columns."""

MAX_REQUEST_BYTES = 16

DESCRIPTORS = 5
"""Maximum number of descriptors that a request to a spawner passes."""

REPORT = struct.Struct("<Bi")
"""Report of a shim: its kind and a value."""

STARTED, FAILED, SIGNALED, EXITED = range(4)
"""Kinds of reports.

The program has started, with a process id in the session's pid namespace; it cannot be started, with an ``errno``; a signal has
been sent; the program has exited, with a wait status, after which the shim exits. A program that cannot be executed exits with
126 or 127, as in a shell.
"""


def pack_program(argv: list[str], directory: str, user: str, environment: dict[str, str]) -> bytes:
    """Return the content of the file with a program.

    Args:
        argv: The program, looked up in ``PATH`` unless it has a slash, and its arguments.
        directory: The working directory.
        user: Name or id of the user, and perhaps that of the group behind a colon; that of the session if empty.
        environment: Environment variables in addition to those of the session.
    """
    variables = [f"{name}={value}" for name, value in environment.items()]
    return "\0".join([directory, user, str(len(argv)), *argv, *variables]).encode(errors="surrogateescape")


def unpack_program(data: bytes) -> tuple[list[bytes], bytes, bytes, dict[bytes, bytes]]:
    """Return the arguments, the working directory, the user and the variables of a program."""
    directory, user, count, *strings = data.split(b"\0")
    argv, variables = strings[: int(count)], strings[int(count) :]
    return argv, directory, user, dict(variable.split(b"=", 1) for variable in variables)
