"""``StepView``: screen options of a step."""

from __future__ import annotations

import msgspec

from coding_gym_server.protocol import Capture, InputEvent, OnIdle

__all__ = ["StepView", "watch_limit"]

_WATCHED_SHARE = 0.5
"""Default of ``max_watch`` as a fraction of the step's wall-clock limit."""

_END_SECONDS = 3.0
"""Seconds at the end of a step that are reserved for closing an animating program, if the step is at least twice as long."""


class StepView(msgspec.Struct, frozen=True, kw_only=True):
    """Screen options of a step.

    Attributes:
        capture: When to capture a screenshot.
        on_idle: How to handle a program that waits for events.
        frame_rate: Frames per second of the video, None for no video.
        inputs: Input events to inject once the cell has ended or waits for events.
        settle: Maximum number of seconds to wait for a stable screen after the input; and, with ``OnIdle.RETURN``, to wait for
            a program that never becomes idle. None for the defaults.
        max_watch: Seconds of continuous drawing after which a program counts as animating, None for never.
    """

    capture: Capture = Capture.NEVER
    on_idle: OnIdle = OnIdle.CLOSE
    frame_rate: float | None = None
    inputs: list[InputEvent] = []
    settle: float | None = None
    max_watch: float | None = None

    @classmethod
    def of_cell(cls, wall: float) -> StepView:
        """Return the options for a cell of a code interpreter.

        Args:
            wall: Wall-clock limit of the cell in seconds.
        """
        return cls(capture=Capture.AUTO, max_watch=watch_limit(wall))


def watch_limit(wall: float, max_watch: float | None = None) -> float:
    """Return the number of seconds of continuous drawing after which a program counts as animating.

    It is less than the time limit, so that a program that draws without end does not lose its variables.

    Args:
        wall: Wall-clock limit of the step in seconds.
        max_watch: The requested number, None for the default.
    """
    return min(max_watch or wall * _WATCHED_SHARE, max(wall - _END_SECONDS, wall * _WATCHED_SHARE))
