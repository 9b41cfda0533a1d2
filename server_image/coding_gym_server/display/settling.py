"""When a picture is complete.

Toolkits draw in bursts with pauses, and nothing tells of the end. What was measured: pixels that rest for 60 ms while the
programs rest, too, do not change again by themselves; programs that never rest, such as games that poll, have drawn all after
400 ms. A fixed wait is too long for most, and too short for a large figure.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable

from coding_gym_server.display.framebuffer import Framebuffer
from coding_gym_server.workers import process_table
from coding_gym_server.workers.waiting import cpu_seconds

__all__ = ["Stillness"]

_QUIET_SECONDS = 0.06
_QUIET_WHILE_BUSY_SECONDS = 0.4
_KNOWN_SECONDS = 0.01
_BUSY = 0.1
"""The part of one core above which programs do not rest."""


class Stillness:
    """Looks at pixels and CPU clocks, again and again.

    Args:
        framebuffer: The screen.

    Attributes:
        quiet: For how many seconds the screen has been seen not to change.
    """

    def __init__(self, framebuffer: Framebuffer) -> None:
        self._framebuffer = framebuffer
        self._uses: deque[tuple[float, float]] = deque()
        self._pids: set[int] = set()
        self.restart()

    def restart(self) -> None:
        """Begin anew: what was before does not count."""
        self._looked_at = time.monotonic()
        self.quiet = 0.0
        self._calm = 0.0
        self._uses.clear()

    def wait_for_calm(self) -> None:
        """Have it be calm only after another while."""
        self._calm = 0.0

    def look(self, pids: Iterable[int], *, is_talking: bool) -> bool:
        """Look once; says whether the screen has changed since the last time.

        Args:
            pids: The processes that draw, the X server among them.
            is_talking: Whether programs and screen have said anything to each other since the last time.
        """
        now = time.monotonic()
        # Of a time in which this process did not get to look, nothing is known.
        known = min(now - self._looked_at, _KNOWN_SECONDS)
        self.quiet += known
        self._calm = 0.0 if is_talking else self._calm + known
        self._looked_at = now
        self._pids = set(pids)
        self._uses.append((now, cpu_seconds(self._pids)))
        while len(self._uses) > 2 and self._uses[1][0] <= now - _QUIET_SECONDS:
            self._uses.popleft()
        changed = self._framebuffer.has_changed()
        if changed:
            self.quiet = 0.0
        return changed

    @property
    def is_busy(self) -> bool:
        """Whether the programs are at work."""
        if not self._uses:
            return True
        (begin, before), (end, after) = self._uses[0], self._uses[-1]
        if end - begin < _QUIET_SECONDS or after - before >= _BUSY * (end - begin):
            return True
        # On a machine that has no time for them, they use none.
        return any(map(process_table.is_runnable, self._pids))

    def is_calm(self, seconds: float = _QUIET_SECONDS) -> bool:
        """Say whether the picture is quiet, the programs are not busy, and nothing was said for some time."""
        return self.quiet >= _QUIET_SECONDS and self._calm >= seconds and not self.is_busy

    @property
    def is_settled(self) -> bool:
        """Whether the picture is complete."""
        return self.quiet >= _QUIET_WHILE_BUSY_SECONDS or self.is_calm()
