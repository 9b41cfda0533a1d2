"""The names of keys, and what is on the keys of a keyboard."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import groupby
from typing import NamedTuple

import Xlib.keysymdef
from Xlib import XK
from Xlib.protocol import request

from coding_gym_server.display.connection import Connection

__all__ = ["Keyboard", "Stroke", "UnknownKeyError", "keysym_of_character", "keysyms_of_chord"]

_ALIASES = {
    "alt": "Alt_L",
    "altgr": "ISO_Level3_Shift",
    "backspace": "BackSpace",
    "bksp": "BackSpace",
    "capslock": "Caps_Lock",
    "cmd": "Super_L",
    "command": "Super_L",
    "control": "Control_L",
    "ctrl": "Control_L",
    "del": "Delete",
    "enter": "Return",
    "esc": "Escape",
    "ins": "Insert",
    "meta": "Alt_L",
    "option": "Alt_L",
    "pagedown": "Next",
    "pageup": "Prior",
    "pgdn": "Next",
    "pgup": "Prior",
    "plus": "plus",
    "printscreen": "Print",
    "shift": "Shift_L",
    "spacebar": "space",
    "super": "Super_L",
    "win": "Super_L",
    "windows": "Super_L",
    "arrowdown": "Down",
    "arrowleft": "Left",
    "arrowright": "Right",
    "arrowup": "Up",
}
_BETWEEN_NAMES = re.compile(r"(?<=.)\+(?=.)", re.DOTALL)
_CHARACTERS_OF_KEYS = {"\n": XK.XK_Return, "\r": XK.XK_Return, "\t": XK.XK_Tab}
_UNICODE = 0x1000000
_VENDORS = 0x10000000
# Toolkits do not agree on what Shift does to them.
_KEYPAD = range(XK.XK_KP_Space, XK.XK_KP_Equal + 1)


class UnknownKeyError(ValueError):
    """There is no key of that name.

    Attributes:
        name: The name.
    """

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"unknown key {name!r}: {reason}")
        self.name = name


class Stroke(NamedTuple):
    """The key that has a keysym, and whether Shift is needed for it."""

    keycode: int
    shift: bool


def keysym_of_character(character: str) -> int:
    """Return the keysym that stands for a character; Return for a newline, Tab for a tab.

    Raises:
        UnknownKeyError: No keyboard types it: a control character or half of a surrogate pair.
    """
    number = ord(character)
    if character in _CHARACTERS_OF_KEYS:
        return int(_CHARACTERS_OF_KEYS[character])
    if number < 0x20 or 0x7F <= number < 0xA0 or 0xD800 <= number < 0xE000:
        raise UnknownKeyError(character, "no key types it; for keys such as BackSpace and Escape there are key events")
    return number if number < 0x100 else _UNICODE | number


def keysyms_of_chord(chord: str) -> list[int]:
    """Return the keysyms of keys that are joined by ``+``.

    Together with other keys, a letter means its key, be it upper or lower case: ``Ctrl+S`` is ``ctrl+s``, not ``ctrl+shift+s``.

    Raises:
        UnknownKeyError: A name is not known.
    """
    names = _BETWEEN_NAMES.split(chord)
    if len(names) > 1:
        names = [name.lower() if len(name) == 1 and len(name.lower()) == 1 else name for name in names]
    return [_keysym(name) for name in names]


class Keyboard:
    """The mapping from keys to keysyms, which clients look up, and which can be changed.

    Keysyms that no key has are put on spare keys: on those that have nothing, or only what other keys have, too, or what only
    multimedia keyboards have a use for.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._strokes: dict[int, Stroke] = {}
        self._spare: list[int] = []
        self._bound: dict[int, int] = {}
        self._ours: dict[int, int] = {}
        self._seen_changes = -1

    def refresh(self) -> None:
        """Read the mapping, if it has changed."""
        self._connection.process_events()
        if self._seen_changes == self._connection.keymap_changes:
            return
        self._seen_changes = self._connection.keymap_changes
        first, last = self._connection.info.min_keycode, self._connection.info.max_keycode
        rows = request.GetKeyboardMapping(display=self._connection, first_keycode=first, count=last - first + 1).keysyms
        modifiers = {code for codes in request.GetModifierMapping(display=self._connection).keycodes for code in codes}
        self._read({first + index: tuple(row[:2]) for index, row in enumerate(rows)}, modifiers)

    def keycodes(self, keysym: int) -> list[int]:
        """Return the keys to press for a keysym, in order; none if it must be bound first."""
        if keysym in self._bound:
            return [self._bound[keysym]]
        stroke = self._strokes.get(keysym)
        if stroke is None:
            return []
        shift = self._strokes.get(XK.XK_Shift_L)
        return [shift.keycode, stroke.keycode] if stroke.shift and shift else [stroke.keycode]

    def missing(self, keysyms: Iterable[int]) -> list[int]:
        """Return those of the keysyms that must be bound before they can be typed, each once."""
        return [keysym for keysym in dict.fromkeys(keysyms) if keysym not in self._bound and keysym not in self._strokes]

    def room(self) -> int:
        """Return how many keysyms can still be bound."""
        return len(self._spare)

    def bind(self, keysyms: Sequence[int]) -> None:
        """Put keysyms, each on a spare key; there must be room for them.

        Every program must have looked up all that was typed before. It is told of the change; but while libX11 fetches a
        mapping, it misses that there is a newer one. So this is a single change, too, of keys that lie side by side.
        """
        if not keysyms:
            return
        keycodes, self._spare = self._spare[: len(keysyms)], self._spare[len(keysyms) :]
        # The same on both levels: from a letter alone, the server would make a key for its lower and its upper case.
        rows = [(keysym, keysym) for keysym in keysyms]
        request.ChangeKeyboardMapping(display=self._connection, onerror=None, first_keycode=keycodes[0], keysyms=rows)
        fresh = dict(zip(keycodes, keysyms, strict=True))
        self._ours.update(fresh)
        self._bound.update((keysym, keycode) for keycode, keysym in fresh.items())

    def unbind(self) -> None:
        """Make all spare keys spare again."""
        self._bound.clear()
        self._seen_changes = -1
        self.refresh()

    def _read(self, mapping: dict[int, tuple[int, ...]], modifiers: set[int]) -> None:
        # A program may have put something else on the keys that were ours.
        self._ours = {keycode: keysym for keycode, keysym in self._ours.items() if mapping[keycode][0] == keysym}
        self._bound = {keysym: keycode for keysym, keycode in self._bound.items() if self._ours.get(keycode) == keysym}
        self._strokes = {}
        for keycode, keysyms in mapping.items():
            for shift, keysym in enumerate(keysyms):
                if 0 < keysym < _VENDORS and keycode not in self._ours and not (shift and keysym in _KEYPAD):
                    self._strokes.setdefault(keysym, Stroke(keycode, bool(shift)))
        needed = {*modifiers, *(stroke.keycode for stroke in self._strokes.values()), *self._bound.values()}
        self._spare = max(_runs([keycode for keycode in mapping if keycode not in needed]), key=len, default=[])


