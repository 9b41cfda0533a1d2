"""Backend of programs: each cell is a whole program in a language of the table, which is compiled and run.

Its source and the output of the compiler are in a separate directory, which exists while it runs and has links to the session's
files, so that the source finds headers and modules. Its working directory is that of the session, and its standard input is
empty. No state is kept but files.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

from coding_gym_server.languages import Language
from coding_gym_server.linux.stack import limit_stack
from coding_gym_server.worker.backends.base import ExecutorBackend

__all__ = ["ProgramBackend", "of_language"]

_NAME = "program"
_GRACE = 0.25
"""Seconds from an interrupt until a program that has not ended is killed, before the server gives the worker up."""

_INTERRUPTED = 128 + signal.SIGINT
_SILENT = (signal.SIGINT, signal.SIGPIPE)
"""Signals of which a shell does not tell that they have ended a program."""


class ProgramBackend(ExecutorBackend):
    """Compiles and runs programs. The exit code of a cell is that of its program, or of the compiler if that fails.

    Subclasses define the language: see ``of_language``.
    """

    language: ClassVar[Language]

    def configure(self, *, show_value: bool) -> None:
        """Do nothing: programs show no values."""

    def execute(self, code: str) -> int:
        with _directory() as directory:
            exit_code = self._run(code, directory)
        self.output.ended(exit_code)
        return exit_code

    def _run(self, code: str, directory: Path) -> int:
        language = self.language.of_program(code)
        _link_files(directory, without=Path(language.file).stem)
        (directory / language.file).write_bytes(code.encode(errors="surrogatepass"))
        variables = {**language.variables, **os.environ}
        limit_stack(language.stack_bytes)
        with _interruptible() as commands:
            exit_code = commands.run(language.compile, variables, directory=directory) if language.compile else 0
            return exit_code or commands.run(language.run_in(str(directory)), variables)


def of_language(language: Language) -> type[ProgramBackend]:
    """Return the backend class for a language."""
    return type("ProgramBackend", (ProgramBackend,), {"language": language})


class _Commands:
    """Runs commands one after the other until one is interrupted."""

    def __init__(self) -> None:
        self._group: int | None = None
        self._is_interrupted = self._is_delivered = False

    def interrupt(self, *_: object) -> None:
        """Interrupt the command as a terminal does, or as soon as it has begun. Usable as a signal handler."""
        self._is_interrupted = True
        if self._group is not None and not self._is_delivered:
            self._is_delivered = True
            self._signal(signal.SIGINT)
            signal.setitimer(signal.ITIMER_REAL, _GRACE)

    def kill(self, *_: object) -> None:
        """Kill the processes of the command. Usable as a signal handler."""
        self._signal(signal.SIGKILL)

    def run(self, command: Sequence[str], variables: dict[str, str], *, directory: Path | None = None) -> int:
        """Run a command in a process group of its own, and return its exit code as a shell reports it.

        Args:
            command: The command.
            variables: Its environment.
            directory: Its working directory; that of this process if None.
        """
        if self._is_interrupted:
            return _INTERRUPTED
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, cwd=directory, env=variables, process_group=0)
        self._group = process.pid
        try:
            if self._is_interrupted:
                self.interrupt()
            status = process.wait()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            if self._is_interrupted:
                # What has ignored it. Other processes that a program leaves end with the session.
                self.kill()
            self._group = None
        if status >= 0:
            return status
        if self._is_interrupted:
            return _INTERRUPTED
        if -status not in _SILENT:
            os.write(2, f"{signal.strsignal(-status)}\n".encode())
        return 128 - status

    def _signal(self, number: int) -> None:
        if self._group is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._group, number)


@contextlib.contextmanager
def _interruptible() -> Iterator[_Commands]:
    """Context manager of commands, during which SIGINT interrupts them instead of this process."""
    commands = _Commands()
    handlers = {signal.SIGINT: commands.interrupt, signal.SIGALRM: commands.kill}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield commands
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _directory() -> Iterator[Path]:
    """Context manager of a new directory, whose name is the same in every session unless it exists."""
    names = itertools.chain([_NAME], (f"{_NAME}-{number}" for number in itertools.count(2)))
    directory = next(directory for directory in map(Path(tempfile.gettempdir()).joinpath, names) if _is_made(directory))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _link_files(directory: Path, *, without: str) -> None:
    """Link the visible files of the working directory from another one, as far as they can be listed.

    Args:
        directory: The other directory.
        without: Name of a program, whose files the compiler makes: they are left out, whatever they end with.
    """
    with contextlib.suppress(OSError):
        for name in os.listdir():
            if name.partition(".")[0] not in ("", without):
                (directory / name).symlink_to(Path(name).absolute())


def _is_made(directory: Path) -> bool:
    """Make a directory; return whether it did not exist before."""
    try:
        directory.mkdir(mode=0o700)
    except FileExistsError:
        return False
    return True
