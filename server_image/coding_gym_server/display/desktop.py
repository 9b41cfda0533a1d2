"""The windows on a display: which there are, and messages to them.

Whatever a client does to its windows meanwhile is survived: one that vanishes between two requests is left out. All is
bounded: of a client with very many windows only the topmost are looked at, of a long title only its beginning.
"""

from __future__ import annotations

import codecs
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from Xlib import X, Xatom
from Xlib.error import XError
from Xlib.protocol import event, request, rq

from coding_gym_server.display.connection import Connection, QueryTree
from coding_gym_server.protocol import Rectangle, Window

__all__ = ["Addressed", "Desktop", "WindowNotFoundError"]

_LOOKED_AT = 512
_LISTED = 256
_BATCH = 32
_TITLE_WORDS = 256
_PROTOCOL_WORDS = 64
_FRAME_DEPTH = 3
_FRAME_PARTS = 128
_DEPTH = 16
# Answers go to those that have selected one of these on the root; the protocol names the first, Qt sends by the second.
_ANSWER_MASK = X.SubstructureNotifyMask | X.StructureNotifyMask
_CLIENT_MESSAGE = struct.Struct("=BBHLL5L")
_SELECTION_NOTIFY = struct.Struct("=BxHLLLLL8x")
_PREDEFINED_ATOMS = 68
_PING = "_CODING_GYM_PING"
_CONTROLS = dict.fromkeys([*range(0x20), *range(0x7F, 0xA0)])


class WindowNotFoundError(LookupError):
    """No window of that id can be seen.

    Attributes:
        window: The id.
    """

    def __init__(self, window: int) -> None:
        super().__init__(f"no window {window} can be seen; it was closed or never shown: list the windows anew")
        self.window = window


@dataclass(frozen=True)
class Addressed:
    """To whom a message went.

    Attributes:
        willing: Ids of the windows whose programs say that they react to it.
        unable: Ids of those that do not.
    """

    willing: tuple[int, ...]
    unable: tuple[int, ...]


