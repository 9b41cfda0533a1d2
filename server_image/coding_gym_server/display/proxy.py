"""Between a session's programs and Xvfb: lets in who has the session's cookie, and holds back what would destroy a picture.

A window that is destroyed or unmapped, and a client that goes away, take what was drawn with them. The proxy reads the
requests on their way (X11 protocol, "Request Format" and appendix B) and lets those through only after ``before_loss`` has had
the chance to copy the screen. It also has what would reach beyond the client's own windows do nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import hmac
import selectors
import socket
import struct
import sys
import termios
import time
from collections.abc import Callable

__all__ = ["COOKIE_NAME", "Proxy"]

COOKIE_NAME = b"MIT-MAGIC-COOKIE-1"

_READ_BYTES = 262_144
_MAX_BUFFERED = 1 << 20
"""The most bytes that wait for a reader before no more are taken for it."""

_MAX_CLIENTS = 128
_SETUP = struct.Struct("<BxHHHHxx")
_MAX_SETUP_BYTES = 1024
_LITTLE, _BIG = 0x6C, 0x42
_REFUSAL = b"Authorization required"

_LOSSES = frozenset((4, 5, 10, 11))
"""DestroyWindow, DestroySubwindows, UnmapWindow, UnmapSubwindows."""

_MAP_WINDOW = 8
_DRAWING = frozenset((_MAP_WINDOW, *range(61, 78)))
"""ClearArea to ImageText16, beside the first."""

_LOSSES_A_TURN = 8
"""Each takes a millisecond, if there is something to be lost: others want to be served, too."""

_NO_OPERATION = 127
_NEUTRALISED = frozenset((36, 109, 111, 112, 113))
"""GrabServer, which would stop everybody else; ChangeHosts and SetAccessControl, which would let anybody in; SetCloseDownMode,
by which windows outlive their program; KillClient, which may hit our own connection."""

_FLUSHED_WITHIN = 0.5
_CONNECTED_WITHIN = 1.0
_CREDENTIALS = struct.Struct("3i")


class Proxy:
    """Serves a listening socket.

    Args:
        selector: Where it registers its sockets; the data of each is what to call when it is ready.
        listener: The socket that clients connect to.
        server: The address of Xvfb's socket.
        cookie: What clients must present.
        server_cookie: What Xvfb wants.
        before_loss: Called before drawn pixels may vanish.

    Attributes:
        big_requests: The major opcode of the extension BIG-REQUESTS.
        neutralised: Major and minor opcodes of extensions' requests that are to do nothing, of those without a reply.
        drawing: Major opcodes of extensions that draw, and by which of their requests; by all of them if None.
        has_drawn: Whether something has been drawn since somebody set this to False.
        has_to_lose: Whether something has been drawn since pixels may have vanished last: only the first of a burst of losses
            finds them complete, for toolkits destroy children first.
        is_mapping: Whether a window has been shown, since somebody set this to False.
        messages: How often something was passed on, in whatever direction.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        listener: socket.socket,
        server: str,
        *,
        cookie: bytes,
        server_cookie: bytes,
        before_loss: Callable[[], None],
    ) -> None:
        self.selector = selector
        self.server = server
        self.cookie = cookie
        self.server_cookie = server_cookie
        self.drawing: dict[int, frozenset[int] | None] = {}
        self.big_requests = 0
        self.neutralised: frozenset[tuple[int, int]] = frozenset()
        self.has_drawn = False
        self.is_mapping = False
        self.messages = 0
        self.has_to_lose = False
        self._before_loss = before_loss
        self._listener = listener
        self._clients: set[_Client] = set()
        self._waiting: set[_Client] = set()
        listener.setblocking(False)
        selector.register(listener, selectors.EVENT_READ, self._accept)

    @property
    def pids(self) -> set[int]:
        """The processes that are connected."""
        return {client.pid for client in self._clients}

    def has_unread(self) -> bool:
        """Say whether a client has not read yet all that it has been sent."""
        return any(client.has_unread() for client in self._clients)

    def note_drawing(self, opcode: int) -> None:
        self.has_drawn = True
        self.is_mapping |= opcode == _MAP_WINDOW
        self.has_to_lose = True

    def lose(self) -> None:
        """Pixels may vanish."""
        self.has_to_lose = False
        self._before_loss()

    @property
    def has_work(self) -> bool:
        """Whether requests have been read that wait for their turn."""
        return bool(self._waiting)

    def go_on(self) -> None:
        """Give each client that has requests waiting its turn."""
        waiting, self._waiting = self._waiting, set()
        for client in waiting:
            client.go_on()

    def defer(self, client: _Client) -> None:
        self._waiting.add(client)

    def forget(self, client: _Client) -> None:
        self._clients.discard(client)
        self._waiting.discard(client)

    def _accept(self, _: int) -> None:
        with contextlib.suppress(OSError):
            connection, _address = self._listener.accept()
            if len(self._clients) >= _MAX_CLIENTS:
                connection.close()
                return
            self._clients.add(_Client(self, connection))


