"""Capture of stdout or stderr from a pipe in bounded memory."""

from __future__ import annotations

import asyncio
import codecs
import os
import re
from collections.abc import Callable

from coding_gym_server.ipc.text import join_within, truncate_middle

__all__ = ["OutputCapture"]

_READ_BYTES = 65_536
_MAX_DRAIN_READS = 256
"""Maximum number of reads per drain, so that a process that never stops writing cannot block the server."""

_BYTES_PER_CHAR = 4
_CONTINUATION_BYTES = bytes(range(0x80, 0xC0))
_LONE_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]")
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_IncrementalDecoder = codecs.getincrementaldecoder("utf-8")


class OutputCapture:
    """Drain a pipe and keep only the beginning and the end of its data.

    Args:
        descriptor: Read end of the pipe. The capture takes ownership of it.
        max_chars: Maximum number of code points that ``take`` returns.

    Attributes:
        is_truncated: Whether something is missing in what ``take`` has returned last.
        on_excess: Called when something is dropped for the first time, if it is not None.
    """

    def __init__(self, descriptor: int, *, max_chars: int) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self.max_chars = max_chars
        self._head = bytearray()
        self._tail = bytearray()
        self._dropped_chars = 0
        self.is_truncated = False
        self.on_excess: Callable[[], None] | None = None
        self._reading = False
        self._on_text: Callable[[str], None] | None = None
        self._decoder = _IncrementalDecoder("replace")
        self._live_chars = 0

    def stream(self, on_text: Callable[[str], None]) -> None:
        """Deliver text as it arrives until ``end_stream``. Of what exceeds half of ``max_chars``, only the end is kept.

        Args:
            on_text: Called with each chunk of text.
        """
        self._on_text = on_text
        self._decoder.reset()
        self._live_chars = self.max_chars - self.max_chars // 2

    def end_stream(self) -> None:
        """Deliver the remaining text, truncated in the middle if it exceeds the limit."""
        assert self._on_text is not None
        self.drain()
        on_text, self._on_text = self._on_text, None
        text = self._decoder.decode(b"", final=True) + self._take_stored(self.max_chars // 2)
        if text:
            on_text(text)

    def start_reading(self) -> None:
        """Start reading whenever data is available. Idempotent."""
        if self._descriptor >= 0 and not self._reading:
            self._reading = True
            self._loop.add_reader(self._descriptor, self._read)

    def stop_reading(self) -> None:
        """Let the pipe fill up; until ``start_reading``, only ``take`` and ``drain`` read."""
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._descriptor)

    def take(self, note: str = "") -> str:
        """Read the rest of the pipe and return all text since the last call, truncated in the middle to ``max_chars``.

        NUL, lone surrogates and bytes that are not valid UTF-8 become U+FFFD.

        Args:
            note: Appended at the end; never truncated.
        """
        self.drain()
        return self._take_stored(self.max_chars - len(note)) + note

    def drain(self) -> None:
        """Read the data that the pipe holds."""
        for _ in range(_MAX_DRAIN_READS):
            if not self._read():
                break

    def close(self) -> None:
        """Close the pipe. Idempotent."""
        if self._descriptor < 0:
            return
        self.stop_reading()
        os.close(self._descriptor)
        self._descriptor = -1

    def _take_stored(self, limit_bytes: int) -> str:
        self.is_truncated = False
        if not self._head:
            return ""
        head, tail, dropped = bytes(self._head), bytes(self._tail), self._dropped_chars
        self._head.clear()
        self._tail.clear()
        self._dropped_chars = 0
        if not dropped:
            text = _decode(head + tail)
            self.is_truncated = len(text) > limit_bytes
            return truncate_middle(text, limit_bytes)
        self.is_truncated = True
        return join_within(_decode(head), _decode(tail), dropped, limit_bytes)

    def _read(self) -> bool:
        """Read once; return whether there may be more data."""
        if self._descriptor < 0:
            return False
        try:
            data = os.read(self._descriptor, _READ_BYTES)
        except BlockingIOError:
            return False
        if not data:
            self.close()
            return False
        self._store(data)
        # A short read means that the pipe is empty.
        return len(data) == _READ_BYTES

    def _store(self, data: bytes) -> None:
        if self._on_text is not None and self._live_chars:
            data = self._deliver(data)
        # Each end holds half of max_chars characters, whatever their size: nothing that fits is dropped, and take() returns no
        # more than that of either end if something is.
        limit_bytes = max(1, -(-self.max_chars // 2)) * _BYTES_PER_CHAR
        free = limit_bytes - len(self._head)
        if free > 0:
            self._head += data[:free]
            data = data[free:]
        if data:
            self._tail += data
            excess = len(self._tail) - limit_bytes
            if excess > _READ_BYTES:
                if self.on_excess is not None:
                    on_excess, self.on_excess = self.on_excess, None
                    on_excess()
                # Text continues with a whole character. Other bytes may continue like this forever.
                for _ in range(_BYTES_PER_CHAR - 1):
                    excess += self._tail[excess] in _CONTINUATION_BYTES
                self._dropped_chars += _count_chars(self._tail[:excess])
                del self._tail[:excess]

    def _deliver(self, data: bytes) -> bytes:
        """Deliver as much as may be delivered immediately; return the rest."""
        assert self._on_text is not None
        text = self._decoder.decode(_LONE_SURROGATE.sub(_REPLACEMENT.encode(), data)).replace("\0", _REPLACEMENT)
        live, rest = text[: self._live_chars], text[self._live_chars :]
        self._live_chars -= len(live)
        if live:
            self._on_text(live)
        if self._live_chars:
            return b""
        incomplete, _ = self._decoder.getstate()
        self._decoder.reset()
        return rest.encode() + incomplete


def _count_chars(data: bytes | bytearray) -> int:
    return len(data.translate(None, _CONTINUATION_BYTES))


def _decode(data: bytes) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = _LONE_SURROGATE.sub(_REPLACEMENT.encode(), data).decode(errors="replace")
    return text.replace("\0", _REPLACEMENT)
