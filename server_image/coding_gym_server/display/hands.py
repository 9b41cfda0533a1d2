"""Hands at the keyboard and the mouse of a display, by the extension XTEST: programs cannot tell them from real ones."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence

from Xlib import X
from Xlib.ext import xtest
from Xlib.protocol import request

from coding_gym_server.display.desktop import Desktop
from coding_gym_server.display.keys import Keyboard, UnknownKeyError, keysym_of_character, keysyms_of_chord
from coding_gym_server.protocol import (
    Click,
    DoubleClick,
    Drag,
    InputEvent,
    Key,
    KeyDown,
    KeyUp,
    MouseDown,
    MouseUp,
    Move,
    Scroll,
    Text,
    Wait,
)

__all__ = ["Hands", "UnknownKeyError", "check_events"]

_BUTTONS = {"left": 1, "middle": 2, "right": 3}
_UP, _DOWN, _LEFT, _RIGHT = 4, 5, 6, 7

_BETWEEN_CLICKS = 0.03
_DRAG_STEP = 16
_BETWEEN_DRAG_STEPS = 0.004
# Toolkits begin and end a drag in their own time.
_DRAG_REST = 0.02
# So many characters are typed between two pauses in which others can work.
_TYPED_AT_ONCE = 16
_BREATH = 0.001

# For clients to look up what they were sent, before keys get another meaning.
_LOOK_UP_WITHIN = 10.0
_POLL = 0.002
_FOCUS_ATTEMPTS = 3
# Programs that have never answered may be of the kind that does not.
_HEARD_WITHIN = 0.25

_NOBODY = (X.NONE, X.PointerRoot)


def check_events(events: Sequence[InputEvent]) -> None:
    """Raise if events cannot be performed.

    Raises:
        UnknownKeyError: One names a key that does not exist, or has a character that cannot be typed.
    """
    for event in events:
        match event:
            case Key(chord) | KeyDown(chord) | KeyUp(chord):
                keysyms_of_chord(chord)
            case Text(text):
                for character in set(text):
                    keysym_of_character(character)


class Hands:
    """Performs input events, and knows what is held down.

    Where no window manager does so, it gives windows the keyboard focus: the one that is clicked into, and, when keys are
    pressed while nothing has the focus or a new window has come up, the topmost.
    """

    def __init__(self, desktop: Desktop, *, has_unread: Callable[[], bool] = lambda: False) -> None:
        """Take the mouse and the keyboard of a display.

        Args:
            desktop: The display.
            has_unread: Says whether a client has not read yet what the server has sent to it.
        """
        self._desktop = desktop
        self._connection = desktop.connection
        self._keyboard = Keyboard(self._connection)
        self._has_unread = has_unread
        self._keys_down: dict[int, None] = {}
        self._buttons_down: dict[int, None] = {}
        self._may_be_looking_up = False
        self._focused = X.NONE
        self._known: frozenset[int] = frozenset()

    def perform(self, events: Sequence[InputEvent]) -> Iterator[float]:
        """Perform events, one after the other.

        Returns:
            An iterator that does the work: it yields the seconds to pause before it is asked to go on. To stop, do not ask.

        Raises:
            UnknownKeyError: An event names a key that does not exist, or has a character that cannot be typed. Nothing has been
                performed then.
        """
        check_events(events)
        return self._perform(events)

    def release_all(self) -> None:
        """Release whatever is held down."""
        for keycode in reversed(self._keys_down):
            self._fake(X.KeyRelease, keycode)
        for button in reversed(self._buttons_down):
            self._fake(X.ButtonRelease, button)
        self._keys_down.clear()
        self._buttons_down.clear()
        self._connection.flush()

    def _perform(self, events: Sequence[InputEvent]) -> Iterator[float]:
        for event in events:
            match event:
                case Wait(seconds):
                    yield seconds
                case Move(x, y):
                    self._move(x, y)
                case Click(x, y, button):
                    self._move(x, y)
                    self._click(_BUTTONS[button])
                case DoubleClick(x, y, button):
                    self._move(x, y)
                    self._click(_BUTTONS[button])
                    self._connection.flush()
                    yield _BETWEEN_CLICKS
                    self._click(_BUTTONS[button])
                case Drag():
                    yield from self._drag(event)
                case Scroll(x, y, dx, dy):
                    self._move(x, y)
                    self._turn_wheel(_RIGHT if dx > 0 else _LEFT, abs(dx))
                    self._turn_wheel(_DOWN if dy > 0 else _UP, abs(dy))
                case MouseDown(button):
                    self._press_button(_BUTTONS[button])
                case MouseUp(button):
                    self._release_button(_BUTTONS[button])
                case Key(chord):
                    self._tap((yield from self._keycodes(chord)))
                case KeyDown(chord):
                    self._press_keys((yield from self._keycodes(chord)))
                case KeyUp(chord):
                    self._release_keys((yield from self._keycodes(chord)))
                case Text(text):
                    yield from self._type(text)
            self._connection.flush()
            yield 0

    def _move(self, x: int, y: int) -> None:
        self._fake(X.MotionNotify, x=x, y=y)

    def _click(self, button: int) -> None:
        self._press_button(button)
        self._release_button(button)

    def _press_button(self, button: int) -> None:
        self._focus_under_pointer()
        self._buttons_down[button] = None
        self._fake(X.ButtonPress, button)

    def _release_button(self, button: int) -> None:
        self._buttons_down.pop(button, None)
        self._fake(X.ButtonRelease, button)

    def _turn_wheel(self, button: int, clicks: int) -> None:
        for _ in range(clicks):
            self._fake(X.ButtonPress, button)
            self._fake(X.ButtonRelease, button)

    def _drag(self, drag: Drag) -> Iterator[float]:
        button = _BUTTONS[drag.button]
        self._move(drag.x, drag.y)
        self._press_button(button)
        self._connection.flush()
        yield _DRAG_REST
        way_x, way_y = drag.to_x - drag.x, drag.to_y - drag.y
        steps = max(2, (abs(way_x) + abs(way_y)) // _DRAG_STEP)
        for step in range(1, steps + 1):
            self._move(drag.x + way_x * step // steps, drag.y + way_y * step // steps)
            self._connection.flush()
            yield _BETWEEN_DRAG_STEPS
        yield _DRAG_REST
        self._release_button(button)

    def _keycodes(self, chord: str) -> Generator[float, None, list[int]]:
        """Return the keycodes to press for a chord, in order; Shift is among them where a symbol needs it."""
        yield from self._focus_for_keys()
        keysyms = keysyms_of_chord(chord)
        count = yield from self._find_keys(keysyms)
        return list(dict.fromkeys(keycode for keysym in keysyms[:count] for keycode in self._keyboard.keycodes(keysym)))

    def _type(self, text: str) -> Iterator[float]:
        yield from self._focus_for_keys()
        keysyms = [keysym_of_character(character) for character in text.replace("\r\n", "\n")]
        while keysyms:
            count = yield from self._find_keys(keysyms)
            for start in range(0, count, _TYPED_AT_ONCE):
                for keysym in keysyms[start : min(start + _TYPED_AT_ONCE, count)]:
                    self._tap(self._keyboard.keycodes(keysym))
                self._connection.flush()
                yield _BREATH
            # A program that takes all keys for itself leaves none for a character.
            del keysyms[: max(count, 1)]

    def _find_keys(self, keysyms: Sequence[int]) -> Generator[float, None, int]:
        """Have keys for as many of the first keysyms as there can be keys for; return how many that are."""
        keyboard = self._keyboard
        keyboard.refresh()
        missing = keyboard.missing(keysyms)
        if missing and (self._may_be_looking_up or len(missing) > keyboard.room()):
            # If nothing has been typed yet, it is seen which programs answer.
            yield from self._wait_for_programs(_LOOK_UP_WITHIN)
            self._may_be_looking_up = False
        if len(missing) > keyboard.room():
            keyboard.unbind()
            missing = keyboard.missing(keysyms)
        if missing:
            keyboard.bind(missing[: keyboard.room()])
            self._may_be_looking_up = True
        left_out = keyboard.missing(missing)
        return keysyms.index(left_out[0]) if left_out else len(keysyms)

    def _wait_for_programs(self, within: float) -> Iterator[float]:
        """Wait until programs have processed the events that were sent to them."""
        began = time.monotonic()
        self._desktop.ping()
        while (waited := time.monotonic() - began) < within:
            if self._desktop.answered() and not self._has_unread() and (self._desktop.heard_all or waited > _HEARD_WITHIN):
                return
            yield _POLL

    def _tap(self, keycodes: Sequence[int]) -> None:
        """Press keys and release them, but those that are held."""
        fresh = [keycode for keycode in keycodes if keycode not in self._keys_down]
        self._press_keys(fresh)
        self._release_keys(fresh)

    def _press_keys(self, keycodes: Sequence[int]) -> None:
        for keycode in keycodes:
            self._keys_down[keycode] = None
            self._fake(X.KeyPress, keycode)

    def _release_keys(self, keycodes: Sequence[int]) -> None:
        for keycode in reversed(keycodes):
            self._keys_down.pop(keycode, None)
            self._fake(X.KeyRelease, keycode)

    def _focus_for_keys(self) -> Iterator[float]:
        # Tk, when it learns that the pointer has left, takes the focus from the window that it has just been given to.
        for _ in range(_FOCUS_ATTEMPTS):
            if self._desktop.is_managed() or not (applications := self._desktop.applications()):
                return
            focus = self._focus()
            top = applications[-1]
            if focus not in _NOBODY and (focus != self._focused or top in self._known):
                return
            self._give_focus(top, applications)
            yield from self._wait_for_programs(_HEARD_WITHIN)

    def _focus_under_pointer(self) -> None:
        if self._desktop.is_managed():
            return
        under = request.QueryPointer(display=self._connection, window=self._connection.root).child
        applications = self._desktop.applications()
        if under in applications and self._desktop.top_level(self._focus()) != under:
            self._give_focus(under, applications)

    def _focus(self) -> int:
        return int(request.GetInputFocus(display=self._connection).focus)

    def _give_focus(self, window: int, applications: Sequence[int]) -> None:
        self._focused, self._known = window, frozenset(applications)
        request.SetInputFocus(
            display=self._connection, onerror=None, revert_to=X.RevertToPointerRoot, focus=window, time=X.CurrentTime
        )

    def _fake(self, kind: int, detail: int = 0, *, x: int = 0, y: int = 0) -> None:
        xtest.FakeInput(
            display=self._connection,
            opcode=self._connection.xtest_opcode,
            event_type=kind,
            detail=detail,
            time=X.CurrentTime,
            root=X.NONE,
            x=x,
            y=y,
        )