class Desktop:
    """A display, as a client of its X server sees it.

    Attributes:
        connection: The connection to the server.
    """

    def __init__(self, display_name: str, authority: Path) -> None:
        """Connect; see ``Connection``, whose errors all methods raise when the server is gone or does not answer."""
        self.connection = Connection(display_name, authority)
        self._pings = 0
        self._awaited: set[int] = set()
        self._answering: set[int] = set()
        self._unheard: set[int] = set()
        self._own_window = self._make_window()

    def close(self) -> None:
        """Disconnect."""
        self.connection.close()

    def fileno(self) -> int:
        """Return the descriptor to poll for reading."""
        return int(self.connection.fileno())

    def process_events(self) -> None:
        """Take what has come; to be called when the descriptor can be read."""
        self.connection.process_events()

    def sync(self) -> None:
        """Make two round trips: what clients had sent before the first was done before the second."""
        self.connection.sync()
        self.connection.sync()

    def windows(self) -> list[Window]:
        """List the windows that can be seen, the lowest first.

        These are the top-level windows that are mapped and reach into the screen: those of applications, and also menus,
        tooltips and borderless windows, which no window manager looks after. Not listed are windows without pixels, helpers of
        one pixel, and the frames and panels of a window manager.
        """
        shown = self._shown()[-_LISTED:]
        boxes = self._boxes([window for window, _ in shown])
        names = self._titles([window for window, _ in shown])
        listed = [(window, names[window], box) for window, _ in shown if (box := boxes.get(window)) and self._can_be_seen(box)]
        return [
            Window(id=window, title=title, x=box.x, y=box.y, width=box.width, height=box.height, stacking=stacking)
            for stacking, (window, title, box) in enumerate(listed)
        ]

    def has_windows(self) -> bool:
        """Say whether a window can be seen."""
        children = self._children(self.connection.root)[::-1][:_LOOKED_AT]
        batches = (children[start : start + _BATCH] for start in range(0, len(children), _BATCH))
        return any(self._can_be_seen(box) for batch in batches for box in self._boxes_of_visible(batch))

    def applications(self) -> list[int]:
        """Return the ids of the windows that a window manager would look after, the lowest first: no menus, no tooltips."""
        shown = [window for window, override_redirect in self._shown() if not override_redirect][-_LISTED:]
        boxes = self._boxes(shown)
        return [window for window in shown if window in boxes and self._can_be_seen(boxes[window])]

    def geometry(self, window: int) -> Rectangle:
        """Return where a window is on the screen; it may reach beyond.

        Args:
            window: Its id; also that of a window in another one.

        Raises:
            WindowNotFoundError: It cannot be seen.
        """
        if 0 < window < 1 << 32:
            for seen, _ in self._visible([window]):
                for box in self._boxes([seen]).values():
                    return box
        raise WindowNotFoundError(window)

    def top_level(self, window: int) -> int | None:
        """Return the window on the root that a window is in, or is; None if it has vanished."""
        for _ in range(_DEPTH):
            try:
                parent = QueryTree(display=self.connection, window=window).parent
            except XError:
                return None
            if parent in (X.NONE, self.connection.root):
                return window
            window = parent
        return None

    def is_managed(self) -> bool:
        """Say whether a window manager runs."""
        attributes = request.GetWindowAttributes(display=self.connection, window=self.connection.root)
        return bool(attributes.all_event_masks & X.SubstructureRedirectMask)

    def close_windows(self) -> Addressed:
        """Ask all applications to close their windows, as a click on the cross in a title bar does."""
        addressed = self._by_protocol("WM_DELETE_WINDOW")
        for window in addressed.willing:
            self._send(window, "WM_PROTOCOLS", self.connection.atom("WM_DELETE_WINDOW"), X.CurrentTime)
        self.connection.flush()
        return addressed

    def ping(self) -> Addressed:
        """Ask all applications whether they process their events; forget about earlier pings.

        Few toolkits know no pings, but Tk is one of them. What all of them know is to hand over a selection, or to refuse: so
        the others are asked for one that nobody has. A window that has once answered counts as willing from then on.
        """
        self._pings += 1
        addressed = self._by_protocol("_NET_WM_PING")
        self._select(_ANSWER_MASK)
        for window in addressed.willing:
            self._send(window, "WM_PROTOCOLS", self.connection.atom("_NET_WM_PING"), self._pings, window)
        for window in addressed.unable:
            self._ask_for_selection(window)
        self.connection.flush()
        self._answering &= set(addressed.unable)
        willing = (*addressed.willing, *(window for window in addressed.unable if window in self._answering))
        self._awaited = set(willing)
        unable = tuple(window for window in addressed.unable if window not in self._answering)
        self._unheard = set(unable)
        return Addressed(willing, unable)

    def answered(self) -> bool:
        """Say whether all willing windows of the last ping that are still there have answered. Does not wait."""
        self.connection.process_events()
        while self.connection.messages:
            self._take_answer(self.connection.messages.popleft())
        if self._awaited:
            self._awaited &= {window for window, _ in self._visible(list(self._awaited))}
        if not self._awaited:
            # Nobody can keep this connection busy between two pings.
            self._select(X.NoEventMask)
            self.connection.flush()
        return not self._awaited

    @property
    def heard_all(self) -> bool:
        """Whether even those that were not known to answer have answered the last ping, as ``answered`` has found."""
        return not self._unheard

    def wake(self) -> None:
        """Have every event loop handle an event, so that interpreters in it see the signals that came."""
        for window in self.applications():
            self._send(window, _PING, 0)
            for part in (window, *self._children(window)[:_BATCH]):
                self._expose_a_pixel(part)
        self.connection.flush()

    def _expose_a_pixel(self, window: int) -> None:
        request.ClearArea(display=self.connection, onerror=None, exposures=True, window=window, x=0, y=0, width=1, height=1)

    def _by_protocol(self, name: str) -> Addressed:
        protocol = self.connection.atom(name)
        applications = self.applications()
        replies = self._property(applications, "WM_PROTOCOLS", Xatom.ATOM, _PROTOCOL_WORDS)
        willing = {window for window, reply in zip(applications, replies, strict=True) if protocol in _words(reply)}
        return Addressed(
            tuple(window for window in applications if window in willing),
            tuple(window for window in applications if window not in willing),
        )

    def _send(self, window: int, kind: str, *words: int) -> None:
        data = (32, [*words, *[0] * (5 - len(words))])
        message = event.ClientMessage(window=window, client_type=self.connection.atom(kind), data=data)
        request.SendEvent(
            display=self.connection, onerror=None, propagate=False, destination=window, event_mask=X.NoEventMask, event=message
        )

    def _ask_for_selection(self, window: int) -> None:
        ping = self.connection.atom(_PING)
        question = event.SelectionRequest(
            owner=window,
            requestor=self._own_window,
            selection=ping,
            target=self._target(),
            property=ping,
            # What comes back as it is.
            time=window,
        )
        request.SendEvent(
            display=self.connection, onerror=None, propagate=False, destination=window, event_mask=X.NoEventMask, event=question
        )

    def _target(self) -> int:
        """Return an atom that tells this ping from the last ones."""
        return 1 + self._pings % _PREDEFINED_ATOMS

    def _take_answer(self, data: bytes) -> None:
        atom = self.connection.atom
        if data[0] & 0x7F == X.SelectionNotify:
            _, _, window, _, selection, target, _ = _SELECTION_NOTIFY.unpack(data)
            if selection == atom(_PING) and target == self._target():
                self._answering.add(window)
                self._awaited.discard(window)
                self._unheard.discard(window)
            return
        _, layout, _, *content = _CLIENT_MESSAGE.unpack(data)
        if (layout, *content[:4]) == (32, self.connection.root, atom("WM_PROTOCOLS"), atom("_NET_WM_PING"), self._pings):
            self._awaited.discard(content[4])

    def _make_window(self) -> int:
        window = int(self.connection.allocate_resource_id())
        request.CreateWindow(
            display=self.connection,
            onerror=None,
            depth=0,
            wid=window,
            parent=self.connection.root,
            x=0,
            y=0,
            width=1,
            height=1,
            border_width=0,
            window_class=X.InputOnly,
            visual=X.CopyFromParent,
            attrs={},
        )
        return window

    def _select(self, mask: int) -> None:
        request.ChangeWindowAttributes(
            display=self.connection, onerror=None, window=self.connection.root, attrs={"event_mask": mask}
        )

    def _shown(self) -> list[tuple[int, bool]]:
        """Return ids of visible top-level windows, the lowest first, and whether window managers leave them alone."""
        visible = self._visible(self._children(self.connection.root)[-_LOOKED_AT:])
        if not self.is_managed():
            return visible
        shown = []
        for window, override_redirect in visible:
            client = window if override_redirect else self._client_of(window)
            if client:
                shown.append((client, override_redirect))
        return shown

    def _client_of(self, frame: int) -> int | None:
        """Return the application's window in what a window manager has put around it; only the former has a ``WM_STATE``."""
        level = [frame]
        for _ in range(_FRAME_DEPTH):
            replies = self._property(level, "WM_STATE", X.AnyPropertyType, 0)
            for window, reply in zip(level, replies, strict=True):
                if reply is not None and reply.property_type != X.NONE:
                    return window
            # The client is above the decorations, which can be many.
            level = [child for window in level for child in self._children(window)][-_FRAME_PARTS:]
        return None

    def _visible(self, windows: Sequence[int]) -> list[tuple[int, bool]]:
        asked = [request.GetWindowAttributes(display=self.connection, defer=True, window=window) for window in windows]
        return [
            (window, bool(reply.override_redirect))
            for window, reply in zip(windows, _replies(asked), strict=True)
            if reply is not None and reply.map_state == X.IsViewable and reply.win_class == X.InputOutput
        ]

    def _boxes_of_visible(self, windows: Sequence[int]) -> Iterable[Rectangle]:
        return self._boxes([window for window, _ in self._visible(windows)]).values()

    def _boxes(self, windows: Sequence[int]) -> dict[int, Rectangle]:
        connection = self.connection
        sizes = [request.GetGeometry(display=connection, defer=True, drawable=window) for window in windows]
        places = [
            request.TranslateCoords(display=connection, defer=True, src_wid=window, dst_wid=connection.root, src_x=0, src_y=0)
            for window in windows
        ]
        return {
            window: Rectangle(x=place.x, y=place.y, width=size.width, height=size.height)
            for window, size, place in zip(windows, _replies(sizes), _replies(places), strict=True)
            if size is not None and place is not None
        }

    def _can_be_seen(self, box: Rectangle) -> bool:
        width, height = self.connection.screen
        on_screen = box.x < width and box.y < height and box.x + box.width > 0 and box.y + box.height > 0
        return on_screen and (box.width > 1 or box.height > 1)

    def _titles(self, windows: Sequence[int]) -> dict[int, str]:
        modern = self._property(windows, "_NET_WM_NAME", X.AnyPropertyType, _TITLE_WORDS)
        old = self._property(windows, "WM_NAME", X.AnyPropertyType, _TITLE_WORDS)
        return {window: _text(one) or _text(other) for window, one, other in zip(windows, modern, old, strict=True)}

    def _property(self, windows: Sequence[int], name: str, kind: int, words: int) -> list[Any]:
        atom = self.connection.atom(name)
        return _replies(
            request.GetProperty(
                display=self.connection,
                defer=True,
                delete=False,
                window=window,
                property=atom,
                type=kind,
                long_offset=0,
                long_length=words,
            )
            for window in windows
        )

    def _children(self, window: int) -> Sequence[int]:
        try:
            children: Sequence[int] = QueryTree(display=self.connection, window=window).children
        except XError:
            return []
        return children


def _replies(asked: Iterable[rq.ReplyRequest]) -> list[Any]:
    """Return the replies, None for errors. The requests travel together."""
    replies: list[Any] = []
    for one in list(asked):
        try:
            one.reply()
        except XError:
            replies.append(None)
        else:
            replies.append(one)
    return replies


def _words(reply: Any) -> Sequence[int]:
    return reply.value[1] if reply is not None and reply.value is not None and reply.value[0] == 32 else ()


def _text(reply: Any) -> str:
    """Decode a title. What programs say about its encoding cannot be relied on."""
    if reply is None or reply.value is None or reply.value[0] != 8:
        return ""
    data = reply.value[1]
    try:
        # The last character may be cut.
        text = codecs.getincrementaldecoder("utf-8")().decode(data, final=not reply.bytes_after)
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    return text.translate(_CONTROLS)
