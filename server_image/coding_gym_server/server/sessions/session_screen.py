"""``SessionScreen``: the display of a session's episode."""

from __future__ import annotations

import contextlib
import functools

from msgspec import UNSET

from coding_gym_server.protocol import DEFAULT_SCREEN, Rectangle, ResetOptions, Screen, ScreenRequestOptions, Widget
from coding_gym_server.server.supervisor.display_handle import (
    DisplayFactory,
    DisplayHandle,
    InvalidScreenRequestError,
    ScreenUnavailableError,
)
from coding_gym_server.server.supervisor.executor import Executor
from coding_gym_server.server.supervisor.widgets import arrange, read_widgets

__all__ = ["SessionScreen"]

_WIDGETS_ONLY = ScreenRequestOptions(Rectangle(0, 0, 1, 1), widgets=True)


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
        self._wants_widgets = False
        self._closed_widgets: list[Widget] = []

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
            ScreenUnavailableError: If the screen or the window manager is not available.
        """
        size, window_manager = options.screen, options.window_manager
        if size is UNSET and not window_manager:
            # The default screen is optional.
            with contextlib.suppress(ScreenUnavailableError, OSError):
                self.display = self._displays.open(executor.directory, DEFAULT_SCREEN, window_manager=False)
        elif size is not None:
            chosen = DEFAULT_SCREEN if size is UNSET else size
            self.display = self._displays.open(executor.directory, chosen, window_manager=window_manager)
        if self.display is not None:
            executor.on_interrupted = self.display.wake
            self._wants_widgets = options.widgets
            if options.widgets:
                self.display.before_close = functools.partial(self._keep_widgets, executor)

    def close(self) -> None:
        """Close the display. Idempotent."""
        if self.display is not None:
            self.display.close()
            self.display = None

    async def capture(self, options: ScreenRequestOptions, executor: Executor | None) -> Screen:
        """Return the current screen. May be called during a step, without widgets.

        Args:
            options: What to return of it.
            executor: The executor of the episode, if there is one.

        Raises:
            ScreenUnavailableError: If the session has no screen.
            InvalidScreenRequestError: If the window does not exist.
        """
        display = self.display
        if display is None:
            message = "this session has no screen; reset it with a screen"
            raise ScreenUnavailableError(message)
        region = options.region
        running = executor is not None and executor.is_running
        reported = []
        if options.widgets and executor is not None and display.is_started:
            reported = await read_widgets(executor)
        current = await display.capture_now(region)
        if current is not None:
            widgets = arrange(reported, current.windows) if options.widgets else []
            return Screen(windows=current.windows, running=running, screenshot=current.picture, widgets=widgets)
        if isinstance(region, int):
            message = f"no window {region}: there are no windows on the screen"
            raise InvalidScreenRequestError(message)
        return Screen(windows=[], running=running, screenshot=display.black(region))

    async def take_widgets(self, executor: Executor | None) -> list[Widget]:
        """Return the widgets at the end of a step, or before its windows were closed; empty unless they are requested."""
        kept, self._closed_widgets = self._closed_widgets, []
        if not self._wants_widgets or self.display is None or executor is None or executor.worker.has_exited:
            return kept
        return (await self.capture(_WIDGETS_ONLY, executor)).widgets or kept

    def forget_widgets(self) -> None:
        """Forget the widgets of windows that were closed before the step's own program began."""
        self._closed_widgets = []

    async def _keep_widgets(self, executor: Executor) -> None:
        self._closed_widgets = (await self.capture(_WIDGETS_ONLY, executor)).widgets
