"""X11 proxy between a session's programs and Xvfb: authenticates clients, and delays requests that would destroy a picture.

When a window is destroyed or unmapped, or a client disconnects, the drawn content is lost. The proxy parses the requests in
transit (X11 protocol, "Request Format" and appendix B) and forwards such requests only after ``before_erase`` has had the
chance to copy the screen. It also replaces requests that would affect other clients by no-operations.
"""

from __future__ import annotations

import contextlib
import hmac
import selectors
import socket
import struct
from collections.abc import Callable

from coding_gym_server.display.stream import Stream

__all__ = ["COOKIE_NAME", "Proxy"]

COOKIE_NAME = b"MIT-MAGIC-COOKIE-1"

_MAX_CLIENTS = 128
_SETUP = struct.Struct("<BxHHHHxx")
_MAX_SETUP_BYTES = 1024
_LITTLE_ENDIAN, _BIG_ENDIAN = 0x6C, 0x42
_REFUSAL = b"Authorization required"

_ERASING = frozenset((4, 5, 10, 11))
"""DestroyWindow, DestroySubwindows, UnmapWindow, UnmapSubwindows."""

_CREATE_WINDOW, _CREATE_WINDOW_WORDS = 1, 8
_MAX_UNMAPPED = 256
"""Maximum number of a client's top-level windows that are remembered until they are mapped."""

_MAP_WINDOW, _MAP_WINDOW_WORDS = 8, 2
_WINDOW_END, _PARENT_END = 8, 12
"""Number of bytes of these requests up to the window, and up to its parent."""

_DRAWING = frozenset((_MAP_WINDOW, *range(61, 78)))
"""ClearArea to ImageText16, in addition to MapWindow."""

_MAX_SLOW_PER_TURN = 8
"""Maximum number of requests per turn that erase, or map a new window: each takes a millisecond, and other clients wait."""

_NO_OPERATION = 127
_NEUTRALIZED = frozenset((36, 109, 111, 112, 113))
"""GrabServer, which would block all other clients; ChangeHosts and SetAccessControl, which would disable access control;
SetCloseDownMode, by which windows outlive their program; KillClient, which may close coding_gym's connection."""

_CONNECT_TIMEOUT = 1.0
_CREDENTIALS = struct.Struct("3i")


