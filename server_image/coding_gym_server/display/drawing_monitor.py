"""Detection of programs that never rest, such as games and animations."""

from __future__ import annotations

import math

__all__ = ["DrawingMonitor"]

_REST_SECONDS = 2.5
"""Seconds without a change after which drawing has ended: longer than the server waits for the timers of an idle program."""


class DrawingMonitor:
    """Measure for how long the screen has kept changing.

    Args:
        max_watch: Number of seconds of continuous drawing to report, None for never.
    """

    def __init__(self, max_watch: float | None) -> None:
        self._max_watch = math.inf if max_watch is None else max_watch
        self.restart()

    def restart(self) -> None:
        """Forget earlier changes."""
        self._began = self._changed = -math.inf

    def note_change(self, now: float) -> bool:
        """Note that the screen has changed; return whether it has kept changing for ``max_watch`` seconds, and start again."""
        if now - self._changed > _REST_SECONDS:
            self._began = now
        self._changed = now
        is_due = now - self._began >= self._max_watch
        if is_due:
            self._began = now
        return is_due
