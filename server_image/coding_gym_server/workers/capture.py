"""What a session writes to stdout or stderr, read from a pipe in bounded memory."""

from __future__ import annotations

import asyncio
import codecs
import os
import re
from collections.abc import Callable

__all__ = ["OutputCapture", "cut_middle"]

_READ_BYTES = 65_536
_MAX_DRAIN_READS = 256
"""The most reads that one drain makes: a process that never stops writing must not keep the server busy."""

_BYTES_PER_CHAR = 4
_CONTINUATION_BYTES = bytes(range(0x80, 0xC0))
_LONE_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]")
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_IncrementalDecoder = codecs.getincrementaldecoder("utf-8")


class OutputCapture:
    """Drains a pipe as its writers fill it, and keeps no more than the head and the tail of what came.

    Args:
        descriptor: The read end of the pipe; the capture owns it from now on.
        max_chars: The most code points that ``take`` returns.
    """

    def __init__(self, descriptor: int, *, max_chars: int) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self.max_chars = max_chars
        self._head = bytearray()
        self._tail = bytearray()
        self._dropped_chars = 0
        self._reading = False
        self._on_text: Callable[[str], None] | None = None
        self._decoder = _IncrementalDecoder("replace")
        self._live_chars = 0

    def stream(self, on_text: Callable[[str], None]) -> None:
        """Hand text out as it comes, until ``end_stream``; only of what exceeds half of ``max_chars`` the tail is kept.

        Args:
            on_text: Called with each piece.
        """
        self._on_text = on_text
        self._decoder.reset()
        self._live_chars = self.max_chars - self.max_chars // 2

    def end_stream(self) -> None:
        """Hand out what is left; what is too much is cut in the middle."""
        assert self._on_text is not None
        self.drain()
        on_text, self._on_text = self._on_text, None
        text = self._decoder.decode(b"", final=True) + self._take_kept(self.max_chars // 2)
        if text:
            on_text(text)

    def start_reading(self) -> None:
        """Read from now on whenever there is something; harmless when it does already."""
        if self._descriptor >= 0 and not self._reading:
            self._reading = True
            self._loop.add_reader(self._descriptor, self._read)

    def rest(self) -> None:
        """Let the pipe fill; only ``take`` reads until ``start_reading``."""
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._descriptor)

    def take(self, note: str = "") -> str:
        """Read what the pipe still holds, and return all that came since the last call, as text.

        NUL, lone surrogates and bytes that are no UTF-8 become U+FFFD. What is longer than ``max_chars`` is cut in the middle.

        Args:
            note: Goes at the end, where it is never cut.
        """
        self.drain()
        return self._take_kept(self.max_chars - len(note)) + note

    def drain(self) -> None:
        """Read what the pipe holds."""
        for _ in range(_MAX_DRAIN_READS):
            if not self._read():
                break

    def close(self) -> None:
        """Close the pipe; harmless when closed already."""
        if self._descriptor < 0:
            return
        self.rest()
        os.close(self._descriptor)
        self._descriptor = -1

    def _take_kept(self, room: int) -> str:
        if not self._head:
            return ""
        head, tail, dropped = bytes(self._head), bytes(self._tail), self._dropped_chars
        self._head.clear()
        self._tail.clear()
        self._dropped_chars = 0
        if not dropped:
            return cut_middle(_decode(head + tail), room)
        return _cut(_decode(head), _decode(tail), dropped, room)

    def _read(self) -> bool:
        """Read once; says whether there may be more."""
        if self._descriptor < 0:
            return False
        try:
            data = os.read(self._descriptor, _READ_BYTES)
        except BlockingIOError:
            return False
        if not data:
            self.close()
            return False
        self._keep(data)
        # A pipe gives all it has: less than was asked for means that it is empty now.
        return len(data) == _READ_BYTES

    def _keep(self, data: bytes) -> None:
        if self._on_text is not None and self._live_chars:
            data = self._hand_out(data)
        # Each half may hold max_chars characters, so that whatever take() shows is there, wherever it cuts.
        room = self.max_chars * _BYTES_PER_CHAR
        free = room - len(self._head)
        if free > 0:
            self._head += data[:free]
            data = data[free:]
        if data:
            self._tail += data
            excess = len(self._tail) - room
            if excess > room:
                while self._tail[excess] in _CONTINUATION_BYTES:
                    excess += 1
                self._dropped_chars += _count_chars(self._tail[:excess])
                del self._tail[:excess]

    def _hand_out(self, data: bytes) -> bytes:
        """Hand out as much as may be handed out at once; returns the rest."""
        assert self._on_text is not None
        text = self._decoder.decode(_LONE_SURROGATE.sub(_REPLACEMENT.encode(), data)).replace("\0", _REPLACEMENT)
        live, rest = text[: self._live_chars], text[self._live_chars :]
        self._live_chars -= len(live)
        if live:
            self._on_text(live)
        if self._live_chars:
            return b""
        begun, _ = self._decoder.getstate()
        self._decoder.reset()
        return rest.encode() + begun


def _count_chars(data: bytes | bytearray) -> int:
    return len(data.translate(None, _CONTINUATION_BYTES))


def _decode(data: bytes) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = _LONE_SURROGATE.sub(_REPLACEMENT.encode(), data).decode(errors="replace")
    return text.replace("\0", _REPLACEMENT)


def cut_middle(text: str, limit: int) -> str:
    """Return a text if it is not longer than ``limit``, else as much of both ends as fits round a marker."""
    return _cut(text, "", 0, limit)


def _cut(head: str, tail: str, dropped: int, limit: int) -> str:
    """Return ``head + tail`` if that is all and fits; else as much of both ends as fits round a marker."""
    total = len(head) + len(tail) + dropped
    if total <= limit:
        return head + tail
    # The marker's length depends on the number in it: reserve room for the largest.
    room = limit - len(_marker(total))
    first, last = room - room // 2, room // 2
    return head[:first] + _marker(total - first - last) + (tail or head)[-last:]


def _marker(characters: int) -> str:
    return f"\n... [{characters} characters cut] ...\n"
