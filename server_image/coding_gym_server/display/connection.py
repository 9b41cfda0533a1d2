"""A connection to an X server that never holds its thread up."""

from __future__ import annotations

import select
import socket
import struct
import time
from array import array
from collections import deque
from pathlib import Path
from typing import NoReturn

from Xlib import X, Xatom
from Xlib.ext import xtest
from Xlib.protocol import display as xlib
from Xlib.protocol import request

from coding_gym_server.environment import environment

__all__ = ["Connection", "DisplayNotAnsweringError", "QueryTree"]

_PATIENCE = 2.0
_RECEIVED_AT_ONCE = 16 * 1024
_MOST_MESSAGES = 1024
_EVENT_BYTES = 32
_SENT_BY_A_CLIENT = 0x80
_KEPT = (X.ClientMessage | _SENT_BY_A_CLIENT, X.SelectionNotify | _SENT_BY_A_CLIENT)


class DisplayNotAnsweringError(TimeoutError):
    """The X server did not answer in time: it is stopped, or busy with what a client asked of it."""


class QueryTree(request.QueryTree):  # type: ignore[misc]
    """``request.QueryTree`` whose ``children`` are an array of ids, however many there are.

    The protocol counts the children of a window in 16 bits, and python-xlib believes it.
    """

    def _parse_response(self, data: bytes) -> None:
        _, sequence_number, _, root, parent = struct.unpack_from("=HHLLL", data)
        children = array("I", data[32:])
        self._data = {"sequence_number": sequence_number, "root": root, "parent": parent, "children": children}


class Connection(xlib.Display):  # type: ignore[misc]
    """python-xlib's connection, for a single thread.

    Waits have an end; windows and other resources are plain ids; no client can stop this one by a grab of the server. Errors of
    requests without a reply, such as those for a window that has just vanished, are passed over; errors of the others are
    raised by their ``reply()``. Of the events only messages of clients are kept, the latest.

    Attributes:
        root: The id of the root window.
        screen: Width and height in pixels.
        xtest_opcode: The major opcode of the extension that fakes input.
        messages: The messages of clients that came, 32 bytes each, the oldest first: ``ClientMessage`` and ``SelectionNotify``.
        keymap_changes: How often the keyboard mapping has changed.
    """

    def __init__(self, display_name: str, authority: Path, *, patience: float = _PATIENCE) -> None:
        """Connect.

        Args:
            display_name: As in ``DISPLAY``.
            authority: A file that ``write_authority`` has written.
            patience: How many seconds to wait for an answer.

        Raises:
            Xlib.error.DisplayConnectionError: There is no such display, or it does not take the cookie.
            DisplayNotAnsweringError: It does not answer.
        """
        self._patience = patience
        self.resource_classes: dict[str, type] = {}
        self.data_send = self.data_recv = b""
        self.recv_packet_len = 0
        self.messages: deque[bytes] = deque(maxlen=_MOST_MESSAGES)
        self.keymap_changes = 0
        # python-xlib finds cookies by the environment alone.
        with environment({"XAUTHORITY": str(authority)}):
            try:
                # Only a Unix socket: by itself, python-xlib would also take whatever listens on the TCP port.
                super().__init__(f"unix/{display_name}")
            except Exception:
                if hasattr(self, "socket"):
                    self.socket.close()
                raise
        self.recv_buffer_size = _RECEIVED_AT_ONCE
        self.set_error_handler(lambda *_: None)
        first = self.info.roots[self.default_screen]
        self.root: int = first.root
        self.screen: tuple[int, int] = (first.width_in_pixels, first.height_in_pixels)
        self._atoms: dict[str, int] = {}
        self.xtest_opcode = self.find_extension(xtest.extname)
        xtest.GrabControl(display=self, opcode=self.xtest_opcode, impervious=True)
        self.flush()

    def atom(self, name: str) -> int:
        """Return the number of a name."""
        if name not in self._atoms:
            self._atoms[name] = request.InternAtom(display=self, name=name, only_if_exists=False).atom
        return self._atoms[name]

    def find_extension(self, name: str) -> int:
        """Return the major opcode of an extension, 0 if the server lacks it."""
        reply = request.QueryExtension(display=self, name=name)
        return int(reply.major_opcode) if reply.present else 0

    def close(self) -> None:
        """Disconnect, if it is connected still."""
        if self.socket_error is None:
            self.close_internal("client")

    def set_resources(self, resources: str) -> None:
        """Set the user's preferences, which toolkits look for on the root window (see xrdb(1))."""
        request.ChangeProperty(
            display=self,
            onerror=None,
            mode=X.PropModeReplace,
            window=self.root,
            property=Xatom.RESOURCE_MANAGER,
            type=Xatom.STRING,
            data=(8, resources.encode("latin-1")),
        )
        self.flush()

    def process_events(self) -> None:
        """Take what has come, without waiting."""
        self.check_for_error()
        self.send_recv_lock.acquire()
        self.send_and_recv(recv=True)

    def sync(self) -> None:
        """Wait until the server has done all that it was asked."""
        request.GetInputFocus(display=self)

    def send_and_recv(self, flush: bool = False, event: bool = False, request: int | None = None, recv: bool = False) -> None:
        """Send what is queued and read until what is waited for is there: python-xlib's I/O, as one thread needs it."""
        # The caller holds it for the sake of other threads, and parsing takes it, too.
        self.send_recv_lock.release()
        for queued, has_reply in self.request_queue:
            self.data_send += queued._binary
            if has_reply:
                self.sent_requests.append(queued)
        self.request_queue.clear()
        deadline = time.monotonic() + (0 if recv else self._patience)
        while not (flush and not self.data_send):
            ready = self._wait(deadline)
            if not ready:
                if recv:
                    return
                message = f"the display {self.display_name} has not answered for {self._patience:g} s"
                raise DisplayNotAnsweringError(message)
            if ready & select.POLLOUT:
                self._send()
            if ready & ~select.POLLOUT and self._receive(request):
                return
            if recv:
                return

    def parse_event_response(self, etype: int) -> None:
        """Keep an event if it is of use, by far the fewest are."""
        data = self.data_recv[: self.recv_packet_len or _EVENT_BYTES]
        self.data_recv = xlib.bytesview(self.data_recv, len(data))
        self.recv_packet_len = 0
        if etype in _KEPT:
            self.messages.append(data)
        elif etype == X.MappingNotify:
            self.keymap_changes += 1

    def _wait(self, deadline: float) -> int:
        poll = select.poll()
        poll.register(self.socket, select.POLLIN | (select.POLLOUT if self.data_send else 0))
        ready = poll.poll(max(0, (deadline - time.monotonic()) * 1000))
        return ready[0][1] if ready else 0

    def _send(self) -> None:
        try:
            sent = self.socket.send(self.data_send, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError as error:
            self._lost(error)
        self.data_send = self.data_send[sent:]
        self.data_sent_bytes += sent

    def _receive(self, serial: int | None) -> bool:
        """Read and parse; say whether the answer to the request has come."""
        try:
            data = self.socket.recv(max(self.recv_buffer_size, self.recv_packet_len - len(self.data_recv)))
        except OSError as error:
            self._lost(error)
        if not data:
            self._lost("it closed the connection")
        self.data_recv = bytes(self.data_recv) + data
        return bool(self.parse_response(serial))

    def _lost(self, reason: object) -> NoReturn:
        self.close_internal(f"the display {self.display_name}: {reason}")
        raise self.socket_error