class _Client:
    """One connection and its counterpart at Xvfb.

    Args:
        proxy: Whose it is.
        connection: To the program.
    """

    def __init__(self, proxy: Proxy, connection: socket.socket) -> None:
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        self.pid: int = _CREDENTIALS.unpack(credentials)[0]
        self._proxy = proxy
        self._down = _Stream(proxy.selector, connection, self._on_down)
        self._up: _Stream | None = None
        self._partial = bytearray()
        self._skip = 0
        self._order = "<"
        self._has_big_requests = False
        self._is_deferred = False
        self._down.watch(reading=True)

    def has_unread(self) -> bool:
        return self._up is not None and self._down.has_unread()

    def go_on(self) -> None:
        """Pass on what waits for its turn."""
        if self._up is not None and not self._up.is_closed:
            self._forward()
            self._update()

    def _on_down(self, events: int) -> None:
        """Take what the program sends."""
        if events & selectors.EVENT_READ:
            data = self._down.read()
            if data is None:
                self._close()
                return
            self._proxy.messages += 1
            self._partial += data
            if self._up is None:
                self._set_up()
            if self._up is not None:
                self._forward()
        self._update()

    def _on_up(self, events: int) -> None:
        """Pass on what Xvfb sends."""
        if events & selectors.EVENT_READ and self._up is not None:
            data = self._up.read()
            if data is None:
                self._close()
                return
            self._proxy.messages += 1
            self._down.write(data)
        self._update()

    def _update(self) -> None:
        if self._up is None:
            self._down.watch(reading=not self._down.is_closed)
            return
        if self._up.is_closed or self._down.is_closed:
            self._close()
            return
        self._down.watch(reading=not self._up.is_full and not self._is_deferred)
        self._up.watch(reading=not self._down.is_full)

    def _set_up(self) -> None:
        """Exchange the session's cookie, once it is there, for Xvfb's."""
        head = self._partial
        if len(head) < _SETUP.size:
            return
        if head[0] not in (_LITTLE, _BIG):
            self._close()
            return
        self._order = "<" if head[0] == _LITTLE else ">"
        major, minor, name_size, data_size = struct.unpack_from(f"{self._order}xxHHHH", head)
        name_end = _SETUP.size + name_size
        data_start = _SETUP.size + _padded(name_size)
        end = data_start + _padded(data_size)
        if end > _MAX_SETUP_BYTES:
            self._close()
            return
        if len(head) < end:
            return
        name, data = bytes(head[_SETUP.size : name_end]), bytes(head[data_start : data_start + data_size])
        if name != COOKIE_NAME or not hmac.compare_digest(data, self._proxy.cookie):
            self._refuse()
            return
        upstream = socket.socket(socket.AF_UNIX)
        upstream.settimeout(_CONNECTED_WITHIN)
        try:
            upstream.connect(self._proxy.server)
        except OSError:
            upstream.close()
            self._close()
            return
        self._up = _Stream(self._proxy.selector, upstream, self._on_up)
        cookie = self._proxy.server_cookie
        setup = struct.pack(f"{self._order}BxHHHHxx", head[0], major, minor, len(COOKIE_NAME), len(cookie))
        self._up.write(setup + COOKIE_NAME + b"\0" * (-len(COOKIE_NAME) % 4) + cookie + b"\0" * (-len(cookie) % 4))
        del head[:end]

    def _refuse(self) -> None:
        reason = _REFUSAL + b"\n"
        padding = b"\0" * (-len(reason) % 4)
        answer = struct.pack(f"{self._order}BBHHH", 0, len(reason), 11, 0, (len(reason) + len(padding)) // 4)
        self._down.write(answer + reason + padding)
        self._close()

    def _forward(self) -> None:
        """Pass on the requests that are there, complete or not; all but the head of one that has begun."""
        assert self._up is not None
        buffer, position, start = self._partial, 0, 0
        size = len(buffer)
        drawing, proxy = self._proxy.drawing, self._proxy
        head, length = struct.Struct(f"{self._order}BBH").unpack_from, struct.Struct(f"{self._order}I").unpack_from
        losses = 0
        self._is_deferred = False
        if self._skip:
            position = min(self._skip, size)
            self._skip -= position
        while size - position >= 4:
            opcode, minor, words = head(buffer, position)
            if words == 0 and self._has_big_requests:
                if size - position < 8:
                    break
                words = max(length(buffer, position + 4)[0], 2)
            if opcode in _DRAWING or (opcode in drawing and ((which := drawing[opcode]) is None or minor in which)):
                proxy.note_drawing(opcode)
            elif opcode in _LOSSES:
                if losses == _LOSSES_A_TURN:
                    self._is_deferred = True
                    self._proxy.defer(self)
                    break
                losses += 1
                self._up.write(bytes(buffer[start:position]))
                start = position
                self._lose()
            elif opcode in _NEUTRALISED or (opcode, minor) in proxy.neutralised:
                buffer[position] = _NO_OPERATION
            elif (opcode, minor, words) == (proxy.big_requests, 0, 1):
                self._has_big_requests = True
            end = position + max(words, 1) * 4
            if end > size:
                self._skip = end - size
                position = size
                break
            position = end
        self._up.write(bytes(buffer[start:position]))
        del buffer[:position]

    def _lose(self) -> None:
        if self._proxy.has_to_lose and self._up is not None and self._up.flush():
            self._proxy.lose()

    def _close(self) -> None:
        """End both connections: what the client drew vanishes with it."""
        self._lose()
        self._down.close()
        if self._up is not None:
            self._up.close()
        self._proxy.forget(self)


class _Stream:
    """A socket that is read and written without waiting.

    Args:
        selector: Where to register it.
        connection: The socket.
        on_ready: Called with the events.
    """

    def __init__(self, selector: selectors.BaseSelector, connection: socket.socket, on_ready: Callable[[int], None]) -> None:
        self.socket = connection
        self._selector = selector
        self._on_ready = on_ready
        self._unsent = bytearray()
        self._events = 0
        connection.setblocking(False)

    @property
    def is_closed(self) -> bool:
        return self.socket.fileno() < 0

    @property
    def is_full(self) -> bool:
        return len(self._unsent) > _MAX_BUFFERED

    def has_unread(self) -> bool:
        """Say whether the other end has not read yet all that it has been sent."""
        return bool(self._unsent) or unread_bytes(self.socket) > 0

    def watch(self, *, reading: bool) -> None:
        """Be told when there is something to read, if wanted, and when there is room for what is unsent."""
        if self.is_closed:
            return
        if self._unsent:
            self._send()
        events = (selectors.EVENT_READ if reading else 0) | (selectors.EVENT_WRITE if self._unsent else 0)
        if events == self._events:
            return
        if not self._events:
            self._selector.register(self.socket, events, self._on_ready)
        elif events:
            self._selector.modify(self.socket, events, self._on_ready)
        else:
            self._selector.unregister(self.socket)
        self._events = events

    def read(self) -> bytes | None:
        """Return what is there; None at the end."""
        try:
            return self.socket.recv(_READ_BYTES) or None
        except BlockingIOError:
            return b""
        except OSError:
            return None

    def write(self, data: bytes) -> None:
        if data and not self.is_closed:
            self._unsent += data
            self._send()

    def flush(self) -> bool:
        """Send all, and wait until the other end has read it; says whether it has."""
        deadline = time.monotonic() + _FLUSHED_WITHIN
        while not self.is_closed and self.has_unread():
            if time.monotonic() > deadline:
                return False
            self._send()
            time.sleep(0)
        return not self.is_closed

    def close(self) -> None:
        if not self.is_closed:
            if self._events:
                self._selector.unregister(self.socket)
            self.socket.close()

    def _send(self) -> None:
        try:
            while self._unsent:
                del self._unsent[: self.socket.send(self._unsent)]
        except BlockingIOError:
            pass
        except OSError:
            # The next read says that it is gone.
            self._unsent.clear()


def unread_bytes(connection: socket.socket) -> int:
    """Return how much the other end of a socket has not read yet, in bytes of the kernel's memory (see unix(7), SIOCOUTQ)."""
    return int.from_bytes(fcntl.ioctl(connection, termios.TIOCOUTQ, bytes(4)), sys.byteorder)


def _padded(size: int) -> int:
    return size + -size % 4