class Proxy:
    """X11 proxy on a listening socket.

    Args:
        selector: Selector for the sockets; the data of each key is the callback for its events.
        listener: Listening socket for clients.
        server: Address of Xvfb's socket.
        cookie: X authority cookie that clients must present.
        server_cookie: X authority cookie that Xvfb requires.
        before_erase: Called before drawn pixels may vanish.

    Attributes:
        root: Id of the root window.
        before_map: Called with the id of a top-level window before it is mapped for the first time, unless it is None.
        big_requests: Major opcode of the BIG-REQUESTS extension.
        neutralized: Major and minor opcodes of extension requests to replace by no-operations; only requests without a reply.
        drawing: Minor opcodes of the requests that draw, by the major opcode of their extension; None for all requests.
        has_drawn: Whether something has been drawn since the display process reset this to False.
        has_unsaved_pixels: Whether something has been drawn since pixels may last have vanished. Only the first of a burst of
            erasing requests finds a complete picture, because toolkits destroy child windows first.
        is_mapping: Whether a window has been mapped since the display process reset this to False.
        messages: Number of reads of data from programs and from Xvfb.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        listener: socket.socket,
        server: str,
        *,
        cookie: bytes,
        server_cookie: bytes,
        before_erase: Callable[[], None],
    ) -> None:
        self.selector = selector
        self.server = server
        self.cookie = cookie
        self.server_cookie = server_cookie
        self.root = 0
        self.before_map: Callable[[int], None] | None = None
        self.drawing: dict[int, frozenset[int] | None] = {}
        self.big_requests = 0
        self.neutralized: frozenset[tuple[int, int]] = frozenset()
        self.has_drawn = False
        self.is_mapping = False
        self.messages = 0
        self.has_unsaved_pixels = False
        self._before_erase = before_erase
        self._listener = listener
        self._clients: set[_Client] = set()
        self._waiting: set[_Client] = set()
        listener.setblocking(False)
        selector.register(listener, selectors.EVENT_READ, self._accept)

    @property
    def pids(self) -> set[int]:
        """Pids of the connected processes."""
        return {client.pid for client in self._clients}

    def has_unread(self) -> bool:
        """Return whether a client has not yet read all data sent to it."""
        return any(client.has_unread() for client in self._clients)

    def note_drawing(self, opcode: int) -> None:
        self.has_drawn = True
        self.is_mapping |= opcode == _MAP_WINDOW
        self.has_unsaved_pixels = True

    def report_erase(self) -> None:
        """Call ``before_erase``, because pixels may vanish."""
        self.has_unsaved_pixels = False
        self._before_erase()

    @property
    def has_work(self) -> bool:
        """Whether clients have deferred requests."""
        return bool(self._waiting)

    def process_deferred(self) -> None:
        """Process the deferred requests of each client, for one turn."""
        waiting, self._waiting = self._waiting, set()
        for client in waiting:
            client.process_deferred()

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
    """Connection of a client and its counterpart to Xvfb.

    Args:
        proxy: Proxy that accepted the connection.
        connection: Socket to the program.
    """

    def __init__(self, proxy: Proxy, connection: socket.socket) -> None:
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        self.pid: int = _CREDENTIALS.unpack(credentials)[0]
        self._proxy = proxy
        self._down = Stream(proxy.selector, connection, self._on_down)
        self._up: Stream | None = None
        self._partial = bytearray()
        self._skip = 0
        self._byte_order = "<"
        self._has_big_requests = False
        self._is_deferred = False
        self._unmapped: set[int] = set()
        self._down.watch(reading=True)

    def has_unread(self) -> bool:
        return self._up is not None and self._down.has_unread()

    def process_deferred(self) -> None:
        """Forward deferred requests."""
        if self._up is not None and not self._up.is_closed:
            self._forward()
            self._update()

    def _on_down(self, events: int) -> None:
        """Handle data from the program."""
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
        """Forward data from Xvfb."""
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
        """Replace the session's cookie by Xvfb's once the setup request is complete."""
        head = self._partial
        if len(head) < _SETUP.size:
            return
        if head[0] not in (_LITTLE_ENDIAN, _BIG_ENDIAN):
            self._close()
            return
        self._byte_order = "<" if head[0] == _LITTLE_ENDIAN else ">"
        major, minor, name_size, data_size = struct.unpack_from(f"{self._byte_order}xxHHHH", head)
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
        upstream.settimeout(_CONNECT_TIMEOUT)
        try:
            upstream.connect(self._proxy.server)
        except OSError:
            upstream.close()
            self._close()
            return
        self._up = Stream(self._proxy.selector, upstream, self._on_up)
        cookie = self._proxy.server_cookie
        setup = struct.pack(f"{self._byte_order}BxHHHHxx", head[0], major, minor, len(COOKIE_NAME), len(cookie))
        self._up.write(setup + COOKIE_NAME + b"\0" * (-len(COOKIE_NAME) % 4) + cookie + b"\0" * (-len(cookie) % 4))
        del head[:end]

    def _refuse(self) -> None:
        reason = _REFUSAL + b"\n"
        padding = b"\0" * (-len(reason) % 4)
        answer = struct.pack(f"{self._byte_order}BBHHH", 0, len(reason), 11, 0, (len(reason) + len(padding)) // 4)
        self._down.write(answer + reason + padding)
        self._close()

    def _forward(self) -> None:
        """Forward the buffered requests, including partial ones, except for an incomplete request header."""
        assert self._up is not None
        buffer, position, start = self._partial, 0, 0
        size = len(buffer)
        drawing, proxy = self._proxy.drawing, self._proxy
        head, length = struct.Struct(f"{self._byte_order}BBH").unpack_from, struct.Struct(f"{self._byte_order}I").unpack_from
        parents = struct.Struct(f"{self._byte_order}II").unpack_from
        slow = 0
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
            is_erasing, window = opcode in _ERASING, 0
            if opcode == _CREATE_WINDOW and words >= _CREATE_WINDOW_WORDS and proxy.before_map is not None:
                if size - position < _PARENT_END:
                    break
                self._note_window(*parents(buffer, position + 4))
            elif opcode == _MAP_WINDOW and words == _MAP_WINDOW_WORDS and self._unmapped:
                if size - position < _WINDOW_END:
                    break
                window = length(buffer, position + 4)[0]
            if is_erasing or window in self._unmapped:
                if slow == _MAX_SLOW_PER_TURN:
                    self._is_deferred = True
                    self._proxy.defer(self)
                    break
                slow += 1
                self._up.write(bytes(buffer[start:position]))
                start = position
                if is_erasing:
                    self._report_erase()
                else:
                    self._report_map(window)
            if opcode in _DRAWING or (opcode in drawing and ((which := drawing[opcode]) is None or minor in which)):
                proxy.note_drawing(opcode)
            elif opcode in _NEUTRALIZED or (opcode, minor) in proxy.neutralized:
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

    def _note_window(self, window: int, parent: int) -> None:
        if parent == self._proxy.root and len(self._unmapped) < _MAX_UNMAPPED:
            self._unmapped.add(window)

    def _report_map(self, window: int) -> None:
        self._unmapped.discard(window)
        if self._proxy.before_map is not None and self._up is not None and self._up.flush():
            self._proxy.before_map(window)

    def _report_erase(self) -> None:
        if self._proxy.has_unsaved_pixels and self._up is not None and self._up.flush():
            self._proxy.report_erase()

    def _close(self) -> None:
        """Close both connections; the content that the client drew vanishes with them."""
        self._report_erase()
        if self._up is not None and self._up.has_unsent:
            # Xvfb is behind: closing now would drop the client's last requests.
            self._up.flush()
        self._down.close()
        if self._up is not None:
            self._up.close()
        self._proxy.forget(self)


def _padded(size: int) -> int:
    return size + -size % 4
