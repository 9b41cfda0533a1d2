"""The standard streams of processes that run user code."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from typing import TextIO

__all__ = ["adopt_descriptors", "flush_streams", "open_stream", "open_streams_ahead"]


def adopt_descriptors(stdout: int, stderr: int) -> None:
    """Make two descriptors 1 and 2, and nothing to be read 0."""
    null = os.open(os.devnull, os.O_RDONLY)
    for descriptor, number in zip((null, stdout, stderr), range(3), strict=True):
        os.dup2(descriptor, number)
        os.close(descriptor)


def open_stream(number: int) -> TextIO:
    """Open a standard stream: UTF-8 everywhere, a line at a time, so that little is lost when the process is killed.

    Lone surrogates pass as they are; the server replaces them.
    """
    mode = "r" if number == 0 else "w"
    raw = io.FileIO(number, mode, closefd=False)
    raw.name = ("<stdin>", "<stdout>", "<stderr>")[number]
    buffer = io.BufferedReader(raw) if number == 0 else io.BufferedWriter(raw)
    errors = "surrogatepass" if number == 1 else "backslashreplace" if number == 2 else "strict"
    return io.TextIOWrapper(buffer, "utf-8", errors, line_buffering=number != 0)


def open_streams_ahead() -> None:
    """Open all three as the streams of ``sys``, for processes to be forked, which then adopt pipes as descriptors 1 and 2.

    A stream finds out when it is opened what its descriptor is.
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
    """Write what is still in the buffers."""
    for name in ("stdout", "stderr"):
        _flush(name)
        # If user code has put something else in its place.
        if getattr(sys, name, None) is not getattr(sys, f"__{name}__", None):
            _flush(f"__{name}__")


def _flush(name: str) -> None:
    # What is there may raise anything; an interrupt here is one that came late.
    with contextlib.suppress(BaseException):
        getattr(sys, name).flush()
