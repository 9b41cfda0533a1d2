"""Run of a program in the processes of a grading worker: what to run, and how it ended."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import NamedTuple

from coding_gym_server.ipc.messages import WorkerExited
from coding_gym_server.protocol.grading import FileContent, GradingLimits
from coding_gym_server.remote_objects.program_messages import RunCommand, RunProgram
from coding_gym_server.server.grading.submission_run import RunLimits

__all__ = ["MemoryLimit", "Program", "ProgramRun", "peak_bytes_of", "program_file"]


_FORKED_BYTES = 8 << 20
"""Memory that a new process may have in use beside that of the one that it was made by, before it executes another program."""


def program_file(files: Collection[str]) -> str:
    """Return a name for the file of a program: ``main.py``, or another one if it is taken.

    Args:
        files: Paths of the files in its working directory.
    """
    taken = {PurePosixPath(path).parts[0] for path in files}
    names = ("main.py", *(f"main_{number}.py" for number in range(len(taken))))
    return next(name for name in names if name not in taken)


class MemoryLimit(NamedTuple):
    """Limit on the memory that a program has in use.

    Attributes:
        max_bytes: Maximum number of bytes.
        allowance: Number of bytes that its language needs beside those.
        reserved_bytes: Number of bytes of private memory that its language reserves.
    """

    max_bytes: int
    allowance: int
    reserved_bytes: int = 0

    @property
    def max_private_bytes(self) -> int:
        """Limit on the private memory of each process, whether it is in use or not.

        What has more than this has more than the limit in use: programs seldom ask for more than three times what they use.
        """
        return 4 * self.max_bytes + self.allowance + self.reserved_bytes

    def is_exceeded(self, run: ProgramRun) -> bool:
        """Return whether a program has exceeded the limit; one that has failed may not have needed the allowance."""
        return run.peak_bytes > self.max_bytes + (0 if run.exit_code else self.allowance)


def peak_bytes_of(exited: WorkerExited, request: RunProgram | RunCommand) -> int:
    """Return the most memory that a process of a program had in use."""
    if isinstance(request, RunProgram):
        # A fork of its root.
        return max(0, exited.peak_bytes - exited.shared_bytes)
    # If it is less, the process may have had that before.
    return exited.peak_bytes if exited.peak_bytes > exited.shared_bytes + _FORKED_BYTES else 0


@dataclass(frozen=True, kw_only=True)
class Program:
    """A program to run once.

    Attributes:
        request: The request to the process that runs it. A Python program is compiled once, so it has no ``compiled``.
        limits: Time limits.
        memory: Limit on the memory that it has in use; None for no other limit than that of ``request``.
        files: Initial content of the working directory.
        fetch: Paths of files of the working directory to read afterwards.
        libraries: Modules to import before it arrives, as far as they are installed.
        max_stdout_chars: Maximum number of code points that are kept of its stdout.
        ends_with_excess: Whether it is killed when it has printed far more.
        max_stderr_chars: Maximum number of code points that are kept of its stderr.
    """

    request: RunProgram | RunCommand
    limits: GradingLimits | RunLimits
    memory: MemoryLimit | None = None
    files: Mapping[str, str | FileContent] = field(default_factory=dict)
    fetch: tuple[str, ...] = ()
    libraries: frozenset[str] = frozenset()
    max_stdout_chars: int
    ends_with_excess: bool = False
    max_stderr_chars: int


@dataclass(frozen=True, kw_only=True)
class ProgramRun:
    """How a run of a program ended.

    Attributes:
        exit_code: Exit code, or the negative number of the signal that killed it.
        expired: Whether it was killed because it exceeded a time limit.
        peak_bytes: The most memory that a process of it had in use, as far as the kernel tells: 0 if that is not known.
        kill_reason: The resource of the sandbox that it has exhausted; empty if none is known.
        stdout: Its stdout, truncated in the middle.
        is_truncated: Whether a part of its stdout is missing.
        stderr: Its stderr, truncated in the middle.
        seconds: Wall-clock time in seconds.
        cpu_seconds: CPU time in seconds.
        files: Contents of the requested files that exist, by path.
        refused: Reasons for which other requested files were not read.
    """

    exit_code: int
    expired: bool = False
    peak_bytes: int = 0
    kill_reason: str = ""
    stdout: str = ""
    is_truncated: bool = False
    stderr: str = ""
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    files: Mapping[str, bytes] = field(default_factory=dict)
    refused: tuple[str, ...] = ()

    @property
    def outcome(self) -> str:
        """How it ended, for metrics: ``ok``, ``error``, ``timeout`` or ``killed``."""
        if self.expired:
            return "timeout"
        if self.kill_reason or self.exit_code < 0:
            return "killed"
        return "error" if self.exit_code else "ok"
