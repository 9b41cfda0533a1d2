"""``SessionScreen``: the display of a session's episode."""

from __future__ import annotations

import contextlib

from msgspec import UNSET

from coding_gym_server.protocol import DEFAULT_SCREEN, Rectangle, ResetOptions, Screen
from coding_gym_server.server.supervisor.display_handle import (
    DisplayFactory,
    DisplayHandle,
    NoScreenError,
    ScreenRefusedError,
)
from coding_gym_server.server.supervisor.executor import Executor

__all__ = ["SessionScreen"]


class SessionScreen:
    """The display of a session, one for each episode.

    Args:
        displays: Factory of displays.

    Attributes:
        display: The display, None without a screen.
    """

    def __init__(self, displays: DisplayFactory) -> None:
        self._displays = displays
        self.display: DisplayHandle | None = None

    @property
    def name(self) -> str | None:
        """The value of ``DISPLAY``, None without a screen."""
        return None if self.display is None else self.display.name

    @property
    def cookie(self) -> bytes:
        """The X authority cookie that programs must present to connect."""
        return b"" if self.display is None else self.display.cookie

    def open(self, executor: Executor, options: ResetOptions) -> None:
        """Open the display of an episode.

        Args:
            executor: The executor of the episode.
            options: Options of the episode.

        Raises:
            NoScreenError: If the screen or the window manager is not available.
        """
        size, window_manager = options.screen, options.window_manager
        if size is UNSET and not window_manager:
            # The default screen is optional.
            with contextlib.suppress(NoScreenError, OSError):
                self.display = self._displays.open(executor.directory, DEFAULT_SCREEN, window_manager=False)
        elif size is not None:
            chosen = DEFAULT_SCREEN if size is UNSET else size
            self.display = self._displays.open(executor.directory, chosen, window_manager=window_manager)
        if self.display is not None:
            executor.on_interrupted = self.display.wake

    def close(self) -> None:
        """Close the display. Idempotent."""
        if self.display is not None:
            self.display.close()
            self.display = None

    async def capture(self, region: Rectangle | int | None, *, running: bool) -> Screen:
        """Return the current screen.

        Args:
            region: A rectangle or the id of a window; None for the whole screen.
            running: Whether a program is running.

        Raises:
            NoScreenError: If the session has no screen.
            ScreenRefusedError: If the window does not exist.
        """
        if self.display is None:
            message = "this session has no screen; reset it with a screen"
            raise NoScreenError(message)
        current = await self.display.capture_now(region)
        if current is not None:
            return Screen(windows=current.windows, running=running, screenshot=current.picture)
        if isinstance(region, int):
            message = f"no window {region}: there are no windows on the screen"
            raise ScreenRefusedError(message)
        return Screen(windows=[], running=running, screenshot=self.display.black(region))
