"""Messages between the server and the session roots about programs that run beside a worker."""

from __future__ import annotations

from typing import ClassVar

import msgspec

__all__ = [
    "ForkProgram",
    "ProgramExited",
    "ProgramForked",
    "ProgramSpec",
    "SignalProgram",
    "Signaled",
]


class ProgramSpec(msgspec.Struct, kw_only=True):
    """A program to run.

    Attributes:
        argv: The program, looked up in ``PATH`` unless it has a slash, and its arguments.
        directory: The working directory.
        environment: Environment variables in addition to those of the root.
    """

    argv: list[str]
    directory: str
    environment: dict[str, str]


class ForkProgram(msgspec.Struct, tag=True):
    """Request to a root: run a program. Passes its stdin, stdout and stderr, and a file with its ``ProgramSpec`` in msgpack.

    Workers inherit the memory of the root, so it must not read arguments and variables, which may be secrets.

    Attributes:
        has_terminal: Whether the first three descriptors are a terminal, which becomes the controlling terminal.
    """

    DESCRIPTORS: ClassVar[int] = 4

    has_terminal: bool


class SignalProgram(msgspec.Struct, tag=True):
    """Request to a root: send a signal to the process group of a program; SIGKILL also to its descendants elsewhere.

    Attributes:
        pid: Process id from ``ProgramForked``.
        number: The signal.
    """

    pid: int
    number: int


class ProgramForked(msgspec.Struct, tag=True):
    """Response to ``ForkProgram``. A program that cannot be executed exits with 126 or 127, as in a shell.

    Attributes:
        pid: The process id of the program, in the server's pid namespace.
    """

    pid: int


class Signaled(msgspec.Struct, tag=True):
    """Response to ``SignalProgram``: the signal has been sent, unless the program has exited."""


class ProgramExited(msgspec.Struct, tag=True):
    """Unsolicited message of a root: a program has exited.

    Attributes:
        pid: Process id from ``ProgramForked``.
        status: Its wait status.
    """

    pid: int
    status: int
