"""The server's end of a session's screen.

There is a socket for programs to connect to from the start, and nothing behind it until one does.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import secrets
import shutil
import signal
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from coding_gym_server.display.installed import can_manage_windows
from coding_gym_server.display.messages import (
    Closed,
    CloseWindows,
    DisplayConfig,
    FromDisplay,
    Idle,
    Perform,
    Performed,
    Refused,
    Scene,
    Show,
    Shown,
    Take,
    ToDisplay,
    Wake,
    Watch,
)
from coding_gym_server.display.pictures import black_picture
from coding_gym_server.protocol import Capture, InputEvent, Pixels, Rectangle
from coding_gym_server.workers.link import Link, LinkClosedError
from coding_gym_server.workers.messages import ForkDisplay
from coding_gym_server.workers.zygote_process import ForkError, ZygoteProcess

__all__ = ["Audience", "NoScreenError", "Screen", "ScreenRefusedError", "Screens", "check_inputs"]

_SOCKETS = Path("/tmp/.X11-unix")
_FIRST_NUMBER = 100
_NUMBERS = 2_000_000_000
_BACKLOG = 64
_AGAIN_AFTER = 0.5
_STARTED_WITHIN = 10.0
_ANSWERS_WITHIN = 5.0
_MAX_MESSAGE_BYTES = 128 << 20

_log = logging.getLogger(__name__)
_decoder = msgspec.msgpack.Decoder(FromDisplay)
_Answer = TypeVar("_Answer", bound=msgspec.Struct)


class NoScreenError(ValueError):
    """There is no screen where one is wanted."""


class ScreenRefusedError(ValueError):
    """What was asked of a screen cannot be done."""


def check_inputs(events: list[InputEvent]) -> None:
    """Raise if events cannot be performed on any screen.

    Raises:
        ScreenRefusedError: One names a key that does not exist.
    """
    # Costs tens of milliseconds, and few sessions want it.
    from coding_gym_server.display.hands import UnknownKeyError, check_events

    try:
        check_events(events)
    except UnknownKeyError as error:
        raise ScreenRefusedError(str(error)) from error


class Audience(Protocol):
    """Whoever watches a step."""

    def watch(self) -> Watch:
        """Return what to look for."""

    def attend(self, idle: Idle) -> None:
        """Hear that all programs wait for events."""


@dataclass(frozen=True, kw_only=True)
class Screens:
    """Makes the screens of a sandbox.

    Attributes:
        zygote: Forks the display processes.
        base: The directory below which each has its own.
        opengl: Whether they offer GLX.
        available: Whether there can be any.
        shared: Whether the sandbox has several sessions.
    """

    zygote: ZygoteProcess
    base: Path
    opengl: bool
    available: bool
    shared: bool

    def open(self, size: tuple[int, int], *, window_manager: bool) -> Screen:
        """Return a screen that programs can connect to.

        Args:
            size: Width and height in pixels.
            window_manager: Whether one runs on it.

        Raises:
            NoScreenError: There can be none here.
        """
        if not self.available:
            message = (
                "this sandbox has no screen: Xvfb or python-xlib is missing. Install them (apt install xvfb; "
                "pip install 'coding-gym[display]'), use the docker provider, or pass screen=None"
            )
            raise NoScreenError(message)
        if window_manager and not can_manage_windows():
            message = "this sandbox has no window manager: install Blackbox (apt install blackbox), or use the docker provider"
            raise NoScreenError(message)
        width, height = size
        config = DisplayConfig(
            directory=str(self.base / secrets.token_hex(16)),
            width=width,
            height=height,
            cookie=secrets.token_bytes(16),
            window_manager=window_manager,
            opengl=self.opengl,
        )
        try:
            return Screen(self.zygote, config, secret=self.shared)
        except OSError as error:
            message = f"this sandbox has no screen: no socket can be made in {_SOCKETS}: {error.strerror}"
            raise NoScreenError(message) from error


class Screen:
    """One session's screen.

    Args:
        zygote: Forks its display process.
        config: What it is to be.
        secret: Whether other sessions must not know its number.

    Raises:
        OSError: Its socket cannot be made.
    """

    def __init__(self, zygote: ZygoteProcess, config: DisplayConfig, *, secret: bool) -> None:
        self._zygote = zygote
        self._config = config
        self._loop = asyncio.get_running_loop()
        self._link: Link[FromDisplay] | None = None
        self._start: asyncio.Task[None] | None = None
        self._pid: int | None = None
        self._audience: Audience | None = None
        self._asking = asyncio.Lock()
        self._listener, self._path = _listen(secret=secret)
        self._loop.add_reader(self._listener.fileno(), self._on_connection)

    @property
    def name(self) -> str:
        """What ``DISPLAY`` is for its programs."""
        return f":{self._path.name[1:]}"

    @property
    def cookie(self) -> bytes:
        """What its programs must present."""
        return self._config.cookie

    @property
    def is_started(self) -> bool:
        """Whether a program has ever connected."""
        return self._start is not None

    def black(self, region: Rectangle | None = None) -> Pixels:
        """Return what it, or a part of it, shows as long as nobody draws on it."""
        whole = Rectangle(0, 0, self._config.width, self._config.height)
        return black_picture((region or whole).width, (region or whole).height)

    @property
    def audience(self) -> Audience | None:
        """Who watches the step that runs; None between two steps."""
        return self._audience

    @audience.setter
    def audience(self, audience: Audience | None) -> None:
        self._audience = audience
        if audience is not None and self._link is not None:
            self._send(audience.watch())

    async def take(self, capture: Capture, *, settle: float, keep_watching: bool = False) -> Scene | None:
        """Return what there is to be seen as soon as it has settled; None if no program has ever connected."""
        return await self._ask(Scene, Take(capture=capture, settle=settle, keep_watching=keep_watching), settle)

    async def show(self, region: Rectangle | int | None) -> Shown | None:
        """Return the screen as it is; None if no program has ever connected.

        Raises:
            ScreenRefusedError: There is no such window.
        """
        return await self._ask(Shown, Show(region))

    async def close_windows(self) -> None:
        """Ask all windows to close."""
        await self._ask(Closed, CloseWindows())

    async def perform(self, events: list[InputEvent], *, within: float) -> None:
        """Do what hands do.

        Raises:
            ScreenRefusedError: There is no such key.
        """
        await self._ask(Performed, Perform(events), within)

    def wake(self) -> None:
        """Have toolkits that wait for events look whether a signal has come."""
        self._send(Wake())

    def close(self) -> None:
        """End the display and everything on it; harmless when closed already."""
        self._loop.remove_reader(self._listener.fileno())
        if self._start is not None:
            self._start.cancel()
        self._stop()
        if self._listener.fileno() >= 0:
            self._listener.close()
            with contextlib.suppress(OSError):
                self._path.unlink()
                # If it was the last: then nothing is left here to be cleaned up.
                self._path.parent.rmdir()

    def _on_connection(self) -> None:
        self._loop.remove_reader(self._listener.fileno())
        self._start = self._loop.create_task(self._start_display())

    async def _start_display(self) -> None:
        ours, theirs = socket.socketpair()
        link: Link[FromDisplay] = Link(
            ours,
            on_message=self._on_message,
            on_closed=self._on_lost,
            max_bytes=_MAX_MESSAGE_BYTES,
            decoder=_decoder,
            unasked=Idle,
        )
        try:
            with theirs:
                # It may be over before the display process hears of it from here.
                audience = self._audience
                watch = audience.watch() if audience is not None else None
                request = ForkDisplay(msgspec.structs.replace(self._config, watch=watch))
                self._pid = await self._zygote.fork_display(request, theirs, self._listener)
        except (ForkError, LinkClosedError) as error:
            link.close()
            _log.warning("no display could be started: %s", error)
            self._loop.call_later(_AGAIN_AFTER, self._listen_again)
            return
        except BaseException:
            link.close()
            raise
        self._link = link
        if self._audience is not None and self._audience is not audience:
            self._send(self._audience.watch())

    def _listen_again(self) -> None:
        self._start = None
        if self._listener.fileno() >= 0:
            self._loop.add_reader(self._listener.fileno(), self._on_connection)

    def _on_message(self, message: FromDisplay) -> None:
        if isinstance(message, Idle) and self._audience is not None:
            self._audience.attend(message)

    def _on_lost(self) -> None:
        """Whatever a program did to it: the next that connects finds another one."""
        self._stop()
        self._loop.call_later(_AGAIN_AFTER, self._listen_again)

    def _stop(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None
        if self._pid is not None:
            # It ends by itself, unless it hangs.
            self._loop.call_later(_ANSWERS_WITHIN, _kill, self._pid, self._config.directory)
            self._pid = None

    def _send(self, message: ToDisplay) -> None:
        if self._link is not None:
            with contextlib.suppress(LinkClosedError):
                self._link.send(message)

    async def _ask(self, kind: type[_Answer], request: ToDisplay, patience: float = 0.0) -> _Answer | None:
        async with self._asking:
            if self._start is not None:
                await asyncio.wait([self._start], timeout=_STARTED_WITHIN)
            if self._link is None:
                return None
            try:
                # Not wait_for: in CPython 3.11 it swallows a cancellation that comes together with the answer.
                async with asyncio.timeout(patience + _ANSWERS_WITHIN):
                    answer = await self._link.call(request)
            except (LinkClosedError, TimeoutError):
                self._on_lost()
                return None
        if isinstance(answer, Refused):
            raise ScreenRefusedError(answer.reason)
        assert isinstance(answer, kind)
        return answer


def _listen(*, secret: bool) -> tuple[socket.socket, Path]:
    """Return a socket with a display number that nobody else has, and its path.

    Args:
        secret: Whether others must not know the number: Landlock does not keep them from changing the modes of what they know.
    """
    with contextlib.suppress(FileExistsError):
        _SOCKETS.mkdir(mode=0o1777)
        _SOCKETS.chmod(0o1777)
    listener = socket.socket(socket.AF_UNIX)
    # The kernel tells everybody the name that a socket was bound to, but not what it was renamed to.
    bound = _SOCKETS / secrets.token_hex(8)
    try:
        listener.bind(str(bound))
        bound.chmod(0o777)
        listener.listen(_BACKLOG)
        listener.setblocking(False)
        numbers = iter(lambda: secrets.randbelow(_NUMBERS), None) if secret else itertools.count()
        path = next(path for number in numbers if not (path := _SOCKETS / f"X{_FIRST_NUMBER + number}").exists())
        bound.rename(path)
    except BaseException:
        listener.close()
        bound.unlink(missing_ok=True)
        raise
    return listener, path


def _kill(pid: int, directory: str) -> None:
    """End a display process that has not ended; one that has, has removed its directory."""
    if os.path.exists(directory):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        shutil.rmtree(directory, ignore_errors=True)
