"""Collection of a cell's output and results for an observation."""

from __future__ import annotations

from collections.abc import Callable

from coding_gym_server.ipc.text import truncate_middle
from coding_gym_server.protocol import RichResult
from coding_gym_server.server.supervisor.cell_run import CompletedCell
from coding_gym_server.server.supervisor.worker_handle import Event, OutputChunk

__all__ = ["ResultCollector"]

_PLAIN = "text/plain"


class ResultCollector:
    """Collect the events of one cell, as text like that of a plain cell and as rich results.

    Args:
        show_value: Whether the value of the cell is part of the text.
        also: Called with each event, too, unless it is None.

    Attributes:
        results: The rich results so far.
    """

    def __init__(self, *, show_value: bool, also: Callable[[Event], None] | None = None) -> None:
        self._show_value = show_value
        self._also = also
        self._text: dict[str, list[str]] = {"stdout": [], "stderr": []}
        self.results: list[RichResult] = []

    def __call__(self, event: Event) -> None:
        """Collect an event."""
        if self._also is not None:
            self._also(event)
        if isinstance(event, OutputChunk):
            self._text[event.stream].append(event.text)
            return
        self.results.append(RichResult(texts=event.texts, documents=event.documents, is_value=event.is_value))
        if _PLAIN in event.texts and (self._show_value or not event.is_value):
            self._text["stdout"].append(f"{event.texts[_PLAIN]}\n")

    def stdout(self, max_chars: int) -> str:
        """Return stdout, including values and displays, truncated in the middle to ``max_chars`` code points."""
        return truncate_middle("".join(self._text["stdout"]), max_chars)

    def stderr(self, completion: CompletedCell, max_chars: int) -> str:
        """Return stderr, including the traceback and the note of ``completion``, truncated to ``max_chars`` code points."""
        text = "".join(self._text["stderr"])
        if completion.raised is not None and completion.raised.traceback:
            text += f"{completion.raised.traceback.rstrip()}\n"
        return truncate_middle(text, max_chars - len(completion.note)) + completion.note
