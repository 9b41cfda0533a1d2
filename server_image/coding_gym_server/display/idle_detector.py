"""Detection of programs that wait for events, rather than compute what they draw next.

A stable picture is not sufficient: a figure that takes a second to draw shows an empty window until then. So programs are
pinged, which requires them to read their events. Since they may draw after that (toolkits draw when the event queue is empty),
only inactivity that follows the answer indicates that they wait. They may do so without a visible window, too.
"""

from __future__ import annotations

from coding_gym_server.display.framebuffer import Framebuffer
from coding_gym_server.display.proxy import Proxy
from coding_gym_server.display.stability import ScreenStability
from coding_gym_server.display.windows import WindowList

__all__ = ["IdleDetector"]

_PING_AFTER_SECONDS = 0.02
_INACTIVE_SECONDS = 0.03
_PING_INTERVAL = 0.1
_IDLE_ANSWERS = 5
"""Consecutive answers after which busy programs count as idle: programs that poll for events keep answering, others do not."""

_MAX_IDLE_MESSAGES = 12
"""Maximum number of messages between two pings: programs that draw piecemeal exchange many, and read pings with the replies."""

_REDRAW_SECONDS = 1.0
"""Seconds of a stable screen after which further messages are ignored, because programs repeatedly draw the same."""

_BLANK_SECONDS = 1.0
"""Seconds of a stable black screen before the first ping, because programs that have shown nothing yet are likely to draw."""


class IdleDetector:
    """Ping programs, and observe their activity afterwards.

    Args:
        desktop: Windows of the display.
        proxy: X11 proxy that the programs are connected to.
        framebuffer: Framebuffer of the display.
        stability: Stability of the screen and CPU usage of the programs.

    Attributes:
        has_windows: Whether there were windows to ping.
    """

    def __init__(self, desktop: WindowList, proxy: Proxy, framebuffer: Framebuffer, stability: ScreenStability) -> None:
        self._desktop = desktop
        self._proxy = proxy
        self._framebuffer = framebuffer
        self._stability = stability
        self.has_windows = True
        self.restart()

    def restart(self) -> None:
        """Restart the detection, because programs have resumed."""
        self._pinged_at: float | None = None
        self._answered_at: float | None = None
        self._answers = 0
        self._messages = 0

    def advance(self, now: float) -> bool:
        """Advance the detection; return whether the programs wait for events. Call ``ScreenStability.sample`` first."""
        if self._pinged_at is None:
            if self._stability.quiet >= (_BLANK_SECONDS if self._framebuffer.is_blank() else _PING_AFTER_SECONDS):
                self._ping(now)
            return False
        if self._answered_at is None:
            if self._desktop.answered() and not self._proxy.has_unread():
                self._answered_at = now
                self._answers = self._answers + 1 if now < self._pinged_at + _PING_INTERVAL else 1
                self._stability.restart_inactivity()
            return False
        if self._stability.is_inactive(_INACTIVE_SECONDS):
            return True
        if now >= self._answered_at + _PING_INTERVAL:
            is_drawing = self._proxy.messages - self._messages > _MAX_IDLE_MESSAGES
            if is_drawing and self._stability.quiet < _REDRAW_SECONDS:
                self._answers = 0
            if self._answers >= _IDLE_ANSWERS and self.has_windows:
                return True
            self._ping(now)
        return False

    def _ping(self, now: float) -> None:
        self.has_windows = self._desktop.has_windows()
        if self.has_windows:
            self._desktop.ping()
        if self.has_windows or self._desktop.ping_hidden():
            self._pinged_at, self._answered_at = now, None
            self._messages = self._proxy.messages
