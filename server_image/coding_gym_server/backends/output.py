"""Where a backend reports what is more than text."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from typing import Any

from coding_gym_server.workers.capture import cut_middle
from coding_gym_server.workers.messages import MAX_RESULT_BYTES, Raised, Result

__all__ = ["Output"]

_MAX_TEXT_CHARS = 1024 * 1024
_MAX_TRACEBACK_CHARS = 65_536
_MAX_NAME_CHARS = 1000
_RESULT_OVERHEAD = 200


class Output:
    """Takes the results and the exception of a cell.

    Args:
        send: Sends a result to the server, after everything that was printed before it.
    """

    def __init__(self, send: Callable[[Result], None]) -> None:
        self._send = send
        self._room = 0
        self.rich = False
        self.raised: Raised | None = None

    def begin(self, *, rich: bool) -> None:
        """Begin a cell.

        Args:
            rich: Whether results are wanted.
        """
        self.rich = rich
        self.raised = None
        self._room = MAX_RESULT_BYTES

    def result(self, data: Mapping[str, Any], *, is_value: bool) -> None:
        """Report a value or a display.

        What is too large is left out, and said so; long plain text is cut in the middle.

        Args:
            data: MIME type to text, bytes, or, for a JSON type, anything that JSON can hold.
            is_value: Whether it is the value of the cell.
        """
        if self._room <= 0:
            return
        self._room -= _RESULT_OVERHEAD
        texts: dict[str, str] = {}
        documents: dict[str, str] = {}
        left_out = []
        for mime, content in data.items():
            is_document = not isinstance(content, str | bytes)
            try:
                text = _encode(content)
            except (TypeError, ValueError, RecursionError):
                # A formatter made something of it that JSON cannot hold; the other formats stay.
                continue
            if mime == "text/plain" and not is_document:
                text = cut_middle(text, _MAX_TEXT_CHARS)
            size = len(text.encode())
            if size > self._room:
                left_out.append(f"[{mime} of {size:,} bytes left out: the results of a cell may have {MAX_RESULT_BYTES:,}]")
                continue
            self._room -= size
            (documents if is_document else texts)[mime] = text
        if left_out:
            texts["text/plain"] = "\n".join(filter(None, [texts.get("text/plain"), *left_out]))
        self._send(Result(texts, documents, is_value))

    def error(self, name: str, value: str, traceback: str) -> None:
        """Report what the cell raised."""
        self.raised = Raised(
            cut_middle(_clean(name), _MAX_NAME_CHARS),
            cut_middle(_clean(value), _MAX_TRACEBACK_CHARS),
            cut_middle(_clean(traceback), _MAX_TRACEBACK_CHARS),
        )


def _encode(content: Any) -> str:
    if isinstance(content, str):
        return _clean(content)
    if isinstance(content, bytes):
        return base64.b64encode(content).decode()
    return _clean(json.dumps(content, allow_nan=False, separators=(",", ":")))


def _clean(text: str) -> str:
    """Replace lone surrogates, which no UTF-8 can carry."""
    return text.encode(errors="replace").decode()
