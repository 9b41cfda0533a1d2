"""The display process: what a session's screen is, from the first program that connects until the session ends.

It is forked from the zygote, has one thread and a Landlock domain of its own, and starts Xvfb. What hostile programs send goes
through it, and through Xvfb, and not through the server.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import msgspec
from Xlib.error import XError

from coding_gym_server.display.desktop import Desktop, WindowNotFoundError
from coding_gym_server.display.framebuffer import Framebuffer, Snapshot
from coding_gym_server.display.hands import Hands, UnknownKeyError
from coding_gym_server.display.messages import (
    Closed,
    CloseWindows,
    DisplayConfig,
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
from coding_gym_server.display.proxy import Proxy
from coding_gym_server.display.recording import Recording
from coding_gym_server.display.rest import Rest
from coding_gym_server.display.settling import Stillness
from coding_gym_server.display.window_manager import start_window_manager
from coding_gym_server.display.xvfb import Xvfb
from coding_gym_server.isolation import oom
from coding_gym_server.isolation.confinement import Confinement
from coding_gym_server.protocol import Capture, InputEvent, Rectangle
from coding_gym_server.workers.channel import Channel

__all__ = ["DisplayProcess", "display_requests"]

_LOOK_SECONDS = 0.005
_LOOK_FOR_WINDOWS_SECONDS = 0.02
_LASTING_SECONDS = 0.25
_RENDER_DRAWING = frozenset((8, *range(10, 14), *range(23, 27)))
_ALL = None
_DRAWING_EXTENSIONS = {"RENDER": _RENDER_DRAWING, "DOUBLE-BUFFER": _ALL, "GLX": _ALL, "Present": _ALL}
_SET_SCREEN_SIZE = 7
_RESOURCES = "*insertOffTime: 0\n"
"""For Tk, see options(n) and xrdb(1)."""
_LOST = (XError, OSError, RuntimeError)

_log = logging.getLogger(__name__)

display_requests = msgspec.msgpack.Decoder(ToDisplay)


class DisplayProcess:
    """Serves one display.

    Args:
        channel: The server's requests.
        listener: Where the session's programs connect.
        config: What the display is to be.
        confinement: What sessions are confined to.
    """

    def __init__(
        self, channel: Channel[ToDisplay], listener: socket.socket, config: DisplayConfig, confinement: Confinement
    ) -> None:
        self._channel = channel
        self._listener = listener
        self._config = config
        self._confinement = confinement
        self._directory = Path(config.directory)
        self._selector = selectors.DefaultSelector()
        self._watch: Watch | None = None
        self._take: Take | None = None
        self._take_until = 0.0
        self._last_picture: Snapshot | None = None
        self._recording: Recording | None = None
        self._told_idle = False
        self._told_lasting = False
        self._messages = self._messages_before = 0
        self._seen_since: float | None = None
        self._seen_next = 0.0
        self._work: Iterator[float] | None = None
        self._work_due = 0.0

    def run(self) -> NoReturn:
        """Serve until the server is gone, then end everything that belongs to the display."""
        os.setsid()
        oom.rank_root()
        self._directory.mkdir(mode=0o700, exist_ok=True)
        self._confinement.apply_to_display(self._config.directory)
        processes: list[subprocess.Popen[bytes]] = []
        try:
            self._start(processes)
            while True:
                self._serve()
        except EOFError:
            # The server is gone.
            pass
        except _LOST as error:
            _log.warning("a display is lost: %s", error)
        except Exception:  # noqa: BLE001 - a fault of ours ends one display, and says so
            _log.exception("a display failed")
        finally:
            for process in processes:
                with contextlib.suppress(OSError):
                    process.kill()
            shutil.rmtree(self._directory, ignore_errors=True)
            os._exit(0)

    def _start(self, processes: list[subprocess.Popen[bytes]]) -> None:
        config = self._config
        xvfb = Xvfb(self._directory, width=config.width, height=config.height, opengl=config.opengl)
        processes.append(xvfb.process)
        self._xvfb_pid = xvfb.process.pid
        self._framebuffer = Framebuffer(xvfb.framebuffer)
        self._stillness = Stillness(self._framebuffer)
        self._desktop = Desktop(xvfb.name, xvfb.authority)
        if config.window_manager:
            # Before the first window, so that it is managed, too.
            processes.append(start_window_manager(xvfb, self._desktop, self._directory))
        # A cursor that blinks is a picture that changes, and a timer that never ends.
        self._desktop.connection.set_resources(_RESOURCES)
        self._hands = Hands(self._desktop, has_unread=lambda: self._proxy.has_unread())
        self._proxy = Proxy(
            self._selector,
            self._listener,
            xvfb.socket,
            cookie=config.cookie,
            server_cookie=xvfb.cookie,
            before_loss=self._keep_picture,
        )
        self._rest = Rest(self._desktop, self._proxy, self._framebuffer, self._stillness)
        find = self._desktop.connection.find_extension
        opcodes = {name: find(name) for name in (*_DRAWING_EXTENSIONS, "BIG-REQUESTS", "RANDR")}
        self._proxy.drawing = {opcodes[name]: requests for name, requests in _DRAWING_EXTENSIONS.items() if opcodes[name]}
        self._proxy.big_requests = opcodes["BIG-REQUESTS"]
        self._proxy.neutralised = frozenset({(opcodes["RANDR"], _SET_SCREEN_SIZE)})
        if config.watch is not None:
            self._begin_to_watch(config.watch)
        self._register(self._desktop, lambda _: self._desktop.process_events())
        self._register(self._channel, lambda _: self._answer_requests())

    def _register(self, file: Desktop | Channel[ToDisplay], callback: Callable[[int], None]) -> None:
        self._selector.register(file.fileno(), selectors.EVENT_READ, callback)

    def _serve(self) -> None:
        """Wait for something to do, and do it; requests of the server last, after all that programs have sent before."""
        ready = self._selector.select(self._patience())
        ready.sort(key=lambda entry: entry[0].fd == self._channel.fileno())
        for key, events in ready:
            # One before it may have closed it, and another one may have its number.
            current = self._selector.get_map().get(key.fd)
            if current is not None and current.fileobj is key.fileobj:
                key.data(events)
        self._proxy.go_on()
        if self._work is not None and time.monotonic() >= self._work_due:
            self._go_on()
        if self._is_watching:
            self._look()

    @property
    def _is_watching(self) -> bool:
        """Whether somebody wants to know what programs do; not while hands are at work, but for a video."""
        if self._work is not None and self._recording is None:
            return False
        return self._watch is not None or self._take is not None

    def _patience(self) -> float | None:
        if self._proxy.has_work:
            return 0.0
        until_work = None if self._work is None else max(self._work_due - time.monotonic(), 0)
        if not self._is_watching:
            return until_work
        return _LOOK_SECONDS if until_work is None else min(until_work, _LOOK_SECONDS)

    def _look(self) -> None:
        now = time.monotonic()
        if self._proxy.is_mapping:
            # What is in the window comes later.
            self._stillness.restart()
        changed = self._stillness.look(self._programs(), is_talking=self._proxy.messages != self._messages)
        self._messages = self._proxy.messages
        self._proxy.is_mapping = False
        if self._recording is not None:
            self._recording.look(now, has_changed=changed)
        if changed:
            # They have gone on by themselves.
            self._forget_rest()
        if self._take is not None:
            if self._is_complete(self._take, now):
                self._answer_take(self._take)
        elif not self._told_idle and self._is_out_of_patience(now):
            self._tell_idle(is_lasting=False)
        elif self._wants_to_know_rest() and self._rest.look(now):
            if not self._told_idle:
                self._tell_idle(is_lasting=False)
            if self._stillness.quiet >= _LASTING_SECONDS:
                self._tell_idle(is_lasting=True)

    def _programs(self) -> set[int]:
        assert self._watch is not None
        return self._proxy.pids | {self._watch.worker, self._xvfb_pid}

    def _wants_to_know_rest(self) -> bool:
        return not self._told_idle or (not self._told_lasting and self._stillness.quiet >= _LASTING_SECONDS)

    def _forget_rest(self) -> None:
        self._told_idle = self._told_lasting = False
        self._rest.restart()

    def _is_out_of_patience(self, now: float) -> bool:
        """Say whether programs have had windows for as long as the server cares to wait for them to come to rest."""
        if self._watch is None or self._watch.patience is None:
            return False
        if self._seen_since is None and now >= self._seen_next:
            self._seen_next = now + _LOOK_FOR_WINDOWS_SECONDS
            self._seen_since = now if self._desktop.has_windows() else None
        return self._seen_since is not None and now >= self._seen_since + self._watch.patience

    def _tell_idle(self, *, is_lasting: bool) -> None:
        self._told_idle, self._told_lasting = True, is_lasting
        self._rest.restart()
        self._channel.send(Idle(programs=sorted(self._proxy.pids), is_lasting=is_lasting))

    def _is_complete(self, take: Take, now: float) -> bool:
        """Say whether the picture that is asked for can be taken."""
        if take.capture is Capture.NEVER or now >= self._take_until:
            return True
        if not self._proxy.has_drawn and self._proxy.messages == self._messages_before:
            # Nobody has done anything in this step.
            return True
        if self._last_picture is not None and self._framebuffer.is_blank() and not take.keep_watching:
            # It is over, and the last picture has been kept.
            return True
        return self._stillness.is_settled

    def _answer_take(self, take: Take) -> None:
        self._take = None
        snapshot, is_live = None, False
        if take.capture is not Capture.NEVER:
            if self._proxy.messages != self._messages_before:
                self._desktop.sync()
            snapshot = self._framebuffer.snapshot()
            is_live = bool(snapshot.any())
            if not is_live and self._last_picture is not None and self._proxy.has_drawn:
                snapshot = self._last_picture
        is_blank = snapshot is None or (not is_live and not snapshot.any())
        if take.capture is Capture.AUTO and is_blank and not self._desktop.has_windows():
            snapshot = None
        picture = None if snapshot is None else self._framebuffer.picture(snapshot)
        frames = self._recording.frames if self._recording is not None else []
        if not take.keep_watching:
            self._watch = self._recording = None
        elif self._recording is not None:
            frames = []
        self._channel.send(
            Scene(picture=picture, is_live=is_live, is_blank=is_blank, is_new=self._proxy.has_drawn, frames=frames)
        )

    def _keep_picture(self) -> None:
        """Copy the screen before something may vanish from it."""
        self._desktop.sync()
        snapshot = self._framebuffer.snapshot()
        if snapshot.any():
            self._last_picture = snapshot
            if self._recording is not None:
                self._recording.look(time.monotonic(), has_changed=True)

    def _answer_requests(self) -> None:
        for request, _ in self._channel.requests():
            self._answer(request)

    def _answer(self, request: ToDisplay) -> None:
        match request:
            case Watch():
                self._begin_to_watch(request)
            case Take():
                self._take = request
                self._take_until = time.monotonic() + request.settle
                if self._watch is None:
                    self._begin_to_watch(Watch(worker=os.getpid()))
                self._look()
            case Show(region):
                self._show(region)
            case CloseWindows():
                self._desktop.close_windows()
                self._channel.send(Closed())
            case Wake():
                self._desktop.wake()
            case Perform(events):
                self._perform(events)

    def _begin_to_watch(self, watch: Watch) -> None:
        self._watch = watch
        self._last_picture = None
        self._messages_before = self._proxy.messages
        self._seen_since = None
        self._seen_next = 0.0
        self._proxy.has_drawn = False
        self._forget_rest()
        self._stillness.restart()
        now = time.monotonic()
        self._recording = Recording(self._framebuffer, watch.frame_rate, began=now) if watch.frame_rate else None

    def _show(self, region: Rectangle | int | None) -> None:
        try:
            part = self._desktop.geometry(region) if isinstance(region, int) else region
        except WindowNotFoundError as error:
            self._channel.send(Refused(str(error)))
            return
        picture = self._framebuffer.picture(self._framebuffer.snapshot(), part)
        self._channel.send(Shown(picture=picture, windows=self._desktop.windows()))

    def _perform(self, events: list[InputEvent]) -> None:
        try:
            self._work = self._hands.perform(events)
        except UnknownKeyError as error:
            self._channel.send(Refused(str(error)))
            return
        self._work_due = 0.0
        self._forget_rest()
        self._go_on()

    def _go_on(self) -> None:
        """Do what hands do next, until they pause."""
        assert self._work is not None
        for pause in self._work:
            if pause > 0:
                self._work_due = time.monotonic() + pause
                return
        self._work = None
        self._desktop.sync()
        self._stillness.restart()
        # Nothing has been drawn yet, but is to be expected.
        self._proxy.has_drawn = True
        self._channel.send(Performed())
