"""When programs wait for events, rather than compute what they will draw next.

A picture that rests says little: a figure that takes a second to draw shows an empty window until then. So programs are sent
something, and have to read it; and as what they had in hand until then may be to draw (toolkits draw when there are no events
left), it is only what they do after that, nothing, which says that they wait.
"""

from __future__ import annotations

from coding_gym_server.display.desktop import Desktop
from coding_gym_server.display.framebuffer import Framebuffer
from coding_gym_server.display.proxy import Proxy
from coding_gym_server.display.settling import Stillness

__all__ = ["Rest"]

_ASK_AFTER = 0.02
_CALM_SECONDS = 0.03
_ASK_AGAIN_AFTER = 0.1
_ANSWERS_OF_BUSY_PROGRAMS = 5
"""Programs that poll for events answer again and again; those that compute do not."""

_MESSAGES_OF_IDLE_PROGRAMS = 12
"""The most messages between two questions: programs that draw bit by bit need many, and read the question with the answers."""

_TALKATIVE_SECONDS = 1.0
"""Programs that draw the same again and again have drawn all after that."""

_BLANK_SECONDS = 1.0
"""Programs that have shown nothing yet are likely to be on the way to it."""


class Rest:
    """Asks programs, and watches what they do then.

    Args:
        desktop: Where their windows are.
        proxy: What they are connected to.
        framebuffer: What they draw on.
        stillness: What is known of their picture and their use of the CPU.
    """

    def __init__(self, desktop: Desktop, proxy: Proxy, framebuffer: Framebuffer, stillness: Stillness) -> None:
        self._desktop = desktop
        self._proxy = proxy
        self._framebuffer = framebuffer
        self._stillness = stillness
        self.restart()

    def restart(self) -> None:
        """Begin anew: they have gone on."""
        self._asked_at: float | None = None
        self._answered_at: float | None = None
        self._answers = 0
        self._messages = 0

    def look(self, now: float) -> bool:
        """Look once; says whether the programs wait. To be called after the stillness has looked."""
        if self._asked_at is None:
            if self._stillness.quiet >= (_BLANK_SECONDS if self._framebuffer.is_blank() else _ASK_AFTER):
                self._ask(now)
            return False
        if self._answered_at is None:
            if self._desktop.answered() and not self._proxy.has_unread():
                self._answered_at = now
                self._answers = self._answers + 1 if now < self._asked_at + _ASK_AGAIN_AFTER else 1
                self._stillness.wait_for_calm()
            return False
        if self._stillness.is_calm(_CALM_SECONDS):
            return True
        if now >= self._answered_at + _ASK_AGAIN_AFTER:
            talkative = self._proxy.messages - self._messages > _MESSAGES_OF_IDLE_PROGRAMS
            if talkative and self._stillness.quiet < _TALKATIVE_SECONDS:
                self._answers = 0
            if self._answers >= _ANSWERS_OF_BUSY_PROGRAMS:
                return True
            self._ask(now)
        return False

    def _ask(self, now: float) -> None:
        if self._desktop.has_windows():
            self._desktop.ping()
            self._asked_at, self._answered_at = now, None
            self._messages = self._proxy.messages
