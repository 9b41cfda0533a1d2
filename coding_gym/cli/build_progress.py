"""Progress display of an image build."""

from __future__ import annotations

import re

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Column

__all__ = ["BuildProgress"]

_STEP = re.compile(r"Step (\d+)/(\d+) : (.*)")


class BuildProgress:
    """Display of a build log: a progress bar with the current line on a terminal, otherwise all lines verbatim.

    Args:
        console: Console to print to.
        quiet: Whether to print nothing.
    """

    def __init__(self, console: Console, *, quiet: bool) -> None:
        self.has_begun = False
        self._is_plain = not console.is_terminal
        self._quiet = quiet
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            TimeElapsedColumn(),
            TextColumn("{task.fields[line]}", markup=False, table_column=Column(no_wrap=True, ratio=1)),
            console=console,
            transient=True,
            disable=quiet or self._is_plain,
            expand=True,
        )
        self._task = self._progress.add_task("Building", total=None, line="")

    def __enter__(self) -> BuildProgress:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def show(self, line: str) -> None:
        """Display one line of the log."""
        self.has_begun = True
        if self._quiet:
            return
        if self._is_plain:
            typer.echo(line)
        elif (step := _STEP.match(line)) is not None:
            number, total, command = int(step[1]), int(step[2]), step[3]
            self._progress.update(
                self._task, description=f"Step {number}/{total}", completed=number - 1, total=total, line=command
            )
        else:
            self._progress.update(self._task, line=line.strip())
