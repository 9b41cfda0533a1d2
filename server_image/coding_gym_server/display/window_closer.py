"""Closing of programs' windows, as a user does it: one at a time, dialogs first.

A dialog must not lose the window below it while it waits for an answer: the program would fail because of the close.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from coding_gym_server.display.idle_detector import IdleDetector
from coding_gym_server.display.messages import CLOSE_TIMEOUT, Closed, CloseWindows, ClosingEnded, ToDisplay
from coding_gym_server.display.stability import ScreenStability
from coding_gym_server.display.windows import WindowList
from coding_gym_server.ipc.channel import Channel

__all__ = ["WindowCloser"]

_CONFIRMATION_TIMEOUT = 1.0
"""Seconds within which programs must prove to be idle still, before their windows are closed."""

_CHECK_INTERVAL = 0.02


class WindowCloser:
    """Respond to requests to close all windows.

    Args:
        desktop: Windows of the display.
        idle_detector: Detects idle programs; it is restarted after each request to a window.
        stability: Measures the time that programs have to react.
        channel: Channel to the server.
        on_progress: Called when a request has been refused, has begun or has ended, and programs have to be observed anew.
    """

    def __init__(
        self,
        desktop: WindowList,
        idle_detector: IdleDetector,
        stability: ScreenStability,
        channel: Channel[ToDisplay],
        *,
        on_progress: Callable[[], None],
    ) -> None:
        self._desktop = desktop
        self._idle_detector = idle_detector
        self._stability = stability
        self._channel = channel
        self._on_progress = on_progress
        self._confirmation_deadline: float | None = None
        self._round: _Round | None = None

    @property
    def is_active(self) -> bool:
        """Whether windows are being closed or about to be closed."""
        return self._confirmation_deadline is not None or self._round is not None

    def begin(self, request: CloseWindows, *, is_unchanged: bool) -> None:
        """Begin to close all windows once the programs have proved to be idle, or at once.

        Args:
            request: The request.
            is_unchanged: Whether the programs have been idle, and the screen unchanged, since the last ``Idle``.
        """
        self._round = None
        if request.when == "now":
            self._respond(_Round(self._desktop, time.monotonic(), is_patient=False))
        elif request.when == "unchanged" and not is_unchanged:
            self._respond(None)
        else:
            self._confirmation_deadline = self._stability.clock() + _CONFIRMATION_TIMEOUT
            self._idle_detector.restart()

    def refuse(self) -> None:
        """Refuse a request that has not begun, because programs are not idle any more or the server has another request."""
        if self._confirmation_deadline is not None:
            self._respond(None)

    def cancel(self) -> None:
        """Stop closing windows."""
        self._round = None

    def advance(self, now: float) -> None:
        """Continue the request, if one is active; see ``is_active``.

        Args:
            now: Current monotonic time in seconds.
        """
        is_idle = self._idle_detector.advance(now)
        if self._round is None or self._round.is_patient:
            now = self._stability.clock()
        if is_idle:
            self._idle_detector.restart()
        if self._confirmation_deadline is not None:
            if is_idle:
                self._respond(_Round(self._desktop, now, is_patient=True))
            elif now >= self._confirmation_deadline:
                self._respond(None)
        elif self._round is not None:
            are_closed = self._round.advance(now, is_idle=is_idle)
            if are_closed is not None:
                self._round = None
                self._on_progress()
                self._channel.send(ClosingEnded(are_closed=are_closed))

    def _respond(self, round_: _Round | None) -> None:
        self._confirmation_deadline, self._round = None, round_
        self._on_progress()
        self._channel.send(Closed(has_begun=round_ is not None))


class _Round:
    """Ask each window once to close, also those that appear meanwhile.

    The first request is sent at once. All windows together have one deadline, which starts again only when a window that was
    there at the beginning is asked: questions do not postpone it. It does not apply while a program works after a dialog, which
    may still be visible then.

    Args:
        desktop: Windows of the display.
        now: Time on the clock of the programs, ``ScreenStability.clock``, or in real time if the round is not patient: of a
            step's time, little is left for programs that draw until it ends, and they handle events between two pictures.
        is_patient: Whether to wait until the programs are idle before the next window is asked. If not, all windows are asked
            at once, for programs that are never idle.
    """

    def __init__(self, desktop: WindowList, now: float, *, is_patient: bool) -> None:
        self._desktop = desktop
        self.is_patient = is_patient
        windows = desktop.applications()
        self._initial = frozenset(windows)
        self._asked: set[int] = set()
        self._next_check = now
        self._deadline = now + CLOSE_TIMEOUT
        self._may_work = False
        self._ask(windows, now)

    def advance(self, now: float, *, is_idle: bool) -> bool | None:
        """Ask the next window if it is due.

        Args:
            now: Time on the same clock.
            is_idle: Whether the programs wait for events.

        Returns:
            True when no windows are left; False if a program keeps its windows, or answers with new ones, such as a question;
            None until then.
        """
        if not is_idle and now < self._next_check:
            return None
        self._next_check = now + _CHECK_INTERVAL
        windows = self._desktop.applications()
        if not self._asked and not windows and self._desktop.has_windows():
            # Such as a splash screen, which no user can close.
            return False if now >= self._deadline else None
        if not self._asked or not windows:
            return True
        self._may_work &= not is_idle
        is_refused = not self._may_work and any(window in self._asked or window not in self._initial for window in windows)
        if now >= self._deadline and (is_refused or not self.is_patient):
            return False
        if is_idle or not self.is_patient:
            self._ask([window for window in windows if window not in self._asked], now)
        return None

    def _ask(self, windows: list[int], now: float) -> None:
        innermost = self._desktop.innermost(windows) if self.is_patient else None
        asked = windows if innermost is None else [innermost]
        self._desktop.close_windows(asked)
        self._asked.update(asked)
        self._may_work = innermost is not None and innermost in self._desktop.secondary(windows)
        if not self._initial.isdisjoint(asked):
            self._deadline = now + CLOSE_TIMEOUT
