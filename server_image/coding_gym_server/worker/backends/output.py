"""Sink for the rich results and exceptions of cells."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from typing import Any

from coding_gym_server.ipc.messages import MAX_RESULT_BYTES, CellResult, Raised
from coding_gym_server.ipc.text import truncate_middle

__all__ = ["Output"]

_MAX_TEXT_CHARS = 1024 * 1024
_MAX_TRACEBACK_CHARS = 65_536
_MAX_NAME_CHARS = 1000
_RESULT_OVERHEAD = 200


class Output:
    """Receives the results and the exception of a cell.

    Args:
        send: Sends a result to the server, after all output that was printed before it.
    """

    def __init__(self, send: Callable[[CellResult], None]) -> None:
        self._send = send
        self._remaining_bytes = 0
        self.rich = False
        self.raised: Raised | None = None

    def begin(self, *, rich: bool) -> None:
        """Reset the state for a new cell.

        Args:
            rich: Whether results are reported as rich output rather than printed.
        """
        self.rich = rich
        self.raised = None
        self._remaining_bytes = MAX_RESULT_BYTES

    def result(self, data: Mapping[str, Any], *, is_value: bool) -> None:
        """Report a value or display output.

        Content that is too large is omitted with a notice; long plain text is truncated in the middle.

        Args:
            data: MIME bundle: MIME type to text, bytes or, for a JSON type, any JSON-serializable object.
            is_value: Whether the result is the value of the cell, as opposed to display output.
        """
        if self._remaining_bytes <= 0:
            return
        self._remaining_bytes -= _RESULT_OVERHEAD
        texts: dict[str, str] = {}
        documents: dict[str, str] = {}
        omitted = []
        for mime, content in data.items():
            is_document = not isinstance(content, str | bytes)
            try:
                text = _encode(content)
            except (TypeError, ValueError, RecursionError):
                # The formatter returned an object that is not JSON-serializable; the other formats are kept.
                continue
            if mime == "text/plain" and not is_document:
                text = truncate_middle(text, _MAX_TEXT_CHARS)
            size = len(text.encode())
            if size > self._remaining_bytes:
                omitted.append(f"[{mime} of {size:,} bytes omitted: a cell may return {MAX_RESULT_BYTES:,} bytes]")
                continue
            self._remaining_bytes -= size
            (documents if is_document else texts)[mime] = text
        if omitted:
            texts["text/plain"] = "\n".join(filter(None, [texts.get("text/plain"), *omitted]))
        self._send(CellResult(texts, documents, is_value))

    def error(self, name: str, value: str, traceback: str) -> None:
        """Report the exception that the cell raised."""
        self.raised = Raised(
            truncate_middle(_clean(name), _MAX_NAME_CHARS),
            truncate_middle(_clean(value), _MAX_TRACEBACK_CHARS),
            truncate_middle(_clean(traceback), _MAX_TRACEBACK_CHARS),
        )

    def ended(self, exit_code: int, reason: str = "") -> None:
        """Report how a rich cell without exceptions has ended, if it has failed.

        Args:
            exit_code: Its exit code.
            reason: Why it has failed, if its output does not tell.
        """
        if exit_code != 0 and self.rich:
            self.error("ExitCode", str(exit_code), reason or f"The cell ended with exit code {exit_code}.")


def _encode(content: Any) -> str:
    if isinstance(content, str):
        return _clean(content)
    if isinstance(content, bytes):
        return base64.b64encode(content).decode()
    return _clean(json.dumps(content, allow_nan=False, separators=(",", ":")))


def _clean(text: str) -> str:
    """Replace lone surrogates, which cannot be encoded as UTF-8."""
    return text.encode(errors="replace").decode()
