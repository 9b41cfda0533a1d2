"""Display process: provides a session's screen from the first connection of a program until the session ends.

It is forked from the zygote, is single-threaded, has a dedicated Landlock domain, and starts Xvfb. X11 requests of hostile
programs are processed by it and by Xvfb, not by the server.
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
import xcffib

from coding_gym_server.display.drawing_monitor import DrawingMonitor
from coding_gym_server.display.frame_recorder import FrameRecorder
from coding_gym_server.display.framebuffer import Framebuffer, Snapshot
from coding_gym_server.display.idle_detector import IdleDetector
from coding_gym_server.display.input_injector import InputInjector, UnknownKeyError
from coding_gym_server.display.messages import (
    Animating,
    Captured,
    CaptureFinal,
    CaptureNow,
    CloseWindows,
    DisplayConfig,
    Idle,
    InjectInput,
    InputInjected,
    Refused,
    ScreenState,
    ToDisplay,
    Wake,
    WatchScreen,
)
from coding_gym_server.display.placement import place_window
from coding_gym_server.display.proxy import Proxy
from coding_gym_server.display.stability import ScreenStability
from coding_gym_server.display.window_closer import WindowCloser
from coding_gym_server.display.window_manager import start_window_manager
from coding_gym_server.display.windows import WindowList, WindowNotFoundError
from coding_gym_server.display.xvfb import Xvfb
from coding_gym_server.ipc.channel import Channel
from coding_gym_server.isolation.profile import IsolationProfile
from coding_gym_server.linux import oom
from coding_gym_server.protocol import Capture, InputEvent, Rectangle

__all__ = ["DisplayProcess", "display_requests"]

_SAMPLE_INTERVAL = 0.005
_WINDOW_CHECK_INTERVAL = 0.02
_LASTING_SECONDS = 0.25
_ANIMATED_SECONDS = 0.5
"""Seconds since the last change within which programs that are not idle count as animating."""

_RENDER_DRAWING = frozenset((8, *range(10, 14), *range(23, 27)))
_ALL = None
_DRAWING_EXTENSIONS = {"RENDER": _RENDER_DRAWING, "DOUBLE-BUFFER": _ALL, "GLX": _ALL, "Present": _ALL}
_SET_SCREEN_SIZE = 7
_RESOURCES = "*insertOffTime: 0\n"
"""X resources for Tk, see options(n) and xrdb(1)."""
_LOST = (xcffib.XcffibException, OSError, RuntimeError)

_log = logging.getLogger(__name__)

display_requests = msgspec.msgpack.Decoder(ToDisplay)


class DisplayProcess:
    """Main loop of a display process, which serves one display.

    Args:
        channel: Channel to the server.
        listener: Listening socket for the session's programs.
        config: Configuration of the display.
        profile: Isolation profile of the sandbox.
    """

    def __init__(
        self, channel: Channel[ToDisplay], listener: socket.socket, config: DisplayConfig, profile: IsolationProfile
    ) -> None:
        self._channel = channel
        self._listener = listener
        self._config = config
        self._profile = profile
        self._directory = Path(config.directory)
        self._selector = selectors.DefaultSelector()
        self._watch: WatchScreen | None = None
        self._final_request: CaptureFinal | None = None
        self._final_deadline = 0.0
        self._last_picture: Snapshot | None = None
        self._recording: FrameRecorder | None = None
        self._idle_reported = False
        self._lasting_reported = False
        self._messages = self._messages_before = 0
        self._windows_since: float | None = None
        self._next_window_check = 0.0
        self._injection: Iterator[float] | None = None
        self._injection_due = 0.0

    def run(self) -> NoReturn:
        """Serve until the server disconnects, then kill the processes of the display, remove its directory and exit."""
        os.setsid()
        oom.Rank().close()
        self._directory.mkdir(mode=0o700, exist_ok=True)
        self._profile.apply_to_display(self._config.directory)
        processes: list[subprocess.Popen[bytes]] = []
        try:
            self._start(processes)
            while True:
                self._serve()
        except EOFError:
            # The server has disconnected.
            pass
        except _LOST as error:
            _log.warning("a display is lost: %s", error)
        except Exception:  # noqa: BLE001 - an infrastructure error ends only this display, and is logged
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
        self._stability = ScreenStability(self._framebuffer)
        self._desktop = WindowList(xvfb.name, xvfb.authority)
        if config.window_manager:
            # Started before the first window appears, so that this window is managed, too.
            processes.append(start_window_manager(xvfb, self._desktop, self._directory))
        # A blinking cursor changes the picture, and its timer never ends.
        self._desktop.set_resources(_RESOURCES)
        self._input_injector = InputInjector(self._desktop, has_unread=lambda: self._proxy.has_unread())
        self._proxy = Proxy(
            self._selector,
            self._listener,
            xvfb.socket,
            cookie=config.cookie,
            server_cookie=xvfb.cookie,
            before_erase=self._save_picture,
        )
        self._proxy.root = self._desktop.connection.root
        if not config.window_manager:
            self._proxy.before_map = lambda window: place_window(self._desktop, window)
        self._idle_detector = IdleDetector(self._desktop, self._proxy, self._framebuffer, self._stability)
        self._closer = WindowCloser(
            self._desktop, self._idle_detector, self._stability, self._channel, on_progress=self._restart_idle_detection
        )
        find = self._desktop.connection.find_extension
        opcodes = {name: find(name) for name in (*_DRAWING_EXTENSIONS, "BIG-REQUESTS", "RANDR")}
        self._proxy.drawing = {opcodes[name]: requests for name, requests in _DRAWING_EXTENSIONS.items() if opcodes[name]}
        self._proxy.big_requests = opcodes["BIG-REQUESTS"]
        self._proxy.neutralized = frozenset({(opcodes["RANDR"], _SET_SCREEN_SIZE)})
        if config.watch is not None:
            self._start_watching(config.watch)
        self._register(self._desktop, lambda _: self._desktop.process_events())
        self._register(self._channel, lambda _: self._answer_requests())

    def _register(self, file: WindowList | Channel[ToDisplay], callback: Callable[[int], None]) -> None:
        self._selector.register(file.fileno(), selectors.EVENT_READ, callback)

    def _serve(self) -> None:
        """Wait for events and handle them; requests of the server last, after all data that programs have sent before."""
        ready = self._selector.select(self._select_timeout())
        ready.sort(key=lambda entry: entry[0].fd == self._channel.fileno())
        for key, events in ready:
            # A previous callback may have closed the file, and its descriptor may have been reused.
            current = self._selector.get_map().get(key.fd)
            if current is not None and current.fileobj is key.fileobj:
                key.data(events)
        self._proxy.process_deferred()
        if self._injection is not None and time.monotonic() >= self._injection_due:
            self._continue_injection()
        if self._is_watching:
            self._sample_screen()

    @property
    def _is_watching(self) -> bool:
        """Whether the activity of programs is monitored; while input is injected, only for a video."""
        if self._injection is not None and self._recording is None:
            return False
        return self._watch is not None or self._final_request is not None

    def _select_timeout(self) -> float | None:
        if self._proxy.has_work:
            return 0.0
        until_injection = None if self._injection is None else max(self._injection_due - time.monotonic(), 0)
        if not self._is_watching:
            return until_injection
        return _SAMPLE_INTERVAL if until_injection is None else min(until_injection, _SAMPLE_INTERVAL)

    def _sample_screen(self) -> None:
        now = time.monotonic()
        is_mapping = self._proxy.is_mapping
        if is_mapping:
            # The content of a new window is drawn later.
            self._stability.restart()
        changed = self._stability.sample(self._programs(), has_traffic=self._proxy.messages != self._messages)
        self._messages = self._proxy.messages
        self._proxy.is_mapping = False
        if self._recording is not None:
            self._recording.record(now, has_changed=changed)
        if changed:
            # The programs have resumed by themselves.
            self._restart_idle_detection()
            if self._drawing.note_change(now):
                self._channel.send(Animating())
        if changed or is_mapping:
            self._closer.refuse()
        if self._final_request is not None:
            if self._is_complete(self._final_request, now):
                self._capture_final(self._final_request)
        elif self._closer.is_active:
            self._closer.advance(now)
            if not self._closer.is_active:
                # What the program shows next is something else.
                self._drawing.restart()
        elif not self._idle_reported and self._has_timed_out(now):
            if self._stability.unchanged < _ANIMATED_SECONDS:
                self._idle_reported = True
                self._channel.send(Animating())
            else:
                self._report_idle(is_lasting=False)
        elif self._must_detect_idle() and self._idle_detector.advance(now):
            if not self._idle_reported and self._desktop.raise_dialogs():
                self._restart_idle_detection()
                return
            if not self._idle_reported:
                self._report_idle(is_lasting=False)
            if self._stability.quiet >= _LASTING_SECONDS:
                self._report_idle(is_lasting=True)

    def _programs(self) -> set[int]:
        assert self._watch is not None
        return self._proxy.pids | {self._watch.worker, self._xvfb_pid}

    def _must_detect_idle(self) -> bool:
        return not self._idle_reported or (not self._lasting_reported and self._stability.quiet >= _LASTING_SECONDS)

    def _restart_idle_detection(self) -> None:
        self._idle_reported = self._lasting_reported = False
        self._idle_detector.restart()

    def _has_timed_out(self, now: float) -> bool:
        """Return whether programs have had windows for as long as the server waits for them to become idle."""
        if self._watch is None or self._watch.patience is None:
            return False
        if self._windows_since is None and now >= self._next_window_check:
            self._next_window_check = now + _WINDOW_CHECK_INTERVAL
            self._windows_since = now if self._desktop.has_windows() else None
        return self._windows_since is not None and now >= self._windows_since + self._watch.patience

    def _report_idle(self, *, is_lasting: bool) -> None:
        self._idle_reported, self._lasting_reported = True, is_lasting
        self._idle_detector.restart()
        has_windows = self._idle_detector.has_windows
        self._channel.send(Idle(programs=sorted(self._proxy.pids), is_lasting=is_lasting, has_windows=has_windows))

    def _is_complete(self, request: CaptureFinal, now: float) -> bool:
        """Return whether the requested picture can be taken."""
        if request.capture is Capture.NEVER or now >= self._final_deadline:
            return True
        if not self._proxy.has_drawn and self._proxy.messages == self._messages_before:
            # No program has used the display in this step.
            return True
        if self._last_picture is not None and self._framebuffer.is_blank() and not request.keep_watching:
            # The windows have vanished, and the last picture has been kept.
            return True
        return self._stability.is_quiet or (self._stability.is_inactive() and not self._proxy.has_unread())

    def _capture_final(self, request: CaptureFinal) -> None:
        self._final_request = None
        snapshot, is_live = None, False
        if request.capture is not Capture.NEVER:
            if self._proxy.messages != self._messages_before:
                self._desktop.sync()
            snapshot = self._framebuffer.snapshot()
            is_live = bool(snapshot.any())
            if not is_live and self._last_picture is not None and self._proxy.has_drawn:
                snapshot = self._last_picture
        is_blank = snapshot is None or (not is_live and not snapshot.any())
        if request.capture is Capture.AUTO and is_blank and not self._desktop.has_windows():
            snapshot = None
        picture = None if snapshot is None else self._framebuffer.picture(snapshot)
        frames = self._recording.frames if self._recording is not None else []
        if not request.keep_watching:
            self._watch = self._recording = None
            self._closer.cancel()
        elif self._recording is not None:
            frames = []
        self._channel.send(
            ScreenState(picture=picture, is_live=is_live, is_blank=is_blank, is_new=self._proxy.has_drawn, frames=frames)
        )

    def _save_picture(self) -> None:
        """Copy the screen before its content may vanish."""
        self._desktop.sync()
        snapshot = self._framebuffer.snapshot()
        if snapshot.any():
            self._last_picture = snapshot
            if self._recording is not None:
                self._recording.record(time.monotonic(), has_changed=True)

    def _answer_requests(self) -> None:
        for request, _ in self._channel.requests():
            self._answer(request)

    def _answer(self, request: ToDisplay) -> None:
        # Responses are in the order of the requests.
        self._closer.refuse()
        match request:
            case WatchScreen():
                self._start_watching(request)
            case CaptureFinal():
                self._final_request = request
                self._final_deadline = time.monotonic() + request.settle
                if self._watch is None:
                    self._start_watching(WatchScreen(worker=os.getpid()))
                self._sample_screen()
            case CaptureNow(region):
                self._show(region)
            case CloseWindows():
                self._closer.begin(request, is_unchanged=self._idle_reported)
            case Wake():
                self._desktop.wake()
            case InjectInput(events):
                self._perform(events)

    def _start_watching(self, watch: WatchScreen) -> None:
        self._watch = watch
        self._last_picture = None
        self._messages_before = self._proxy.messages
        self._windows_since = None
        self._next_window_check = 0.0
        self._proxy.has_drawn = False
        self._closer.cancel()
        self._drawing = DrawingMonitor(watch.max_watch)
        self._restart_idle_detection()
        self._stability.restart()
        now = time.monotonic()
        self._recording = FrameRecorder(self._framebuffer, watch.frame_rate, began=now) if watch.frame_rate else None

    def _show(self, region: Rectangle | int | None) -> None:
        try:
            part = self._desktop.geometry(region) if isinstance(region, int) else region
        except WindowNotFoundError as error:
            self._channel.send(Refused(str(error)))
            return
        picture = self._framebuffer.picture(self._framebuffer.snapshot(), part)
        self._channel.send(Captured(picture=picture, windows=self._desktop.windows()))

    def _perform(self, events: list[InputEvent]) -> None:
        try:
            self._injection = self._input_injector.perform(events)
        except UnknownKeyError as error:
            self._channel.send(Refused(str(error)))
            return
        self._injection_due = 0.0
        self._restart_idle_detection()
        self._continue_injection()

    def _continue_injection(self) -> None:
        """Perform input events until the next pause."""
        assert self._injection is not None
        for pause in self._injection:
            if pause > 0:
                self._injection_due = time.monotonic() + pause
                return
        self._injection = None
        self._desktop.sync()
        self._stability.restart()
        self._restart_idle_detection()
        # Nothing has been drawn yet, but the input probably causes programs to draw.
        self._proxy.has_drawn = True
        self._channel.send(InputInjected())
