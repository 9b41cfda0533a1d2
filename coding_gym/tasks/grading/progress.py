"""The progress bar of ``Grader.grade_many``."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from coding_gym.tasks.verdict import Verdict

__all__ = ["show_progress"]


@contextlib.contextmanager
def show_progress(total: int | None, *, shown: bool) -> Iterator[Callable[[Verdict], None]]:
    """Show a progress bar on stderr: submissions graded and solved, infrastructure errors, and times elapsed and remaining.

    Args:
        total: Number of submissions; None if unknown.
        shown: Whether to show anything.

    Yields:
        A callback to call with each verdict.
    """
    if not shown:
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (
        TextColumn("grading"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("[green]{task.fields[solved]} solved"),
        TextColumn("{task.fields[lost]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    solved = lost = 0
    with Progress(*columns, console=Console(stderr=True)) as progress:
        bar = progress.add_task("grading", total=total, solved=0, lost="")

        def advance(verdict: Verdict) -> None:
            nonlocal solved, lost
            solved += verdict.solved
            lost += verdict.is_infrastructure
            progress.update(bar, advance=1, solved=solved, lost=f"[red]{lost} infrastructure" if lost else "")

        yield advance
