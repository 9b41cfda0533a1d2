"""Progress bar of ``collect`` and ``replay``, on stderr."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Self

from coding_gym.waiting import BAR

if TYPE_CHECKING:
    from rich.progress import Progress

__all__ = ["EpisodeBar"]


class EpisodeBar:
    """Progress bar with the number of completed episodes, their rate, and the number of retries. Thread-safe.

    Args:
        total: Number of episodes to run.
        done: Number of episodes already completed.
        is_shown: Whether to show the bar; if None, only if stderr is a terminal.
    """

    def __init__(self, total: int, *, done: int = 0, is_shown: bool | None = None) -> None:
        self._progress: Progress | None = None
        self._faults = 0
        if sys.stderr.isatty() if is_shown is None else is_shown:
            self._progress = _make_progress()
            self._task = self._progress.add_task("episodes", total=total, completed=done, note="")

    def advance(self) -> None:
        """Count a completed episode."""
        if self._progress is not None:
            self._progress.advance(self._task)

    def count_fault(self) -> None:
        """Count a sandbox failure."""
        self._faults += 1
        if self._progress is not None:
            self._progress.update(self._task, note=f"retried: {self._faults}")

    def __enter__(self) -> Self:
        if self._progress is not None and BAR.acquire(blocking=False):
            self._progress.start()
        else:
            self._progress = None
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._progress is not None:
            self._progress.stop()
            BAR.release()


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
