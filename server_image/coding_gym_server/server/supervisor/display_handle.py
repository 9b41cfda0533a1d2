"""Server-side proxy of a session's display.

The display's socket exists from the start; the display process is forked when the first program connects.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import secrets
import shutil
import signal
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, TypeVar

import msgspec

from coding_gym_server.display.availability import can_manage_windows, missing_for_screens
from coding_gym_server.display.encoding import black_picture
from coding_gym_server.display.keyboard import UnknownKeyError, check_events
from coding_gym_server.display.messages import (
    Animating,
    Captured,
    CaptureFinal,
    CaptureNow,
    Closed,
    CloseWindows,
    ClosingEnded,
    DisplayConfig,
    FromDisplay,
    Idle,
    InjectInput,
    InputInjected,
    Notice,
    Refused,
    ScreenState,
    ToDisplay,
    Wake,
    WatchScreen,
)
from coding_gym_server.ipc.async_channel import AsyncChannel, ChannelClosedError
from coding_gym_server.ipc.zygote_messages import ForkDisplay
from coding_gym_server.protocol import Capture, InputEvent, Pixels, Rectangle
from coding_gym_server.server.supervisor.display_socket import listen, socket_name
from coding_gym_server.server.supervisor.zygote_handle import ForkError, ZygoteHandle
from coding_gym_server.workspace.session_directory import X_SOCKETS, SessionDirectory

__all__ = [
    "DisplayFactory",
    "DisplayHandle",
    "DisplayListener",
    "InvalidScreenRequestError",
    "ScreenUnavailableError",
    "check_inputs",
]

_RESTART_DELAY = 0.5
_START_TIMEOUT = 10.0
_RESPONSE_TIMEOUT = 5.0
_MAX_MESSAGE_BYTES = 128 << 20
_EXHAUSTION_ERRORS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ENOSPC)
"""Transient errors of creating a socket."""

_log = logging.getLogger(__name__)
_decoder = msgspec.msgpack.Decoder(FromDisplay)
_Response = TypeVar("_Response", bound=msgspec.Struct)


class ScreenUnavailableError(ValueError):
    """A screen is required but not available."""


class InvalidScreenRequestError(ValueError):
    """A screen request is invalid, such as an unknown key or window."""


def check_inputs(events: list[InputEvent]) -> None:
    """Validate input events before they are sent to a screen.

    Args:
        events: The input events.

    Raises:
        InvalidScreenRequestError: If a key does not exist.
    """
    try:
        check_events(events)
    except UnknownKeyError as error:
        raise InvalidScreenRequestError(str(error)) from error


class DisplayListener(Protocol):
    """Observer of the display during a step."""

    def watch(self) -> WatchScreen:
        """Return the request that configures the display for the step."""

    def on_notice(self, notice: Notice) -> None:
        """Handle an unsolicited message of the display."""


@dataclass(frozen=True, kw_only=True)
class DisplayFactory:
    """Factory of the displays of a sandbox.

    Attributes:
        zygote: Forks the display processes.
        base: Parent directory of the display processes' directories.
        opengl: Whether displays offer GLX.
        available: Whether the programs that displays require are installed.
        shared: Whether sessions share a network, and so its abstract sockets.
    """

    zygote: ZygoteHandle
    base: Path
    opengl: bool
    available: bool
    shared: bool

    def open(self, directory: SessionDirectory, size: tuple[int, int], *, window_manager: bool) -> DisplayHandle:
        """Create a display that programs can connect to.

        Args:
            directory: The files of the session, whose code is not running.
            size: Width and height in pixels.
            window_manager: Whether a window manager runs on it.

        Raises:
            ScreenUnavailableError: If a required program is not installed or the socket cannot be created.
            OSError: If file descriptors, memory or disk are exhausted.
        """
        if not self.available:
            raise ScreenUnavailableError(_unavailable(f"screen=({size[0]}, {size[1]})", missing_for_screens(), "screen=None"))
        if window_manager and not can_manage_windows():
            missing = {"Blackbox": "apt install blackbox"}
            raise ScreenUnavailableError(_unavailable("window_manager=True", missing, "window_manager=False"))
        width, height = size
        config = DisplayConfig(
            directory=str(self.base),
            width=width,
            height=height,
            cookie=secrets.token_bytes(16),
            window_manager=window_manager,
            opengl=self.opengl,
        )
        try:
            listener, number = listen(directory.x_sockets, secret=self.shared)
            return DisplayHandle(self.zygote, config, listener, number, directory)
        except OSError as error:
            if error.errno in _EXHAUSTION_ERRORS:
                raise
            message = (
                f"screen=({width}, {height}) is not available: the sandbox cannot create a socket in {X_SOCKETS}: "
                f"{error.strerror}. Make the directory writable, or pass screen=None"
            )
            raise ScreenUnavailableError(message) from error


class DisplayHandle:
    """Display of one session.

    Args:
        zygote: Forks the display process.
        config: Configuration of the display processes, with the parent of their directories.
        listener: Listening socket for the session's programs. The display takes ownership of it.
        number: Number of the display.
        files: The files of the session, from which the display removes the socket.

    Attributes:
        before_close: Called with each picture that is taken before windows are closed, unless it is None.
    """

    def __init__(
        self, zygote: ZygoteHandle, config: DisplayConfig, listener: socket.socket, number: int, files: SessionDirectory
    ) -> None:
        self.before_close: Callable[[], Awaitable[None]] | None = None
        self._zygote = zygote
        self._config = config
        self._loop = asyncio.get_running_loop()
        self._channel: AsyncChannel[FromDisplay] | None = None
        self._start_task: asyncio.Task[None] | None = None
        self._restart: asyncio.TimerHandle | None = None
        self._pid: int | None = None
        self._observer: DisplayListener | None = None
        self._request_lock = asyncio.Lock()
        self._listener, self._number = listener, number
        self._files: SessionDirectory | None = files
        self._loop.add_reader(self._listener.fileno(), self._on_connection)

    @property
    def name(self) -> str:
        """Value of ``DISPLAY`` for the session's programs."""
        return f":{self._number}"

    @property
    def cookie(self) -> bytes:
        """X authority cookie that programs must present."""
        return self._config.cookie

    @property
    def is_started(self) -> bool:
        """Whether a program has ever connected."""
        return self._start_task is not None

    def black(self, region: Rectangle | None = None) -> Pixels:
        """Return a black image of the screen or of a region of it, as displayed before any program draws."""
        whole = Rectangle(0, 0, self._config.width, self._config.height)
        return black_picture((region or whole).width, (region or whole).height)

    @property
    def observer(self) -> DisplayListener | None:
        """Observer of the current step, None between steps."""
        return self._observer

    @observer.setter
    def observer(self, observer: DisplayListener | None) -> None:
        self._observer = observer
        if observer is not None and self._channel is not None:
            self._send(observer.watch())

    async def capture_final(self, capture: Capture, *, settle: float, keep_watching: bool = False) -> ScreenState | None:
        """Return the screen once it is stable, or None if no program has ever connected.

        Args:
            capture: When to include an image.
            settle: Maximum number of seconds to wait for a stable screen.
            keep_watching: Whether to continue watching for idle programs afterwards.
        """
        return await self._request(
            ScreenState, CaptureFinal(capture=capture, settle=settle, keep_watching=keep_watching), settle
        )

    async def capture_now(self, region: Rectangle | int | None) -> Captured | None:
        """Return the current screen, or None if no program has ever connected.

        Args:
            region: A rectangle or the id of a window; None for the whole screen.

        Raises:
            InvalidScreenRequestError: If the window does not exist.
        """
        return await self._request(Captured, CaptureNow(region))

    async def close_windows(self, when: Literal["unchanged", "idle", "now"]) -> bool:
        """Close all windows; return whether that has begun. The observer is notified of the end.

        Args:
            when: ``unchanged``, if the programs are idle and the screen has not changed since they were reported to be;
                ``idle``, if they are idle; or ``now``, all windows at once instead of one by one.
        """
        response = await self._request(Closed, CloseWindows(when))
        return response is not None and response.has_begun

    async def inject(self, events: list[InputEvent], *, timeout: float) -> None:
        """Inject mouse and keyboard input.

        Args:
            events: The input events.
            timeout: Maximum duration in seconds.

        Raises:
            InvalidScreenRequestError: If a key does not exist.
        """
        await self._request(InputInjected, InjectInput(events), timeout)

    def wake(self) -> None:
        """Wake toolkits that wait for events, so that Python handles pending signals."""
        self._send(Wake())

    def close(self) -> None:
        """Close the display and its connections. Idempotent."""
        self._loop.remove_reader(self._listener.fileno())
        if self._start_task is not None:
            self._start_task.cancel()
        if self._restart is not None:
            self._restart.cancel()
        self._stop()
        if self._files is not None:
            self._listener.close()
            self._files.remove_x_socket(socket_name(self._number))
            # The file system of a session is freed with the last reference.
            self._files = None

    def _on_connection(self) -> None:
        self._loop.remove_reader(self._listener.fileno())
        self._start_task = self._loop.create_task(self._start_display())

    async def _start_display(self) -> None:
        ours, theirs = socket.socketpair()
        channel: AsyncChannel[FromDisplay] = AsyncChannel(
            ours,
            on_message=self._on_message,
            on_closed=self._on_disconnected,
            max_bytes=_MAX_MESSAGE_BYTES,
            decoder=_decoder,
            unsolicited=(Idle, Animating, ClosingEnded),
        )
        try:
            with theirs:
                # Pass the request at the fork, since the step may end before a message would arrive.
                observer = self._observer
                watch = observer.watch() if observer is not None else None
                self._directory = f"{self._config.directory}/{secrets.token_hex(16)}"
                config = msgspec.structs.replace(self._config, watch=watch, directory=self._directory)
                request = ForkDisplay(msgspec.msgpack.encode(config))
                self._pid = await self._zygote.fork_display(request, theirs, self._listener)
        except (ForkError, ChannelClosedError) as error:
            channel.close()
            _log.warning("no display could be started: %s", error)
            self._schedule_restart()
            return
        except BaseException:
            channel.close()
            raise
        self._channel = channel
        if self._observer is not None and self._observer is not observer:
            self._send(self._observer.watch())

    def _schedule_restart(self) -> None:
        """Let the next program that connects start a display, after a delay. Idempotent."""
        if self._restart is None:
            self._restart = self._loop.call_later(_RESTART_DELAY, self._listen_again)

    def _listen_again(self) -> None:
        self._start_task = self._restart = None
        if self._listener.fileno() >= 0:
            self._loop.add_reader(self._listener.fileno(), self._on_connection)

    def _on_message(self, message: FromDisplay) -> None:
        if isinstance(message, Notice) and self._observer is not None:
            self._observer.on_notice(message)

    def _on_disconnected(self) -> None:
        """Stop a display that failed; the next program that connects starts another one. Idempotent."""
        self._stop()
        self._schedule_restart()

    def _stop(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._pid is not None:
            # It exits by itself, unless it hangs; the next display has another directory.
            self._loop.call_later(_RESPONSE_TIMEOUT, _kill, self._pid, self._directory)
            self._pid = None

    def _send(self, message: ToDisplay) -> None:
        if self._channel is not None:
            with contextlib.suppress(ChannelClosedError):
                self._channel.send(message)

    async def _request(self, response_type: type[_Response], request: ToDisplay, timeout: float = 0.0) -> _Response | None:
        async with self._request_lock:
            if self._start_task is not None:
                await asyncio.wait([self._start_task], timeout=_START_TIMEOUT)
            if self._channel is None:
                return None
            try:
                # Not wait_for, which in CPython 3.11 swallows a cancellation that coincides with the response.
                async with asyncio.timeout(timeout + _RESPONSE_TIMEOUT):
                    response = await self._channel.call(request)
            except (ChannelClosedError, TimeoutError):
                self._on_disconnected()
                return None
        if isinstance(response, Refused):
            raise InvalidScreenRequestError(response.reason)
        assert isinstance(response, response_type)
        return response


def _unavailable(option: str, missing: Mapping[str, str], alternative: str) -> str:
    """Return an error message that names the unavailable option, the missing programs and the remedies."""
    lacking = " and ".join(missing) or "what it requires"
    commands = f" ({'; '.join(missing.values())})" if missing else ""
    return (
        f"{option} is not available: the sandbox lacks {lacking}. Install it where the sandbox runs{commands}, "
        f"use the docker provider, or pass {alternative}"
    )


def _kill(pid: int, directory: str) -> None:
    """Kill a display process that still runs; one that has exited has removed its directory."""
    if os.path.exists(directory):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        shutil.rmtree(directory, ignore_errors=True)
