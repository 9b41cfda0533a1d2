"""Connection to an X server with deadlines for blocking operations."""

from __future__ import annotations

import select
import time
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import xcffib
import xcffib.xtest
from xcffib.xproto import ClientMessageEvent, MappingNotifyEvent, SelectionNotifyEvent

from coding_gym_server.linux.environ import temporary_environ

__all__ = ["DisplayLostError", "DisplayTimeoutError", "X11Connection"]

_REPLY_TIMEOUT = 2.0
_MAX_MESSAGES = 1024
_MAX_EVENTS = 1024
_EVENT_BYTES = 32
_REPLY_BYTES = 32
_SENT_BY_A_CLIENT = 0x80
_KEPT_EVENTS = [_SENT_BY_A_CLIENT | event.event_number for event in (ClientMessageEvent, SelectionNotifyEvent)]


# cffi parses C types on first use, which takes milliseconds: do it once here, before display processes are forked.
for _name in ("char[]", "int *", "struct iovec[4]", "void **", "xcb_protocol_request_t *"):
    xcffib.ffi.typeof(_name)
for _name in ("error_t **", "event_t *", "reply_t *"):
    xcffib.ffi.typeof(f"xcb_generic_{_name}")
for _name in dir(xcffib.lib):
    hasattr(xcffib.lib, _name)


class DisplayTimeoutError(TimeoutError):
    """The X server has not answered in time, because it is stopped or busy with the requests of a client."""


class DisplayLostError(ConnectionError):
    """The X server is unreachable: it has exited, does not exist, or rejects the cookie."""


class X11Connection(xcffib.Connection):  # type: ignore[misc]
    """Single-threaded xcffib connection with deadlines.

    Replies and ``flush`` have a deadline, and server grabs by other clients are ignored. Errors of requests without a reply,
    such as those for a window that has just vanished, are dropped. Of the events, only the latest client messages are kept.

    Two blocking operations of libxcb have no deadline: connecting, which happens before any client is admitted, and receiving
    the remainder of a reply whose first part has arrived. The server kills a display process that does not answer.

    Attributes:
        root: Id of the root window.
        screen: Width and height in pixels.
        xtest: Requests of the XTEST extension, which injects input.
        messages: Received ``ClientMessage`` and ``SelectionNotify`` events, 32 bytes each, oldest first.
        keymap_changes: Number of changes of the keyboard mapping.
    """

    def __init__(self, display_name: str, authority: Path, *, timeout: float = _REPLY_TIMEOUT) -> None:
        """Connect to the display.

        Args:
            display_name: Value of ``DISPLAY``.
            authority: X authority file with the cookie, see ``write_authority``.
            timeout: Timeout of replies in seconds.

        Raises:
            DisplayLostError: If the display does not exist or rejects the cookie.
        """
        self._display_name = display_name
        self._timeout = timeout
        self._atoms: dict[str, int] = {}
        self.messages: deque[bytes] = deque(maxlen=_MAX_MESSAGES)
        self.keymap_changes = 0
        # Not the ``auth`` parameter, which splits the cookie at every colon.
        with temporary_environ({"XAUTHORITY": str(authority)}):
            try:
                # Without the prefix, libxcb falls back from Unix sockets to TCP.
                super().__init__(f"unix/{display_name}")
            except DisplayLostError:
                self.disconnect()
                raise
        self._readable, self._writable = select.poll(), select.poll()
        self._readable.register(self.get_file_descriptor(), select.POLLIN)
        self._writable.register(self.get_file_descriptor(), select.POLLOUT)
        screen = self.setup.roots[self.pref_screen]
        self.root: int = screen.root
        self.screen: tuple[int, int] = (screen.width_in_pixels, screen.height_in_pixels)
        self.xtest = self(xcffib.xtest.key)
        self.xtest.GrabControl(impervious=True)
        self.flush()

    def invalid(self) -> None:
        """Raise ``DisplayLostError`` if the connection is closed; called by xcffib before and after each request."""
        try:
            super().invalid()
        except xcffib.XcffibException as error:
            message = f"the display {self._display_name} is lost: {error}"
            raise DisplayLostError(message) from error

    def wait_for_reply(self, sequence: int) -> Any:
        """Return the data of a reply; called by ``reply()`` of xcffib's cookies.

        Raises:
            xcffib.Error: If the request failed.
            DisplayTimeoutError: If the reply does not arrive in time.
        """
        data, error = xcffib.ffi.new("void **"), xcffib.ffi.new("xcb_generic_error_t **")
        deadline: float | None = None
        while not xcffib.lib.xcb_poll_for_reply(self._conn, sequence, data, error):
            if deadline is None:
                self.flush()
                deadline = time.monotonic() + self._timeout
            else:
                self._wait(self._readable, deadline)
            # libxcb reads from the socket only when polled for events.
            self.process_events()
        reply, failure = (xcffib.ffi.gc(pointer[0], xcffib.c_free) for pointer in (data, error))
        self._process_error(failure)
        length = xcffib.ffi.cast("xcb_generic_reply_t *", reply).length
        return xcffib.CffiUnpacker(reply, known_max=_REPLY_BYTES + 4 * length)

    def replies(self, cookies: Iterable[xcffib.Cookie]) -> list[Any]:
        """Return the replies to pipelined requests, None for each request that failed."""
        replies: list[Any] = []
        for cookie in list(cookies):
            try:
                replies.append(cookie.reply())
            except xcffib.Error:
                replies.append(None)
        return replies

    def process_events(self) -> None:
        """Process the events that have arrived. Non-blocking."""
        self.invalid()
        for _ in range(_MAX_EVENTS):
            pointer = xcffib.lib.xcb_poll_for_event(self._conn)
            if pointer == xcffib.ffi.NULL:
                break
            event = xcffib.ffi.gc(pointer, xcffib.c_free)
            if event.response_type in _KEPT_EVENTS:
                self.messages.append(xcffib.ffi.buffer(event, _EVENT_BYTES)[:])
            elif event.response_type == MappingNotifyEvent.event_number:
                self.keymap_changes += 1
        self.invalid()

    def flush(self) -> None:
        """Send the queued requests.

        Raises:
            DisplayTimeoutError: If the server does not read them in time.
        """
        # libxcb waits for buffer space without a deadline. When a socket is writable, most of its buffer is free.
        self._wait(self._writable, time.monotonic() + self._timeout)
        super().flush()

    def sync(self) -> None:
        """Wait until the server has processed all requests."""
        self.core.GetInputFocus().reply()

    def atom(self, name: str) -> int:
        """Return the atom for a name."""
        if name not in self._atoms:
            self._atoms[name] = self.core.InternAtom(False, len(name), name).reply().atom
        return self._atoms[name]

    def find_extension(self, name: str) -> int:
        """Return the major opcode of an extension, 0 if the server lacks it."""
        reply = self.core.QueryExtension(len(name), name).reply()
        return int(reply.major_opcode) if reply.present else 0

    def _wait(self, poll: select.poll, deadline: float) -> None:
        if not poll.poll(max(0, (deadline - time.monotonic()) * 1000)):
            message = f"the display {self._display_name} has not answered for {self._timeout:g} s"
            raise DisplayTimeoutError(message)
