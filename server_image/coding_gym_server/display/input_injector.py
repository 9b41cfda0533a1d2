"""Injection of mouse and keyboard input by the XTEST extension, which programs cannot distinguish from real input."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence

import xcffib
from xcffib.xproto import (
    ButtonPressEvent,
    ButtonReleaseEvent,
    InputFocus,
    KeyPressEvent,
    KeyReleaseEvent,
    MotionNotifyEvent,
    Time,
)

from coding_gym_server.display.keyboard import Keyboard, UnknownKeyError, check_events, keysym_of_character, keysyms_of_chord
from coding_gym_server.display.windows import WindowList
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

__all__ = ["InputInjector", "UnknownKeyError"]

_BUTTONS = {"left": 1, "middle": 2, "right": 3}
_UP, _DOWN, _LEFT, _RIGHT = 4, 5, 6, 7

_CLICK_INTERVAL = 0.03
_DRAG_STEP = 16
_DRAG_STEP_INTERVAL = 0.004
# Toolkits recognize the start and the end of a drag with a delay.
_DRAG_PAUSE = 0.02
# Number of characters between two pauses, in which other work can proceed.
_TYPING_BATCH = 16
_TYPING_PAUSE = 0.001

# Maximum number of seconds for clients to look up the keys that were sent, before keys are remapped.
_LOOKUP_TIMEOUT = 10.0
_POLL = 0.002
_FOCUS_ATTEMPTS = 3
# Programs that have never answered may not support pings.
_RECEIPT_TIMEOUT = 0.25

_NO_FOCUS = (xcffib.NONE, InputFocus.PointerRoot)


class InputInjector:
    """Perform input events, and track the keys and buttons that are held down.

    Without a window manager, it also sets the keyboard focus: to the window that is clicked, and, when keys are pressed while
    no window has the focus or a new window has appeared, to the topmost window.
    """

    def __init__(self, desktop: WindowList, *, has_unread: Callable[[], bool] = lambda: False) -> None:
        """Initialize the injector of a display.

        Args:
            desktop: Windows of the display.
            has_unread: Returns whether a client has not yet read all data that the X server has sent to it.
        """
        self._desktop = desktop
        self._connection = desktop.connection
        self._keyboard = Keyboard(self._connection)
        self._has_unread = has_unread
        self._keys_down: dict[int, None] = {}
        self._buttons_down: dict[int, None] = {}
        self._lookup_pending = False
        self._focused = xcffib.NONE
        self._known: frozenset[int] = frozenset()

    def perform(self, events: Sequence[InputEvent]) -> Iterator[float]:
        """Perform events in order.

        Returns:
            An iterator that performs the events and yields the seconds to pause before the next iteration. To stop, abandon it.

        Raises:
            UnknownKeyError: If an event names an unknown key or has a character that cannot be typed. In this case, no event is
                performed.
        """
        check_events(events)
        return self._perform(events)

    def release_all(self) -> None:
        """Release all keys and buttons that are held down."""
        for keycode in reversed(self._keys_down):
            self._fake(KeyReleaseEvent.event_number, keycode)
        for button in reversed(self._buttons_down):
            self._fake(ButtonReleaseEvent.event_number, button)
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
                    yield _CLICK_INTERVAL
                    self._click(_BUTTONS[button])
                case Drag():
                    yield from self._drag(event)
                case Scroll(x, y, dx, dy):
                    self._move(x, y)
                    self._scroll(_RIGHT if dx > 0 else _LEFT, abs(dx))
                    self._scroll(_DOWN if dy > 0 else _UP, abs(dy))
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
        self._fake(MotionNotifyEvent.event_number, x=x, y=y)

    def _click(self, button: int) -> None:
        self._press_button(button)
        self._release_button(button)

    def _press_button(self, button: int) -> None:
        self._focus_under_pointer()
        self._buttons_down[button] = None
        self._fake(ButtonPressEvent.event_number, button)

    def _release_button(self, button: int) -> None:
        self._buttons_down.pop(button, None)
        self._fake(ButtonReleaseEvent.event_number, button)

    def _scroll(self, button: int, clicks: int) -> None:
        for _ in range(clicks):
            self._fake(ButtonPressEvent.event_number, button)
            self._fake(ButtonReleaseEvent.event_number, button)

    def _drag(self, drag: Drag) -> Iterator[float]:
        button = _BUTTONS[drag.button]
        self._move(drag.x, drag.y)
        self._press_button(button)
        self._connection.flush()
        yield _DRAG_PAUSE
        distance_x, distance_y = drag.to_x - drag.x, drag.to_y - drag.y
        steps = max(2, (abs(distance_x) + abs(distance_y)) // _DRAG_STEP)
        for step in range(1, steps + 1):
            self._move(drag.x + distance_x * step // steps, drag.y + distance_y * step // steps)
            self._connection.flush()
            yield _DRAG_STEP_INTERVAL
        yield _DRAG_PAUSE
        self._release_button(button)

    def _keycodes(self, chord: str) -> Generator[float, None, list[int]]:
        """Return the keycodes to press for a chord, in order, including Shift if a symbol requires it."""
        yield from self._focus_for_keys()
        keysyms = keysyms_of_chord(chord)
        count = yield from self._find_keys(keysyms)
        return list(dict.fromkeys(keycode for keysym in keysyms[:count] for keycode in self._keyboard.keycodes(keysym)))

    def _type(self, text: str) -> Iterator[float]:
        yield from self._focus_for_keys()
        keysyms = [keysym_of_character(character) for character in text.replace("\r\n", "\n")]
        while keysyms:
            count = yield from self._find_keys(keysyms)
            for start in range(0, count, _TYPING_BATCH):
                for keysym in keysyms[start : min(start + _TYPING_BATCH, count)]:
                    self._tap(self._keyboard.keycodes(keysym))
                self._connection.flush()
                yield _TYPING_PAUSE
            # If a program has remapped all keys, no key is left for the character: skip it.
            del keysyms[: max(count, 1)]

    def _find_keys(self, keysyms: Sequence[int]) -> Generator[float, None, int]:
        """Bind missing keysyms, as far as there are spare keys; return the number of leading keysyms that can be typed."""
        keyboard = self._keyboard
        keyboard.refresh()
        missing = keyboard.missing(keysyms)
        if missing and (self._lookup_pending or len(missing) > keyboard.spare_count()):
            # Even if nothing has been typed yet, this determines which programs answer.
            yield from self._wait_for_programs(_LOOKUP_TIMEOUT)
            self._lookup_pending = False
        if len(missing) > keyboard.spare_count():
            keyboard.unbind()
            missing = keyboard.missing(keysyms)
        if missing:
            keyboard.bind(missing[: keyboard.spare_count()])
            self._lookup_pending = True
        left_out = keyboard.missing(missing)
        return keysyms.index(left_out[0]) if left_out else len(keysyms)

    def _wait_for_programs(self, timeout: float) -> Iterator[float]:
        """Wait until programs have processed the events sent to them, up to ``timeout`` seconds."""
        began = time.monotonic()
        self._desktop.ping()
        while (waited := time.monotonic() - began) < timeout:
            is_received = self._desktop.answered() and not self._has_unread()
            if is_received and (self._desktop.received_by_all or waited > _RECEIPT_TIMEOUT):
                return
            yield _POLL

    def _tap(self, keycodes: Sequence[int]) -> None:
        """Press and release keys, except for those that are held down."""
        fresh = [keycode for keycode in keycodes if keycode not in self._keys_down]
        self._press_keys(fresh)
        self._release_keys(fresh)

    def _press_keys(self, keycodes: Sequence[int]) -> None:
        for keycode in keycodes:
            self._keys_down[keycode] = None
            self._fake(KeyPressEvent.event_number, keycode)

    def _release_keys(self, keycodes: Sequence[int]) -> None:
        for keycode in reversed(keycodes):
            self._keys_down.pop(keycode, None)
            self._fake(KeyReleaseEvent.event_number, keycode)

    def _focus_for_keys(self) -> Iterator[float]:
        # When the pointer leaves a window, Tk removes the focus from the window that has just received it.
        for _ in range(_FOCUS_ATTEMPTS):
            if self._desktop.is_managed() or not (applications := self._desktop.applications()):
                return
            focus = self._focus()
            top = applications[-1]
            if focus not in _NO_FOCUS and (focus != self._focused or top in self._known):
                return
            self._give_focus(top, applications)
            yield from self._wait_for_programs(_RECEIPT_TIMEOUT)

    def _focus_under_pointer(self) -> None:
        if self._desktop.is_managed():
            return
        under = self._connection.core.QueryPointer(self._connection.root).reply().child
        applications = self._desktop.applications()
        if under in applications and self._desktop.top_level(self._focus()) != under:
            self._give_focus(under, applications)

    def _focus(self) -> int:
        return int(self._connection.core.GetInputFocus().reply().focus)

    def _give_focus(self, window: int, applications: Sequence[int]) -> None:
        self._focused, self._known = window, frozenset(applications)
        self._connection.core.SetInputFocus(InputFocus.PointerRoot, window, Time.CurrentTime)

    def _fake(self, kind: int, detail: int = 0, *, x: int = 0, y: int = 0) -> None:
        self._connection.xtest.FakeInput(kind, detail, Time.CurrentTime, 0, x, y, 0)
