"""Windows of a display, and messages to them.

Clients may change their windows concurrently. All queries are bounded: of very many windows, only the topmost are considered.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from xcffib.xproto import Atom, ConfigWindow, EventMask, PropMode, StackMode

from coding_gym_server.display.client_messages import Addressed, ClientMessages
from coding_gym_server.display.connection import X11Connection
from coding_gym_server.display.window_queries import WindowQueries
from coding_gym_server.protocol import Rectangle, Window

__all__ = ["Addressed", "WindowList", "WindowNotFoundError"]

_MAX_WINDOWS = 512
_MAX_LISTED = 256
_BATCH = 32
_FRAME_DEPTH = 3
_FRAME_PARTS = 128
_DEPTH = 16


class WindowNotFoundError(LookupError):
    """No visible window has this id.

    Attributes:
        window: Id of the window.
    """

    def __init__(self, window: int) -> None:
        super().__init__(f"no window {window} is visible; it was closed or never shown: list the windows again")
        self.window = window


class WindowList:
    """Windows of a display, from the perspective of an X client.

    Attributes:
        connection: Connection to the X server.
    """

    def __init__(self, display_name: str, authority: Path) -> None:
        """Connect to the X server.

        All methods raise the errors of ``X11Connection`` if the server is unreachable or does not answer.
        """
        self.connection = X11Connection(display_name, authority)
        self._queries = WindowQueries(self.connection)
        self._messages = ClientMessages(self.connection, self._queries)

    def close(self) -> None:
        """Disconnect."""
        self.connection.disconnect()

    def fileno(self) -> int:
        """Return the file descriptor to poll for reading."""
        return int(self.connection.get_file_descriptor())

    def process_events(self) -> None:
        """Process the events that have arrived. Call this when the file descriptor is readable."""
        self.connection.process_events()

    def set_resources(self, resources: str) -> None:
        """Set the X resources, which toolkits read from the root window (see xrdb(1))."""
        core, root, data = self.connection.core, self.connection.root, resources.encode("latin-1")
        core.ChangeProperty(PropMode.Replace, root, Atom.RESOURCE_MANAGER, Atom.STRING, 8, len(data), data)
        self.connection.flush()

    def sync(self) -> None:
        """Make two round trips: requests that clients sent before the first are processed before the second."""
        self.connection.sync()
        self.connection.sync()

    def windows(self) -> list[Window]:
        """Return the visible windows, bottommost first.

        These are the top-level windows that are mapped and overlap the screen: those of applications, and also menus, tooltips
        and borderless windows, which are not managed by a window manager. Excluded are windows without pixels, helper windows
        of one pixel, and the frames and panels of a window manager.
        """
        shown = self._shown()[-_MAX_LISTED:]
        boxes = self._queries.boxes([window for window, _ in shown])
        names = self._queries.titles([window for window, _ in shown])
        listed = [(window, names[window], box) for window, _ in shown if (box := boxes.get(window)) and self._is_on_screen(box)]
        return [
            Window(id=window, title=title, x=box.x, y=box.y, width=box.width, height=box.height, stacking=stacking)
            for stacking, (window, title, box) in enumerate(listed)
        ]

    def has_windows(self) -> bool:
        """Return whether any window is visible."""
        if self.is_managed():
            return bool(self.windows())
        children = self._queries.children(self.connection.root)[::-1][:_MAX_WINDOWS]
        batches = (children[start : start + _BATCH] for start in range(0, len(children), _BATCH))
        return any(self._is_on_screen(box) for batch in batches for box in self._boxes_of_visible(batch))

    def applications(self) -> list[int]:
        """Return the ids of the windows that a window manager would manage, bottommost first: no menus, no tooltips."""
        shown = [window for window, override_redirect in self._shown() if not override_redirect][-_MAX_LISTED:]
        boxes = self._queries.boxes(shown)
        return [window for window in shown if window in boxes and self._is_on_screen(boxes[window])]

    def boxes_of_applications(self) -> list[Rectangle]:
        """Return the rectangles of the windows of ``applications``, bottommost first."""
        return list(self._queries.boxes(self.applications()).values())

    def geometry(self, window: int) -> Rectangle:
        """Return the rectangle of a window, which may extend beyond the screen.

        Args:
            window: Id of a top-level window or of a child window.

        Raises:
            WindowNotFoundError: If the window is not visible.
        """
        if 0 < window < 1 << 32:
            for box in self._boxes_of_visible([window]):
                return box
        raise WindowNotFoundError(window)

    def top_level(self, window: int) -> int | None:
        """Return the top-level window that contains a window, or is it; None if the window has vanished."""
        for _ in range(_DEPTH):
            parent = self._queries.parent(window)
            if parent is None:
                return None
            if parent in (0, self.connection.root):
                return window
            window = parent
        return None

    def is_managed(self) -> bool:
        """Return whether a window manager is running."""
        attributes = self.connection.core.GetWindowAttributes(self.connection.root).reply()
        return bool(attributes.all_event_masks & EventMask.SubstructureRedirect)

    def innermost(self, windows: Sequence[int]) -> int | None:
        """Return the window that a user closes first: the topmost dialog, or else the topmost window; None without windows.

        A main window may be above its dialog if it was shown later.

        Args:
            windows: Ids of application windows, bottommost first.
        """
        owners = self._queries.owners(windows)
        leaves = [window for window in windows if window not in owners.values()] or windows
        secondary = self.secondary(windows)
        ordered = sorted(leaves, key=lambda window: window in secondary)
        return ordered[-1] if ordered else None

    def secondary(self, windows: Sequence[int]) -> set[int]:
        """Return those of the windows that are dialogs, or windows beside the main windows of their programs."""
        return self._dialogs(windows) | self._queries.secondary(windows)

    def raise_dialogs(self) -> bool:
        """Raise dialogs above the other windows, as window managers do; return whether any was below one.

        Toolkits place a dialog over its main window, which hides the dialog if it is shown later.
        """
        if self.is_managed():
            return False
        windows = self.applications()
        dialogs = self._dialogs(windows)
        ordered = sorted(windows, key=lambda window: window in dialogs)
        if ordered == windows:
            return False
        for window in ordered[len(windows) - len(dialogs) :]:
            self.connection.core.ConfigureWindow(window, ConfigWindow.StackMode, [StackMode.Above])
        self.connection.flush()
        return True

    def _dialogs(self, windows: Sequence[int]) -> set[int]:
        owners = self._queries.owners(windows)
        return self._queries.dialogs(windows) | {window for window in windows if owners[window] in windows}

    def close_windows(self, windows: Sequence[int]) -> Addressed:
        """Ask applications to close windows; see ``ClientMessages.close``."""
        return self._messages.close(windows)

    def ping(self) -> Addressed:
        """Ask all applications whether they process their events; see ``ClientMessages.ping``."""
        return self._messages.ping(self._addressed())

    def ping_hidden(self) -> bool:
        """Ask programs by their windows that nobody sees whether they process their events; return whether there are any.

        Toolkits have such windows: withdrawn ones, those of applications, those that own selections.
        """
        children = self._queries.children(self.connection.root)[-_MAX_LISTED:]
        own = int(self.connection.setup.resource_id_base)
        windows = [window for window in children if self._queries.client(window) != own]
        self._messages.ping_hidden(windows)
        return bool(windows)

    def answered(self) -> bool:
        """Return whether all supporting windows of the last ping that still exist have answered. Non-blocking."""
        return self._messages.answered()

    @property
    def received_by_all(self) -> bool:
        """Whether the other windows have answered the last ping, too, as of the last call of ``answered``."""
        return self._messages.received_by_all

    def wake(self) -> None:
        """Wake the event loop of every application, so that its interpreter handles pending signals."""
        self._messages.wake(self._addressed())

    def _addressed(self) -> list[int]:
        """Return the ids of applications' windows or, if there are none, of all visible ones, such as a splash screen."""
        return self.applications() or [window for window, _ in self._shown()][-_MAX_LISTED:]

    def _shown(self) -> list[tuple[int, bool]]:
        """Return the ids of visible top-level windows, bottommost first, each with its override-redirect flag."""
        visible = self._queries.visible(self._queries.children(self.connection.root)[-_MAX_WINDOWS:])
        if not self.is_managed():
            return visible
        shown = []
        manager = self._queries.client(self._queries.manager())
        for window, override_redirect in visible:
            # Frames may have the flag, too: Blackbox's do.
            if client := self._client_of(window):
                shown.append((client, False))
            elif override_redirect and self._queries.client(window) != manager:
                shown.append((window, True))
        return shown

    def _client_of(self, frame: int) -> int | None:
        """Return the application's window in a window manager's frame; only the former has a ``WM_STATE``."""
        level = [frame]
        for _ in range(_FRAME_DEPTH):
            for window in self._queries.with_state(level):
                return window
            # The client is above the decorations, which can be numerous.
            level = [child for window in level for child in self._queries.children(window)][-_FRAME_PARTS:]
        return None

    def _boxes_of_visible(self, windows: Sequence[int]) -> Iterable[Rectangle]:
        return self._queries.boxes([window for window, _ in self._queries.visible(windows)]).values()

    def _is_on_screen(self, box: Rectangle) -> bool:
        width, height = self.connection.screen
        on_screen = box.x < width and box.y < height and box.x + box.width > 0 and box.y + box.height > 0
        return on_screen and (box.width > 1 or box.height > 1)
