"""Messages between the server and the process that runs a program."""

from __future__ import annotations

import msgspec

__all__ = ["MAX_COMPILED_BYTES", "CommandEnded", "Compiled", "NotStarted", "RunCommand", "RunProgram", "Started"]

MAX_COMPILED_BYTES = 8 << 20
"""Maximum size of the code of ``Compiled``, which the server receives."""


class _Struct(msgspec.Struct, array_like=True, frozen=True):
    pass


class RunProgram(_Struct, tag=1, frozen=True):
    """Execute the source of a program, and exit the process with its exit code.

    Not answered, except with ``Started``, and then ``Compiled`` if it has no ``compiled``; or with ``NotStarted``.

    Attributes:
        code: The source code.
        stdin: Standard input; None for the stdin that its process has.
        file: File of the working directory to write the source to; empty to write none.
        keeps_file: Whether the file remains when the program ends by itself.
        compiled: The source as ``Compiled`` returned it; None to compile it, and to return that before it is executed.
        max_memory_bytes: Limit on the private memory of each of its processes; None for no other than that of submissions.
        random_seed: Seed of ``random``; None draws one from the operating system.
        arguments: Arguments of the program.
        error_code: Exit code after an exception.
    """

    code: str
    stdin: str | None
    file: str = ""
    keeps_file: bool = False
    compiled: bytes | None = None
    max_memory_bytes: int | None = None
    random_seed: int | None = None
    arguments: tuple[str, ...] = ()
    error_code: int = 1


class RunCommand(_Struct, tag=14, frozen=True):
    """Run another program in a child process, and report with ``CommandEnded`` how it ended.

    Before that, it is answered with ``Started``, or instead of either with ``NotStarted``. Afterwards, the process waits for
    the next command, and for nothing else.

    Attributes:
        command: The program, a path or a name to look up, and its arguments.
        stdin: As in ``RunProgram``; a command that is not the first one has an empty one if it is None.
        variables: Environment variables to add.
        max_memory_bytes: As in ``RunProgram``.
        stack_bytes: Maximum size of the stack of its first thread.
        has_streams: Whether its stdout and stderr pass along. Those of the first command are those of the process.
    """

    command: tuple[str, ...]
    stdin: str | None
    variables: dict[str, str] = {}
    max_memory_bytes: int | None = None
    stack_bytes: int = 8 << 20
    has_streams: bool = False

    @property
    def DESCRIPTORS(self) -> int:
        return 2 * self.has_streams


class Started(_Struct, tag=16, frozen=True):
    """All that a program needs has been prepared: it is compiled and executed next."""


class NotStarted(_Struct, tag=17, frozen=True):
    """What a program needs could not be prepared, so that nothing of it has been compiled or executed.

    Attributes:
        reason: The reason.
        number: The number of the operating system's error, 0 if it was another one.
    """

    reason: str
    number: int = 0


class CommandEnded(_Struct, tag=18, frozen=True):
    """How a command ended.

    Attributes:
        status: Its wait status.
        peak_bytes: The most memory that it, or a child that it has waited for, had in use.
        shared_bytes: The most memory that the process had in use, which a child has at first.
        cpu_seconds: CPU time that the process and all its commands so far have used.
    """

    status: int
    peak_bytes: int
    shared_bytes: int
    cpu_seconds: float


class Compiled(_Struct, tag=15, frozen=True):
    """A compiled program, which only processes of submissions may load.

    Attributes:
        code: Its code object, marshalled; empty if each run has to compile it.
    """

    code: bytes
