"""Execution of a program in a sandbox, with this process's standard streams, for ``coding-gym run``."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from coding_gym.client.processes import Process, ProcessResult
from coding_gym.envs.coding_env import CodingEnv
from coding_gym.envs.options import ScreenOption
from coding_gym.errors import CodingGymError
from coding_gym.sandbox.config import SandboxConfig
from coding_gym_server.protocol.processes import MAX_PROCESS_OUTPUT

__all__ = ["CompletedProgram", "run_program"]

_FOREVER = 10 * 365 * 86_400.0
_CHUNK_BYTES = 1 << 16
_POLL_SECONDS = 0.1
_GRACE_SECONDS = 2.0
"""Seconds between the interrupt and the end of a program that has ignored the closing of its windows."""

_SIGPIPE_EXIT_CODE = 128 + signal.SIGPIPE

_WAIT = """\
import os, time
while os.path.exists("/proc/{pid}"):
    time.sleep(0.02)
"""
"""Cell during which the windows of a process are watched: they are closed when the process waits for events."""


@dataclass(frozen=True, kw_only=True)
class CompletedProgram:
    """A program that has ended.

    Attributes:
        exit_code: Its exit code: 124 after a timeout, 128 + n after signal n.
        screenshot: The screen at its end, or before its windows were closed: uint8, shape (height, width, 3); None if nothing
            was on the screen.
        note: Why it did not end by itself; empty if it did.
    """

    exit_code: int
    screenshot: NDArray[np.uint8] | None
    note: str


def run_program(
    source: bytes,
    *,
    name: str,
    arguments: Sequence[str],
    config: SandboxConfig,
    files: Sequence[Path] = (),
    environment: Mapping[str, str] | None = None,
    stdin: BinaryIO | None = None,
    timeout: float | None = None,
    screen: ScreenOption = "auto",
    window_manager: bool = False,
) -> CompletedProgram:
    """Run a program in a dedicated session, and pass its output on as it arrives.

    A program that waits for events has its windows closed. SIGINT and SIGTERM of this process are passed on to it.

    Args:
        source: The program: a shell script if ``name`` ends in ``.sh``, otherwise Python.
        name: Name of its file.
        arguments: Its arguments.
        config: The sandbox.
        files: Files and directories of this machine, to copy into its working directory.
        environment: Environment variables in addition to those of the session.
        stdin: What it reads as standard input; nothing if None.
        timeout: Seconds after which it is killed, None for no limit.
        screen: As for ``CodingEnv``.
        window_manager: Whether a window manager runs on the screen.

    Raises:
        ConfigurationError: If an option is invalid.
        ProviderError: If no sandbox is available.
        TransportError: If the sandbox fails.
    """
    with closing(CodingEnv(config=config, screen=screen, window_manager=window_manager, step_timeout=_FOREVER)) as env:
        env.reset()
        for path in files:
            env.files.upload(path, path.resolve().name)
        env.files.write(name, source)
        interpreter = ["bash"] if name.endswith(".sh") else [_python(env)]
        process = env.processes.start(
            [*interpreter, name, *arguments],
            env={"PYTHONUNBUFFERED": "1", **(environment or {})},
            timeout=timeout,
            keep_stdin_open=stdin is not None,
            max_output_bytes=MAX_PROCESS_OUTPUT,
            keep="last",
        )
        streams = _Streams(process, stdin)
        with closing(process), _signals_passed_on(process):
            streams.start()
            observation, *_, info = env.step(_WAIT.format(pid=process.pid))
            note = "" if streams.wait(_GRACE_SECONDS) else _end(process, streams)
            result = streams.result()
        screenshot = observation.get("screenshot")
        if result.timed_out:
            note = f"The program was killed after {timeout:g} s."
        elif result.lost:
            note = f"The program was killed: {result.lost}."
        elif info.get("idle") == "closed" and not note:
            note = "The program waited for events, and its windows were closed."
        return CompletedProgram(
            exit_code=result.exit_code,
            screenshot=screenshot if screenshot is not None and screenshot.any() else None,
            note=note,
        )


def _python(env: CodingEnv) -> str:
    """Return the path of the interpreter that executes cells."""
    observation, *_ = env.step("import sys; print(sys.executable)")
    return str(observation["stdout"]).strip()


def _end(process: Process, streams: _Streams) -> str:
    """End a program whose windows were closed, but which continues."""
    process.signal(signal.SIGINT)
    if not streams.wait(_GRACE_SECONDS):
        process.kill()
    return "The program waited for events, did not end when its windows were closed, and was stopped."


class _Streams:
    """Copies the standard streams of a process, in threads.

    Args:
        process: The process.
        stdin: What it reads; nothing if None.
    """

    def __init__(self, process: Process, stdin: BinaryIO | None) -> None:
        self._process = process
        self._stdin = stdin
        self._over = threading.Event()
        self._result: ProcessResult | None = None
        self._failure: CodingGymError | None = None

    def start(self) -> None:
        """Start to copy."""
        threading.Thread(target=self._copy_output, daemon=True).start()
        if self._stdin is not None:
            threading.Thread(target=self._copy_input, args=(self._stdin,), daemon=True).start()

    def wait(self, timeout: float) -> bool:
        """Wait for the end of the process; return whether it has ended in time."""
        return self._over.wait(timeout)

    def result(self) -> ProcessResult:
        """Wait for the end of the process, and return its outcome.

        Raises:
            TransportError: If the connection broke.
        """
        self._over.wait()
        if self._failure is not None:
            raise self._failure
        assert self._result is not None
        return self._result

    def _copy_output(self) -> None:
        try:
            self._result = self._copy_until_end()
        except CodingGymError as error:
            self._failure = error
        finally:
            self._over.set()

    def _copy_until_end(self) -> ProcessResult:
        try:
            for event in self._process:
                for target, data in ((sys.stdout.buffer, event.stdout), (sys.stderr.buffer, event.stderr)):
                    if data:
                        target.write(data)
                        target.flush()
        except BrokenPipeError:
            # Nothing reads the output any more, as with ``| head``.
            with open(os.devnull, "wb") as devnull:
                os.dup2(devnull.fileno(), sys.stdout.fileno())
            self._process.abandon()
            return ProcessResult(_SIGPIPE_EXIT_CODE, b"", b"", signal=signal.SIGPIPE)
        return self._process.wait()

    def _copy_input(self, stdin: BinaryIO) -> None:
        # The process may end, or close its stdin, before it has read everything.
        with contextlib.suppress(OSError, CodingGymError):
            # Not through a buffer: a thread that waits in one blocks the end of the interpreter.
            descriptor = stdin.fileno()
            while not self._over.is_set():
                if not _is_ours(descriptor):
                    self._over.wait(_POLL_SECONDS)
                elif select.select([descriptor], [], [], _POLL_SECONDS)[0]:
                    if not (data := os.read(descriptor, _CHUNK_BYTES)):
                        break
                    self._process.write(data)
        with contextlib.suppress(CodingGymError):
            self._process.close_stdin()


def _is_ours(descriptor: int) -> bool:
    """Return whether reading is permitted: a terminal stops background jobs that read from it."""
    return not os.isatty(descriptor) or os.tcgetpgrp(descriptor) == os.getpgrp()


@contextlib.contextmanager
def _signals_passed_on(process: Process) -> Iterator[None]:
    """Pass SIGINT and SIGTERM on to a process; a second one kills it."""
    received = []

    def pass_on(number: int, frame: FrameType | None) -> None:
        received.append(number)
        with contextlib.suppress(CodingGymError):
            process.signal(number if len(received) == 1 else signal.SIGKILL)

    previous = {number: signal.signal(number, pass_on) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
