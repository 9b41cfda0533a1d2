"""Batched queries for the properties of windows.

Clients may change their windows concurrently: a window that vanishes between two requests is omitted. All replies are bounded:
only the beginning of a long title is read.
"""

from __future__ import annotations

import codecs
from array import array
from collections.abc import Sequence
from typing import Any

import xcffib
from xcffib.xproto import Atom, GetPropertyType, MapState, WindowClass

from coding_gym_server.display.connection import X11Connection
from coding_gym_server.protocol import Rectangle

__all__ = ["WindowQueries"]

_TITLE_WORDS = 256
_ATOM_LIST_WORDS = 64
_REPLY_HEAD_BYTES = 32
_SECONDARY_CLASSES = ("Toplevel", "Dialog")
_CONTROLS = dict.fromkeys([*range(0x20), *range(0x7F, 0xA0)])


class WindowQueries:
    """Queries for windows by their ids.

    Args:
        connection: Connection to the X server.
    """

    def __init__(self, connection: X11Connection) -> None:
        self._connection = connection
        self._core = connection.core

    def children(self, window: int) -> Sequence[int]:
        """Return the children of a window, bottommost first; empty if the window has vanished."""
        try:
            reply = self._connection.wait_for_reply(self._core.QueryTree(window).sequence)
        except xcffib.Error:
            return []
        # Not the parsed reply: the protocol counts children in 16 bits, but there can be more.
        return array("I", bytes(reply.buf[_REPLY_HEAD_BYTES:]))

    def parent(self, window: int) -> int | None:
        """Return the parent of a window, 0 for the root window; None if the window has vanished."""
        try:
            return int(self._core.QueryTree(window).reply().parent)
        except xcffib.Error:
            return None

    def visible(self, windows: Sequence[int]) -> list[tuple[int, bool]]:
        """Return the windows that are viewable and have pixels, each with its override-redirect flag."""
        replies = self._connection.replies([self._core.GetWindowAttributes(window) for window in windows])
        return [
            (window, bool(reply.override_redirect))
            for window, reply in zip(windows, replies, strict=True)
            if reply is not None and reply.map_state == MapState.Viewable and reply._class == WindowClass.InputOutput
        ]

    def boxes(self, windows: Sequence[int]) -> dict[int, Rectangle]:
        """Return the rectangles of windows on the screen, without borders."""
        root = self._connection.root
        sizes = [self._core.GetGeometry(window) for window in windows]
        positions = [self._core.TranslateCoordinates(window, root, 0, 0) for window in windows]
        replies = self._connection.replies([*sizes, *positions])
        return {
            window: Rectangle(x=place.dst_x, y=place.dst_y, width=size.width, height=size.height)
            for window, size, place in zip(windows, replies[: len(windows)], replies[len(windows) :], strict=True)
            if size is not None and place is not None
        }

    def titles(self, windows: Sequence[int]) -> dict[int, str]:
        """Return the titles of windows, empty for windows without a title."""
        modern = self._property(windows, "_NET_WM_NAME", GetPropertyType.Any, _TITLE_WORDS)
        old = self._property(windows, "WM_NAME", GetPropertyType.Any, _TITLE_WORDS)
        return {window: _text(one) or _text(other) for window, one, other in zip(windows, modern, old, strict=True)}

    def protocols(self, windows: Sequence[int]) -> dict[int, tuple[int, ...]]:
        """Return the atoms of the window manager protocols that each window supports (``WM_PROTOCOLS``)."""
        replies = self._property(windows, "WM_PROTOCOLS", Atom.ATOM, _ATOM_LIST_WORDS)
        return {window: _words(reply) for window, reply in zip(windows, replies, strict=True)}

    def owners(self, windows: Sequence[int]) -> dict[int, int | None]:
        """Return the window that each window belongs to, such as a dialog; None if there is none (``WM_TRANSIENT_FOR``)."""
        replies = self._property(windows, "WM_TRANSIENT_FOR", Atom.WINDOW, 1)
        return {window: next(iter(_words(reply)), None) for window, reply in zip(windows, replies, strict=True)}

    def dialogs(self, windows: Sequence[int]) -> set[int]:
        """Return the windows that are dialogs according to their type (``_NET_WM_WINDOW_TYPE``)."""
        dialog = self._connection.atom("_NET_WM_WINDOW_TYPE_DIALOG")
        replies = self._property(windows, "_NET_WM_WINDOW_TYPE", Atom.ATOM, _ATOM_LIST_WORDS)
        return {window for window, reply in zip(windows, replies, strict=True) if dialog in _words(reply)}

    def secondary(self, windows: Sequence[int]) -> set[int]:
        """Return the windows that are not the main windows of their programs, according to the classes that Tk gives them."""
        replies = self._property(windows, "WM_CLASS", Atom.STRING, _TITLE_WORDS)
        return {window for window, reply in zip(windows, replies, strict=True) if _text(reply).endswith(_SECONDARY_CLASSES)}

    def client(self, window: int) -> int:
        """Return a number that distinguishes the client that created a window from other clients."""
        return window & ~int(self._connection.setup.resource_id_mask)

    def manager(self) -> int:
        """Return a window of the window manager, 0 if it does not tell (``_NET_SUPPORTING_WM_CHECK``)."""
        (reply,) = self._property([self._connection.root], "_NET_SUPPORTING_WM_CHECK", Atom.WINDOW, 1)
        return next(iter(_words(reply)), 0)

    def with_state(self, windows: Sequence[int]) -> list[int]:
        """Return the windows that have a ``WM_STATE``: application windows that are managed by a window manager."""
        replies = self._property(windows, "WM_STATE", GetPropertyType.Any, 0)
        return [window for window, reply in zip(windows, replies, strict=True) if reply is not None and reply.type]

    def _property(self, windows: Sequence[int], name: str, kind: int, words: int) -> list[Any]:
        atom = self._connection.atom(name)
        return self._connection.replies([self._core.GetProperty(False, window, atom, kind, 0, words) for window in windows])


def _words(reply: Any) -> tuple[int, ...]:
    return tuple(array("I", reply.value.buf())) if reply is not None and reply.format == 32 else ()


def _text(reply: Any) -> str:
    """Decode a title. The encoding that programs declare is not reliable."""
    if reply is None or reply.format != 8:
        return ""
    data = reply.value.buf()
    try:
        # The last character may be truncated.
        text = codecs.getincrementaldecoder("utf-8")().decode(data, final=not reply.bytes_after)
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    return text.translate(_CONTROLS)
