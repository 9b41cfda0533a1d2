"""Messages between the server and a display process.

The server sends requests. Unsolicited messages are notices: ``Idle`` when watched programs become idle, and again when this
state lasts; ``Animating`` when they never rest; ``ClosingEnded`` after a request to close windows.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from coding_gym_server.protocol import Capture, Frame, InputEvent, Pixels, Rectangle, Window

__all__ = [
    "CLOSE_TIMEOUT",
    "Animating",
    "CaptureFinal",
    "CaptureNow",
    "Captured",
    "CloseWindows",
    "Closed",
    "ClosingEnded",
    "DisplayConfig",
    "FromDisplay",
    "Idle",
    "InjectInput",
    "InputInjected",
    "Notice",
    "Refused",
    "ScreenState",
    "ToDisplay",
    "Wake",
    "WatchScreen",
]

CLOSE_TIMEOUT = 1.5
"""Seconds within which programs must have closed a window after the request."""


class WatchScreen(msgspec.Struct, tag=True):
    """Request to watch a step: discard earlier observations, and report when the programs are idle. Has no response.

    Attributes:
        worker: Pid of the process that runs the cell.
        frame_rate: Maximum number of frames per second of the video, None for no video.
        patience: Seconds after which programs with windows count as idle in any case, None for never.
        max_watch: Seconds of continuous drawing after which programs count as animating, None for never.
    """

    worker: int
    frame_rate: float | None = None
    patience: float | None = None
    max_watch: float | None = None


class CaptureFinal(msgspec.Struct, tag=True):
    """Request for the screen at the end or at a pause of a step: respond with ``ScreenState`` once the screen is stable.

    Attributes:
        capture: When to include a picture.
        settle: Maximum number of seconds to wait for a stable screen.
        keep_watching: Whether to continue watching for idle programs afterwards.
    """

    capture: Capture
    settle: float
    keep_watching: bool = False


class CaptureNow(msgspec.Struct, tag=True):
    """Request for the current screen and its windows: respond with ``Captured``, or ``Refused`` if the window does not exist.

    Attributes:
        region: A rectangle or the id of a window, None for the whole screen.
    """

    region: Rectangle | int | None = None


class CloseWindows(msgspec.Struct, tag=True):
    """Request to close all windows, like clicks on their close buttons: respond with ``Closed``, and later ``ClosingEnded``.

    Attributes:
        when: ``unchanged``, if the programs are idle and the screen has not changed since the last ``Idle``; ``idle``, if they
            are idle; or ``now``, all windows at once instead of one by one.
    """

    when: Literal["unchanged", "idle", "now"]


class Wake(msgspec.Struct, tag=True):
    """Request to redraw all windows, so that toolkits that wait for events notice pending signals. Has no response."""


class InjectInput(msgspec.Struct, tag=True):
    """Request to inject input: respond with ``InputInjected`` once it is done, or ``Refused`` before any event is performed.

    Attributes:
        events: Input events.
    """

    events: list[InputEvent]


class DisplayConfig(msgspec.Struct, kw_only=True):
    """Configuration of a display process.

    Attributes:
        directory: Directory of the display process, which removes it on exit.
        width: Width of the screen in pixels.
        height: Height of the screen in pixels.
        cookie: X authority cookie that clients must present.
        window_manager: Whether to run a window manager.
        opengl: Whether Xvfb offers GLX.
        watch: Request for the step in which the first program connects.
    """

    directory: str
    width: int
    height: int
    cookie: bytes
    window_manager: bool = False
    opengl: bool = False
    watch: WatchScreen | None = None


class Idle(msgspec.Struct, tag=True):
    """Notification that the screen is stable and all programs wait for events, or that ``patience`` has elapsed.

    Attributes:
        programs: Pids of the connected programs.
        is_lasting: Whether the screen has been stable for longer than an animation pauses between two frames.
        has_windows: Whether any of the programs has a window that can be seen.
    """

    programs: list[int]
    is_lasting: bool
    has_windows: bool


class Animating(msgspec.Struct, tag=True):
    """Notification that the programs have drawn continuously, for ``max_watch`` or ``patience``."""


class ClosingEnded(msgspec.Struct, tag=True):
    """Notification that the closing of windows has ended.

    Attributes:
        are_closed: Whether all windows have been closed; if not, a program has ignored a request until the deadline.
    """

    are_closed: bool


class ScreenState(msgspec.Struct, tag=True):
    """Response to ``CaptureFinal``.

    Attributes:
        picture: Picture of the screen; if the screen is black, the last picture of this step before windows vanished. None if
            there was nothing to see or no picture was requested.
        is_live: Whether the current screen is not black, so that the picture shows it.
        is_blank: Whether the picture is entirely black or missing.
        is_new: Whether something was drawn in this step.
        frames: Frames of the video.
    """

    picture: Pixels | None
    is_live: bool
    is_blank: bool
    is_new: bool
    frames: list[Frame]


class Captured(msgspec.Struct, tag=True):
    """Response to ``CaptureNow``."""

    picture: Pixels
    windows: list[Window]


class Closed(msgspec.Struct, tag=True):
    """Response to ``CloseWindows``.

    Attributes:
        has_begun: Whether windows are being closed; if not, the programs are not idle, or not any more.
    """

    has_begun: bool


class InputInjected(msgspec.Struct, tag=True):
    """Response to ``InjectInput``."""


class Refused(msgspec.Struct, tag=True):
    """Response to an invalid request."""

    reason: str


ToDisplay = WatchScreen | CaptureFinal | CaptureNow | CloseWindows | Wake | InjectInput
Notice = Idle | Animating | ClosingEnded
FromDisplay = Notice | ScreenState | Captured | Closed | InputInjected | Refused
