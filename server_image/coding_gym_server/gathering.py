"""What a cell shows, gathered for one observation: as text, the way a plain cell prints it, and as results."""

from __future__ import annotations

from coding_gym_server.protocol import RichResult
from coding_gym_server.workers.capture import cut_middle
from coding_gym_server.workers.unit import Completion
from coding_gym_server.workers.worker_end import Event, Printed

__all__ = ["Gathering"]

_PLAIN = "text/plain"


class Gathering:
    """Takes the events of one cell.

    Args:
        show_value: Whether the value of the cell is part of the text.
    """

    def __init__(self, *, show_value: bool) -> None:
        self._show_value = show_value
        self._text: dict[str, list[str]] = {"stdout": [], "stderr": []}
        self.results: list[RichResult] = []

    def __call__(self, event: Event) -> None:
        """Take an event."""
        if isinstance(event, Printed):
            self._text[event.stream].append(event.text)
            return
        self.results.append(RichResult(texts=event.texts, documents=event.documents, is_value=event.is_value))
        if _PLAIN in event.texts and (self._show_value or not event.is_value):
            self._text["stdout"].append(f"{event.texts[_PLAIN]}\n")

    def stdout(self, max_chars: int) -> str:
        """Return what was printed, values and displays included."""
        return cut_middle("".join(self._text["stdout"]), max_chars)

    def stderr(self, completion: Completion, max_chars: int) -> str:
        """Return what was printed there, the exception included, with the note of how the cell ended."""
        text = "".join(self._text["stderr"])
        if completion.raised is not None and completion.raised.traceback:
            text += f"{completion.raised.traceback.rstrip()}\n"
        return cut_middle(text, max_chars - len(completion.note)) + completion.note
