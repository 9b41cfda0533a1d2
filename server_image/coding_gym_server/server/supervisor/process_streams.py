"""Pipes and terminals of a session's processes, on the server's side."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
from collections.abc import Callable

from coding_gym_server.protocol.processes import Keep

__all__ = ["BoundedOutput", "OutputReader", "StdinWriter"]

_PIPE_BYTES = 1 << 16
"""Default capacity of a pipe."""

_LARGE_PIPE_BYTES = 1 << 18
"""Capacity of a pipe that has been full. The kernel limits the total capacity of a user's pipes, so not all get it."""

_LINE_ENDS = (b"\n", b"\r", b"\x04")
_END_OF_INPUT = b"\x04"
"""Control-D, which ends the input of a terminal."""

_HIGH_WATER_BYTES = 1 << 20
_MAX_DRAIN_READS = 32
"""More than a pipe holds, unless a process has enlarged it to its maximum for unprivileged users."""


class BoundedOutput:
    """Output of a process, of which a part is kept.

    Args:
        limit: Maximum number of bytes to keep.
        keep: Whether these are the first or the last bytes.

    Attributes:
        data: The bytes that are kept.
        start: Number of bytes before them that were discarded.
        dropped: Number of bytes after them that were discarded.
    """

    def __init__(self, limit: int, keep: Keep) -> None:
        self.data = bytearray()
        self.start = 0
        self.dropped = 0
        self._limit = limit
        self._keep = keep
        self._is_frozen = False

    @property
    def end(self) -> int:
        """Number of bytes up to the last one that is kept."""
        return self.start + len(self.data)

    def append(self, data: bytes) -> None:
        """Append data, and discard what exceeds the limit."""
        if self._is_frozen:
            return
        if self._keep == "first":
            kept = data[: self._limit - len(self.data)]
            self.data += kept
            self.dropped += len(data) - len(kept)
            return
        self.data += data
        excess = max(len(self.data) - self._limit, 0)
        del self.data[:excess]
        self.start += excess

    def freeze(self) -> None:
        """Discard all further data, without counting it."""
        self._is_frozen = True

    def after(self, offset: int, size: int) -> tuple[int, bytes]:
        """Return at most ``size`` bytes that follow ``offset`` bytes, and the number of bytes between that were discarded."""
        first = max(offset, self.start)
        position = first - self.start
        return first - offset, bytes(self.data[position : position + size])


class OutputReader:
    """Read a descriptor until its end.

    Args:
        descriptor: Read end of a pipe, or a terminal. The reader takes ownership of it.
        output: What has been read is appended to it.
        on_data: Called when data has arrived, and at its end.
    """

    def __init__(self, descriptor: int, output: BoundedOutput, *, on_data: Callable[[], None]) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._output = output
        self._on_data = on_data
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(descriptor, self._read)

    def drain(self) -> None:
        """Read the data that the descriptor holds; descendants of the process may keep writing."""
        for _ in range(_MAX_DRAIN_READS):
            if not self._read():
                break

    def freeze(self) -> None:
        """Append no more data; what descendants of the process still write is discarded."""
        self._output.freeze()
        self._on_data = lambda: None

    def close(self) -> None:
        """Close the descriptor. Idempotent."""
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def _read(self) -> bool:
        """Read once; return whether there may be more data."""
        if self._descriptor < 0:
            return False
        try:
            data = os.read(self._descriptor, _LARGE_PIPE_BYTES)
        except BlockingIOError:
            return False
        except OSError as error:
            # A terminal that no process has open any more.
            if error.errno != errno.EIO:
                raise
            data = b""
        if not data:
            self.close()
        elif len(data) == _PIPE_BYTES:
            _enlarge(self._descriptor)
        self._output.append(data)
        self._on_data()
        return bool(data)


class StdinWriter:
    """Write to a descriptor in the background.

    Args:
        descriptor: Write end of a pipe, or a terminal. The pipe takes ownership of it.
        is_terminal: Whether it is a terminal, whose input ends by a control character.
    """

    def __init__(self, descriptor: int, *, is_terminal: bool) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._is_terminal = is_terminal
        self._loop = asyncio.get_running_loop()
        self._unsent = bytearray()
        self._is_ending = False
        self._is_at_line_start = True
        self._drained = asyncio.Event()
        self._drained.set()

    @property
    def is_closed(self) -> bool:
        """Whether no more input is accepted: it has been ended, or no process reads it any more."""
        return self._is_ending or self._descriptor < 0

    async def write(self, data: bytes) -> None:
        """Write data; waits while much of what was written before has not been read.

        Raises:
            BrokenPipeError: If no more input is accepted.
        """
        if self.is_closed:
            raise BrokenPipeError
        self.put(data)
        if len(self._unsent) > _HIGH_WATER_BYTES:
            await self._drained.wait()
            if self._descriptor < 0:
                raise BrokenPipeError

    def put(self, data: bytes) -> None:
        """Write data without waiting."""
        self._unsent += data
        self._is_at_line_start = data.endswith(_LINE_ENDS) if data else self._is_at_line_start
        self._drained.clear()
        self._send()

    def end(self) -> None:
        """End the input after what has been written; in a terminal, for the program that reads it. Idempotent for pipes."""
        if self.is_closed:
            return
        if self._is_terminal:
            # The first one only completes a line that has been begun.
            self.put(_END_OF_INPUT if self._is_at_line_start else 2 * _END_OF_INPUT)
            return
        self._is_ending = True
        self._send()

    def close(self) -> None:
        """Close the descriptor and discard unsent data. Idempotent."""
        self._unsent.clear()
        self._drained.set()
        if self._descriptor >= 0:
            self._loop.remove_writer(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def _send(self) -> None:
        while self._unsent and self._descriptor >= 0:
            try:
                sent = os.write(self._descriptor, self._unsent)
            except BlockingIOError:
                _enlarge(self._descriptor)
                self._loop.add_writer(self._descriptor, self._send)
                return
            except OSError:
                # The reading end is closed.
                self.close()
                return
            del self._unsent[:sent]
        if self._descriptor >= 0:
            self._loop.remove_writer(self._descriptor)
        self._drained.set()
        if self._is_ending:
            self.close()


def _enlarge(descriptor: int) -> None:
    """Let a pipe hold more, so that there are fewer turns for much data; no effect on a terminal."""
    with contextlib.suppress(OSError):
        fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, _LARGE_PIPE_BYTES)