def _keysym(name: str) -> int:
    if len(name) == 1:
        return keysym_of_character(name)
    known = _keysyms_by_name()
    keysym = known.get(name) or known.get(_ALIASES.get(name.lower(), "")) or _by_lower_case().get(name.lower())
    if keysym:
        return keysym
    names = [*_ALIASES, *known]
    near = difflib.get_close_matches(name, names, n=3) or difflib.get_close_matches(name.lower(), map(str.lower, names), n=3)
    hint = f"did you mean {' or '.join(near)}?" if near else "expected a character or a name such as Return, Left, F5, ctrl"
    raise UnknownKeyError(name, hint)


@cache
def _keysyms_by_name() -> dict[str, int]:
    for group in Xlib.keysymdef.__all__:
        XK.load_keysym_group(group)
    named = {name.removeprefix("XK_"): keysym for name, keysym in vars(XK).items() if name.startswith("XK_")}
    return {name.replace("XF86_", "XF86"): keysym for name, keysym in named.items() if keysym}


@cache
def _by_lower_case() -> dict[str, int]:
    by_name: dict[str, int] = {}
    for name, keysym in _keysyms_by_name().items():
        by_name.setdefault(name.lower(), keysym)
    return by_name


def _runs(keycodes: Sequence[int]) -> Iterator[list[int]]:
    """Group ascending keycodes that follow each other."""
    for _, group in groupby(enumerate(keycodes), lambda pair: pair[1] - pair[0]):
        yield [keycode for _, keycode in group]
