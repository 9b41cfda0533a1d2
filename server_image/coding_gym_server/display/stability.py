"""Detection of a complete picture.

Toolkits draw in bursts with pauses, and do not signal the end. According to measurements, pixels that are stable for 60 ms
while the programs are idle do not change again by themselves; programs that are never idle, such as games that poll, have drawn
everything after 400 ms. A fixed wait is too long for most programs, and too short for a large figure. On a busy machine,
programs get less of a processor than they ask for, so that only the time counts in which they did not wait for one.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterable

from coding_gym_server.display.framebuffer import Framebuffer
from coding_gym_server.linux import procfs
from coding_gym_server.linux.program_clock import ProgramClock
from coding_gym_server.linux.wait_state import cpu_seconds

__all__ = ["ScreenStability"]

_QUIET_SECONDS = 0.06
_QUIET_WHILE_BUSY_SECONDS = 0.4
_MAX_SAMPLE_SECONDS = 0.01
_SLOWEST = 0.25
_BUSY = 0.1
"""Fraction of one core at or above which programs count as busy."""


class ScreenStability:
    """Stability of the screen, from periodic samples of its pixels and of the CPU time of programs.

    Args:
        framebuffer: Framebuffer of the screen.

    Attributes:
        quiet: Seconds for which the screen has been observed without a change, without those in which programs waited for a
            processor.
        unchanged: The same with these.
    """

    def __init__(self, framebuffer: Framebuffer) -> None:
        self._framebuffer = framebuffer
        self._cpu_samples: deque[tuple[float, float]] = deque()
        self._used = 0.0
        self._pids: set[int] = set()
        self._clock = ProgramClock(slowest=_SLOWEST)
        self.restart()

    def restart(self) -> None:
        """Discard all samples and restart."""
        self._sampled_at = time.monotonic()
        self.quiet = self.unchanged = 0.0
        self._changed_at = self.clock()
        self._inactive_seconds = 0.0
        self._is_runnable = True
        self._cpu_samples.clear()

    def restart_inactivity(self) -> None:
        """Restart the time without messages that ``is_inactive`` requires."""
        self._inactive_seconds = 0.0

    def sample(self, pids: Iterable[int], *, has_traffic: bool) -> bool:
        """Take a sample; return whether the screen has changed since the last one.

        Args:
            pids: Pids of the processes that draw, including the X server.
            has_traffic: Whether programs and the X server have exchanged messages since the last sample.
        """
        now = time.monotonic()
        # Limited, because nothing is known about times at which this process was not scheduled.
        elapsed = min(now - self._sampled_at, _MAX_SAMPLE_SECONDS)
        self._pids = pids = set(pids)
        used = cpu_seconds(pids)
        self._is_runnable = any(map(procfs.is_runnable, pids))
        served = max(used - self._used, 0.0) if self._is_runnable else _MAX_SAMPLE_SECONDS
        self.unchanged += elapsed
        self.quiet += min(elapsed, served)
        self._inactive_seconds = 0.0 if has_traffic else self._inactive_seconds + elapsed
        self._sampled_at = now
        self._used = used
        self._cpu_samples.append((now, used))
        while len(self._cpu_samples) > 2 and self._cpu_samples[1][0] <= now - _QUIET_SECONDS:
            self._cpu_samples.popleft()
        changed = self._framebuffer.has_changed()
        if changed:
            self.quiet = self.unchanged = 0.0
            self._changed_at = self.clock()
        return changed

    def clock(self) -> float:
        """Return the seconds in which neither this process nor the programs waited for a processor."""
        return self._clock.read({os.getpid(), *self._pids})

    @property
    def is_busy(self) -> bool:
        """Whether the programs are busy."""
        if not self._cpu_samples:
            return True
        (begin, before), (end, after) = self._cpu_samples[0], self._cpu_samples[-1]
        if end - begin < _QUIET_SECONDS or after - before >= _BUSY * (end - begin):
            return True
        # On an overloaded machine, programs that are runnable may not get any CPU time.
        return self._is_runnable

    def is_inactive(self, seconds: float = _QUIET_SECONDS) -> bool:
        """Return whether the screen is stable, the programs are idle, and no messages were exchanged for ``seconds``."""
        return self.quiet >= _QUIET_SECONDS and self._inactive_seconds >= seconds and not self.is_busy

    @property
    def is_quiet(self) -> bool:
        """Whether the screen has been stable for so long that the picture is complete, whatever the programs do."""
        return min(self.quiet, self.clock() - self._changed_at) >= _QUIET_WHILE_BUSY_SECONDS
