"""Bash backend: one shell per worker, whose variables, functions, options and working directory persist between cells.

The shell reads an unbounded script from a pipe, so the stdin of a cell is empty. Anything that ends the shell (``exit``, a
command that fails under ``set -e``, or SIGINT) ends the cell: on exit the shell saves its state, and the next one restores it.

A shell that is interrupted before it has restored that state would lose it: it has its own process group, therefore, and
receives an interrupt once the cell has begun. The interrupt is repeated until the cell ends, because a command between bash's
fork and exec ignores it. The shell ignores all but the first, since another would end it before it has saved its state.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from coding_gym_server.worker.backends.base import ExecutorBackend
from coding_gym_server.worker.backends.descriptors import high_pipe
from coding_gym_server.worker.backends.output import Output

__all__ = ["BashBackend"]

_POLL_MS = 50
_INTERRUPT_INTERVAL = 0.15
"""Seconds until an interrupt of a cell is repeated."""
_SOURCE = 60

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_PROLOGUE = """
exec {script}<&-
BASH_ARGV0=bash
shopt -s expand_aliases
_coding_gym_save() {{
  trap '' INT
  {{ set +o; shopt -p; }} >{options}
  set +eux
  {{ declare -p; declare -fp; alias -p; printf 'cd -- %q\\n' "$PWD"; }} >{state}
}} 2>/dev/null
trap _coding_gym_save EXIT
trap 'trap "" INT; exit 130' INT
"""
# Errors are discarded because some variables that bash itself maintains are read-only.
_RESUME = "{{ builtin source {state}; builtin source {options}; }} 2>/dev/null\n"
_BEGUN = b"."
# Sourced from a fixed descriptor, each cell has its own line numbers, and the same file name in messages everywhere. What
# precedes it is hidden from `set -x`.
_CELL = """{{ builtin printf . >&{reply}; }} 2>/dev/null
builtin source /dev/fd/{source} {source}<{cell} {reply}>&-
builtin printf '%d\\n' "$?" >&{reply}
"""
_SET = '_coding_gym_before="$(builtin declare -p {names} 2>/dev/null)"; builtin unset -v {names}; builtin export {assignments}'
_RESTORE = 'builtin unset -v {names}; builtin eval "$_coding_gym_before"; builtin unset -v _coding_gym_before'


class BashBackend(ExecutorBackend):
    """Executes cells in a bash shell. The exit code of a cell is that of its last command, or 2 for a syntax error."""

    def __init__(self, output: Output, *, authorized_imports: tuple[str, ...] = ()) -> None:
        super().__init__(output, authorized_imports=authorized_imports)
        self._shell: _Shell | None = None
        self._directory = Path()
        self._refusal = ""

    def configure(self, *, show_value: bool) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="bash-"))
        self._shell = _Shell(self._directory)

    def execute(self, code: str) -> int:
        if self._refusal:
            os.write(2, f"{self._refusal}\n".encode(errors="backslashreplace"))
            exit_code = 1
        else:
            exit_code = self._run(code)
        self.output.ended(exit_code, self._refusal)
        return exit_code

    @contextlib.contextmanager
    def environment(self, variables: Mapping[str, str]) -> Iterator[None]:
        invalid = next((name for name in variables if not _NAME.fullmatch(name)), None)
        if invalid is not None:
            self._refusal = f"{invalid!r} cannot be a variable of bash: expected letters, digits and underscores"
            try:
                yield
            finally:
                self._refusal = ""
            return
        names = " ".join(variables)
        assignments = " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items())
        self._run(_SET.format(names=names, assignments=assignments))
        try:
            yield
        finally:
            self._run(_RESTORE.format(names=names))

    def _run(self, code: str) -> int:
        if self._shell is None or self._shell.has_ended():
            self._shell = _Shell(self._directory)
        before = signal.signal(signal.SIGINT, self._shell.interrupt)
        try:
            exit_code = self._shell.run(code)
            if exit_code is None:
                exit_code = self._shell.exit_code()
                if not self._shell.is_saved():
                    # The shell was killed or replaced by another program: the server handles it like any dead interpreter.
                    os._exit(exit_code)
                self._shell = _Shell(self._directory)
            return exit_code
        finally:
            signal.signal(signal.SIGINT, before)


class _Shell:
    """A shell process that restores the state saved by the previous shell in the same directory.

    Args:
        directory: The directory for the files of the shell.
    """

    def __init__(self, directory: Path) -> None:
        self._cell, self._state, options = (directory / name for name in ("cell", "state", "options"))
        script, self._script = high_pipe()
        self._reply, self._reply_end = high_pipe()
        self._is_in_cell = False
        self._interrupt_again_at: float | None = None
        self._process = subprocess.Popen(
            ["bash", "--noprofile", "--norc", f"/dev/fd/{script}"],
            stdin=subprocess.DEVNULL,
            pass_fds=(script, self._reply_end),
            process_group=0,
            # A shell permanently ignores signals that are ignored when it starts.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        os.close(script)
        os.close(self._reply_end)
        state, saved_options = shlex.quote(str(self._state)), shlex.quote(str(options))
        begin = _PROLOGUE.format(script=script, state=state, options=saved_options)
        if self._state.exists():
            begin += _RESUME.format(state=f"{state}.last", options=saved_options)
            self._state.rename(f"{self._state}.last")
        os.write(self._script, begin.encode())

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def interrupt(self, *_: object) -> None:
        """Interrupt the cell as a terminal does, or as soon as it has begun. Usable as a signal handler."""
        self._interrupt_again_at = time.monotonic()
        if self._is_in_cell:
            self._interrupt_again_at += _INTERRUPT_INTERVAL
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGINT)

    def run(self, code: str) -> int | None:
        """Execute a cell, and return its exit code, or None if the shell has ended."""
        self._cell.write_bytes(code.encode(errors="replace"))
        line = _CELL.format(source=_SOURCE, cell=shlex.quote(str(self._cell)), reply=self._reply_end)
        with contextlib.suppress(BrokenPipeError):
            os.write(self._script, line.encode())
        try:
            return self._answer()
        finally:
            self._is_in_cell = False
            self._interrupt_again_at = None

    def _answer(self) -> int | None:
        poll = select.poll()
        poll.register(self._reply, select.POLLIN)
        answer = b""
        while not answer.endswith(b"\n"):
            if poll.poll(_POLL_MS):
                data = os.read(self._reply, 64)
                if not data:
                    return None
                answer += data
                # A shell whose cell has ended must not be interrupted any more.
                self._is_in_cell = not answer.endswith(b"\n")
            elif self.has_ended():
                # Background processes can keep the pipe open after that.
                return None
            if self._is_in_cell and self._interrupt_again_at is not None and time.monotonic() >= self._interrupt_again_at:
                self.interrupt()
        return int(answer.removeprefix(_BEGUN)) & 0xFF

    def is_saved(self) -> bool:
        """Return whether the shell has saved its state."""
        return self._state.exists()

    def exit_code(self) -> int:
        """Wait for the shell to end, close its pipes and return its exit code."""
        status = self._process.wait()
        os.close(self._script)
        os.close(self._reply)
        return status if status >= 0 else 128 - status
