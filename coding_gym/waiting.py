"""Progress of what takes long: a bar on a terminal, a log line elsewhere."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
from collections.abc import Callable, Iterator

__all__ = ["BAR", "waiting_for"]

BAR = threading.Lock()
"""Held while a bar is on the terminal, where two would overwrite each other."""


@contextlib.contextmanager
def waiting_for(
    what: str, log: logging.Logger, *, total: int | None = None, patience: float = 0.0
) -> Iterator[Callable[[], None]]:
    """Show what a block waits for.

    Args:
        what: What it waits for, such as ``installing toolz``.
        log: Logger of the line.
        total: Number of parts that it waits for; None if it is one.
        patience: Seconds before the line is logged, for what is fast most of the time.

    Yields:
        A callback for each part that is done.
    """
    if sys.stderr.isatty() and BAR.acquire(blocking=False):
        try:
            with _shown(what, total) as advance:
                yield advance
        finally:
            BAR.release()
        return
    timer = threading.Timer(patience, log.warning, ["%s", what])
    if patience:
        timer.daemon = True
        timer.start()
    else:
        log.warning("%s", what)
    try:
        yield lambda: None
    finally:
        timer.cancel()


@contextlib.contextmanager
def _shown(what: str, total: int | None) -> Iterator[Callable[[], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    parts = () if total is None else (BarColumn(), MofNCompleteColumn())
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), *parts, TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=total)
        yield lambda: progress.advance(task)
