"""``SessionAccess``: an environment's access to its session beside steps: screen, processes, files."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Unpack

import numpy as np
from numpy.typing import NDArray

from coding_gym.envs.episode import SCREEN_TIMEOUT, EpisodeState
from coding_gym.envs.exclusive_use import ExclusiveUse
from coding_gym.envs.screen_region import WIDGETS_AND_SCREEN, WIDGETS_ONLY, WINDOWS_ONLY, Region, screen_request
from coding_gym.errors import TransportError
from coding_gym.media.frames import decode_pixels
from coding_gym.media.marks import MarkedScreen, mark_widgets
from coding_gym_server.protocol import Screen, ScreenRequestOptions, Widget, Window

if TYPE_CHECKING:
    from coding_gym.client.files import Files
    from coding_gym.client.process_request import Command, RunKwargs
    from coding_gym.client.processes import Processes, ProcessResult
    from coding_gym.client.session import Session

__all__ = ["SessionAccess"]


class SessionAccess:
    """Access to the session of an environment beside its steps."""

    _episode: EpisodeState
    _session: Session | None
    _failure: str | None
    _exclusive_use: ExclusiveUse

    def windows(self) -> list[Window]:
        """Return the visible windows, the lowest first.

        Raises:
            ConfigurationError: If there is no screen.
            gymnasium.error.ResetNeeded: If ``reset`` was not called before.
            TransportError: If the session is lost.
        """
        return self._request_screen(WINDOWS_ONLY).windows

    def capture(self, region: Region = None) -> NDArray[np.uint8]:
        """Return the current screen: uint8, shape (height, width, 3).

        Args:
            region: A rectangle, as ``Rectangle`` or (x, y, width, height), black outside of the screen; or a window, as
                ``Window`` or its id; the whole screen if None.

        Raises:
            ConfigurationError: If there is no screen, or the region is invalid.
            ProtocolError: If the window does not exist.
            gymnasium.error.ResetNeeded: If ``reset`` was not called before.
            TransportError: If the session is lost.
        """
        return decode_pixels(self._request_screen(screen_request(region)).screenshot)

    def widgets(self) -> list[Widget]:
        """Return the visible widgets of graphical programs, in tree order: a parent precedes its children.

        Tk, Qt and GTK report their widgets if they run in the interpreter itself. Windows of other programs are single widgets.
        A program that is busy for more than two seconds reports none.

        Raises:
            ConfigurationError: If there is no screen.
            gymnasium.error.ResetNeeded: If ``reset`` was not called before.
            TransportError: If the session is lost.
        """
        return self._request_screen(WIDGETS_ONLY).widgets

    def marked_screen(self) -> MarkedScreen:
        """Return the current screen with numbered boxes around the widgets that can be used; see ``mark_widgets``.

        Raises:
            ConfigurationError: If there is no screen.
            gymnasium.error.ResetNeeded: If ``reset`` was not called before.
            TransportError: If the session is lost.
        """
        screen = self._request_screen(WIDGETS_AND_SCREEN)
        return mark_widgets(decode_pixels(screen.screenshot), screen.widgets)

    @property
    def processes(self) -> Processes:
        """The processes that run beside the interpreter; they end with the episode.

        Raises:
            gymnasium.error.ResetNeeded: If ``reset`` was not called before.
            TransportError: If the session is lost.
        """
        return self._open_session().http.processes

    @property
    def files(self) -> Files:
        """The files of the working directory.

        Raises:
            gymnasium.error.ResetNeeded: If ``reset`` was not called before.
            TransportError: If the session is lost.
        """
        return self._open_session().http.files

    def exec(self, command: Command, **options: Unpack[RunKwargs]) -> ProcessResult:
        """Run a process to its end, beside the interpreter and in its directory; see ``Processes.run``.

        Args:
            command: A program and its arguments, or a command for the shell.
            options: ``stdin=``, ``cwd=``, ``env=``, ``timeout=``, ``user=``, ``max_output_bytes=``, ``keep=``.

        Raises:
            ConfigurationError: If an argument is invalid.
            gymnasium.error.ResetNeeded: If ``reset`` was not called before.
            TransportError: If the session is lost.
            ProtocolError: If the server refuses.
        """
        return self.processes.run(command, **options)

    def _open_session(self) -> Session:
        self._episode.check_begun()
        if self._session is None:
            raise TransportError(self._failure or "the session is gone")
        return self._session

    def _request_screen(self, options: ScreenRequestOptions) -> Screen:
        self._episode.check_screen_available()
        with self._exclusive_use:
            session = self._open_session()
            try:
                return session.request_screen(options, timeout=SCREEN_TIMEOUT)
            except TransportError as error:
                self._fail(error)
                raise

    @abstractmethod
    def _fail(self, error: Exception) -> None:
        """Give up the session because of an error."""
