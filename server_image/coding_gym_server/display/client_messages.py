"""Client messages to the windows of applications, and their answers."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from xcffib.xproto import (
    CW,
    ClientMessageData,
    ClientMessageEvent,
    EventMask,
    SelectionNotifyEvent,
    SelectionRequestEvent,
    Time,
    WindowClass,
)

from coding_gym_server.display.connection import X11Connection
from coding_gym_server.display.window_queries import WindowQueries

__all__ = ["Addressed", "ClientMessages"]

# Answers reach clients that selected one of these masks on the root: the specification names the former, Qt uses the latter.
_ANSWER_MASK = EventMask.SubstructureNotify | EventMask.StructureNotify
_CLIENT_MESSAGE = struct.Struct("=BBHLL5L")
_SELECTION_NOTIFY = struct.Struct("=BxHLLLLL8x")
_MAX_PARTS = 32
_PREDEFINED_ATOMS = 68
_PING = "_CODING_GYM_PING"


@dataclass(frozen=True)
class Addressed:
    """Recipients of a message.

    Attributes:
        supporting: Ids of the windows whose programs declare support for the message.
        others: Ids of the other windows.
    """

    supporting: tuple[int, ...]
    others: tuple[int, ...]


class ClientMessages:
    """Send messages to applications, and track which of them have answered.

    Args:
        connection: Connection to the X server.
        queries: Window queries on the same connection.
    """

    def __init__(self, connection: X11Connection, queries: WindowQueries) -> None:
        self._connection = connection
        self._core = connection.core
        self._queries = queries
        self._pings = 0
        self._awaited: set[int] = set()
        self._answering: set[int] = set()
        self._not_received: set[int] = set()
        self._are_visible = True
        self._own_window = self._make_window()

    def close(self, windows: Sequence[int]) -> Addressed:
        """Ask applications to close windows, like a click on the close button of a title bar."""
        addressed = self._by_protocol(windows, "WM_DELETE_WINDOW")
        for window in addressed.supporting:
            self._send(window, "WM_PROTOCOLS", self._connection.atom("WM_DELETE_WINDOW"), Time.CurrentTime)
        self._connection.flush()
        return addressed

    def ping(self, applications: Sequence[int]) -> Addressed:
        """Ask applications whether they process their events; discard earlier pings.

        Few toolkits answer pings, although Tk does. All of them respond to selection requests, if only to refuse them: so
        windows without support for pings are asked for a selection that does not exist. A window that has answered once counts
        as supporting from then on.
        """
        self._pings += 1
        addressed = self._by_protocol(applications, "_NET_WM_PING")
        self._select(_ANSWER_MASK)
        for window in addressed.supporting:
            self._send(window, "WM_PROTOCOLS", self._connection.atom("_NET_WM_PING"), self._pings, window)
        for window in addressed.others:
            self._ask_for_selection(window)
        self._connection.flush()
        self._answering &= set(addressed.others)
        supporting = (*addressed.supporting, *(window for window in addressed.others if window in self._answering))
        self._awaited = set(supporting)
        self._are_visible = True
        others = tuple(window for window in addressed.others if window not in self._answering)
        self._not_received = set(others)
        return Addressed(supporting, others)

    def ping_hidden(self, windows: Sequence[int]) -> None:
        """Ping windows that are not visible; those without support for pings only read the message.

        Not by a selection request, which Qt writes a warning about.
        """
        self._pings += 1
        self._select(_ANSWER_MASK)
        for window in windows:
            self._send(window, "WM_PROTOCOLS", self._connection.atom("_NET_WM_PING"), self._pings, window)
        self._connection.flush()
        self._awaited = set(self._by_protocol(windows, "_NET_WM_PING").supporting)
        self._not_received = set()
        self._are_visible = False

    def answered(self) -> bool:
        """Return whether all supporting windows of the last ping that still exist have answered. Non-blocking."""
        self._connection.process_events()
        while self._connection.messages:
            self._handle_answer(self._connection.messages.popleft())
        if self._awaited:
            self._awaited &= self._found()
        if not self._awaited:
            # Deselect the events, so that clients cannot flood this connection between two pings.
            self._select(EventMask.NoEvent)
            self._connection.flush()
        return not self._awaited

    @property
    def received_by_all(self) -> bool:
        """Whether the other windows have answered the last ping, too, as of the last call of ``answered``."""
        return not self._not_received

    def wake(self, applications: Sequence[int]) -> None:
        """Send an event that must be handled to the event loop and the widgets of every application.

        No event of its own kind, because Qt writes a warning about unknown ones to stderr.
        """
        self.ping(applications)
        for window in applications:
            for part in (window, *self._queries.children(window)[:_MAX_PARTS]):
                self._core.ClearArea(True, part, 0, 0, 1, 1)
        self._connection.flush()

    def _found(self) -> set[int]:
        """Return those of the windows whose answer is awaited that still exist, and are visible if they were."""
        if self._are_visible:
            return {window for window, _ in self._queries.visible(list(self._awaited))}
        return self._awaited.intersection(self._queries.children(self._connection.root))

    def _by_protocol(self, applications: Sequence[int], name: str) -> Addressed:
        protocol, protocols = self._connection.atom(name), self._queries.protocols(applications)
        return Addressed(
            tuple(window for window in applications if protocol in protocols[window]),
            tuple(window for window in applications if protocol not in protocols[window]),
        )

    def _send(self, window: int, kind: str, *words: int) -> None:
        data = ClientMessageData.synthetic([*words, *[0] * (5 - len(words))], "=5I")
        message = ClientMessageEvent.synthetic(32, window, self._connection.atom(kind), data)
        self._send_event(window, message.pack())

    def _ask_for_selection(self, window: int) -> None:
        ping = self._connection.atom(_PING)
        # The answer returns the time unchanged, so the time carries the id of the window.
        question = SelectionRequestEvent.synthetic(window, window, self._own_window, ping, self._target(), ping)
        self._send_event(window, question.pack())

    def _send_event(self, window: int, event: bytes) -> None:
        self._core.SendEvent(False, window, EventMask.NoEvent, event)

    def _target(self) -> int:
        """Return an atom that distinguishes this ping from recent ones."""
        return 1 + self._pings % _PREDEFINED_ATOMS

    def _handle_answer(self, data: bytes) -> None:
        atom = self._connection.atom
        if data[0] & 0x7F == SelectionNotifyEvent.event_number:
            _, _, window, _, selection, target, _ = _SELECTION_NOTIFY.unpack(data)
            if selection == atom(_PING) and target == self._target():
                self._answering.add(window)
                self._awaited.discard(window)
                self._not_received.discard(window)
            return
        _, layout, _, *content = _CLIENT_MESSAGE.unpack(data)
        if (layout, *content[:4]) == (32, self._connection.root, atom("WM_PROTOCOLS"), atom("_NET_WM_PING"), self._pings):
            self._awaited.discard(content[4])

    def _make_window(self) -> int:
        window: int = self._connection.generate_id()
        self._core.CreateWindow(0, window, self._connection.root, 0, 0, 1, 1, 0, WindowClass.InputOnly, 0, 0, [])
        return window

    def _select(self, mask: int) -> None:
        self._core.ChangeWindowAttributes(self._connection.root, CW.EventMask, [mask])
