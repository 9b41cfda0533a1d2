"""The standard streams of processes that run user code."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from typing import TextIO

__all__ = ["adopt_descriptors", "flush_streams", "open_output_pipes", "open_pipe", "open_stream", "open_streams_ahead"]


def adopt_descriptors(stdout: int, stderr: int, stdin: int | None = None) -> None:
    """Install ``stdout`` and ``stderr`` as descriptors 1 and 2, and ``stdin`` or ``/dev/null`` as descriptor 0."""
    if stdin is None:
        stdin = os.open(os.devnull, os.O_RDONLY)
    for descriptor, number in zip((stdin, stdout, stderr), range(3), strict=True):
        os.dup2(descriptor, number)
        os.close(descriptor)


def open_pipe() -> tuple[int, int]:
    """Return the read and the write end of a pipe for a session, whose user can open them by names such as ``/dev/stdout``."""
    read, write = os.pipe2(os.O_CLOEXEC)
    # Only processes that hold the pipe can name it.
    os.fchmod(read, 0o666)
    return read, write


def open_output_pipes() -> tuple[tuple[int, int], tuple[int, int]]:
    """Return two pipes for a session, as ``open_pipe`` does, for stdout and stderr.

    Raises:
        OSError: If file descriptors are exhausted; no pipe is left open.
    """
    stdout = open_pipe()
    try:
        return stdout, open_pipe()
    except OSError:
        for end in stdout:
            os.close(end)
        raise


def open_stream(number: int) -> TextIO:
    """Open a standard stream as CPython does, in UTF-8, line-buffered so that little output is lost when the process is killed.

    Lone surrogates pass through stdout unchanged; the server replaces them.
    """
    mode = "r" if number == 0 else "w"
    raw = io.FileIO(number, mode, closefd=False)
    raw.name = ("<stdin>", "<stdout>", "<stderr>")[number]
    buffer = io.BufferedReader(raw) if number == 0 else io.BufferedWriter(raw)
    errors = ("strict", "surrogatepass", "backslashreplace")[number]
    stream = io.TextIOWrapper(buffer, "utf-8", errors, line_buffering=number != 0)
    # CPython sets it, too.
    stream.mode = mode  # type: ignore[misc]
    return stream


def open_streams_ahead() -> None:
    """Open all three standard streams before a fork; children then only replace descriptors 1 and 2 by pipes.

    A stream queries the type of its descriptor when it is opened, so pipes are in place here already.
    """
    saved = [os.dup(number) for number in range(3)]
    try:
        read, write = os.pipe()
        adopt_descriptors(write, read)
        for number, name in enumerate(("stdin", "stdout", "stderr")):
            stream = open_stream(number)
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)
    finally:
        for number, descriptor in enumerate(saved):
            os.dup2(descriptor, number)
            os.close(descriptor)


def flush_streams() -> None:
    """Flush the buffers of stdout and stderr."""
    for name in ("stdout", "stderr"):
        _flush(name)
        # User code may have replaced the stream.
        if getattr(sys, name, None) is not getattr(sys, f"__{name}__", None):
            _flush(f"__{name}__")


def _flush(name: str) -> None:
    # A replaced stream may raise any exception; a KeyboardInterrupt here arrived too late for the cell.
    with contextlib.suppress(BaseException):
        getattr(sys, name).flush()
