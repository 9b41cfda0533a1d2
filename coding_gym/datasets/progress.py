"""The progress bar of ``collect`` and ``replay``, on stderr."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.progress import Progress

__all__ = ["EpisodeBar"]


class EpisodeBar:
    """Shows how many episodes have ended, how many a second, and what went wrong. Its methods may be called from any thread.

    Args:
        total: How many there are to be.
        done: How many there are.
        is_shown: Whether to show it; if stderr is a terminal if None.
    """

    def __init__(self, total: int, *, done: int = 0, is_shown: bool | None = None) -> None:
        self._progress: Progress | None = None
        self._faults = 0
        if sys.stderr.isatty() if is_shown is None else is_shown:
            self._progress = _make_progress()
            self._task = self._progress.add_task("episodes", total=total, completed=done, note="")

    def advance(self) -> None:
        """Count an episode."""
        if self._progress is not None:
            self._progress.advance(self._task)

    def count_fault(self) -> None:
        """Count a sandbox that failed."""
        self._faults += 1
        if self._progress is not None:
            self._progress.update(self._task, note=f"retried: {self._faults}")

    def __enter__(self) -> Self:
        if self._progress is not None:
            self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._progress is not None:
            self._progress.stop()


def _make_progress() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
    from rich.text import Text

    class Speed(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(f"{task.speed:.1f}/s" if task.speed else "")

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        Speed(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
        console=Console(stderr=True),
    )
