"""Key names and the keyboard mapping."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from coding_gym_server.protocol import InputEvent, Key, KeyDown, KeyUp, Text

if TYPE_CHECKING:
    # The server validates events, too, and does not import xcffib until an event names a key.
    from coding_gym_server.display.connection import X11Connection

__all__ = ["Keyboard", "Stroke", "UnknownKeyError", "check_events", "keysym_of_character", "keysyms_of_chord"]

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
_NAME_SEPARATOR = re.compile(r"(?<=.)\+(?=.)", re.DOTALL)
# See X11/keysymdef.h.
_RETURN, _TAB, _SHIFT = 0xFF0D, 0xFF09, 0xFFE1
_CHARACTERS_OF_KEYS = {"\n": _RETURN, "\r": _RETURN, "\t": _TAB}
_UNICODE = 0x1000000
_VENDORS = 0x10000000
# Toolkits disagree on the effect of Shift on these keys.
_KEYPAD = range(0xFF80, 0xFFBE)


class UnknownKeyError(ValueError):
    """A key does not exist or a character cannot be typed.

    Attributes:
        name: Name of the key, or the character.
    """

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"unknown key {name!r}: {reason}")
        self.name = name


class Stroke(NamedTuple):
    """Key that produces a keysym, and whether the keysym requires Shift."""

    keycode: int
    shift: bool


def keysym_of_character(character: str) -> int:
    """Return the keysym of a character: Return for a newline, Tab for a tab.

    Raises:
        UnknownKeyError: If no keyboard types the character: a control character or half of a surrogate pair.
    """
    number = ord(character)
    if character in _CHARACTERS_OF_KEYS:
        return _CHARACTERS_OF_KEYS[character]
    if number < 0x20 or 0x7F <= number < 0xA0 or 0xD800 <= number < 0xE000:
        raise UnknownKeyError(character, "no key types it; for keys such as BackSpace and Escape there are key events")
    return number if number < 0x100 else _UNICODE | number


def keysyms_of_chord(chord: str) -> list[int]:
    """Return the keysyms of key names that are joined by ``+``.

    In combination with other keys, the case of a letter is ignored: ``Ctrl+S`` is ``ctrl+s``, not ``ctrl+shift+s``.

    Raises:
        UnknownKeyError: If a name is unknown.
    """
    names = _NAME_SEPARATOR.split(chord)
    if len(names) > 1:
        names = [name.lower() if len(name) == 1 and len(name.lower()) == 1 else name for name in names]
    return [_keysym(name) for name in names]


def check_events(events: Sequence[InputEvent]) -> None:
    """Validate input events.

    Raises:
        UnknownKeyError: If an event names an unknown key or has a character that cannot be typed.
    """
    for event in events:
        match event:
            case Key(chord) | KeyDown(chord) | KeyUp(chord):
                keysyms_of_chord(chord)
            case Text(text):
                for character in set(text):
                    keysym_of_character(character)


class Keyboard:
    """Mapping from keycodes to keysyms, which clients look up and which can be changed.

    Keysyms that no key has are bound to spare keys: keys without keysyms, with keysyms that other keys have, too, or with
    keysyms that only multimedia keyboards use.
    """

    def __init__(self, connection: X11Connection) -> None:
        self._connection = connection
        self._strokes: dict[int, Stroke] = {}
        self._spare: list[int] = []
        self._bound: dict[int, int] = {}
        self._keysyms: dict[int, int] = {}
        self._seen_changes = -1

    def refresh(self) -> None:
        """Read the mapping if it has changed."""
        self._connection.process_events()
        if self._seen_changes == self._connection.keymap_changes:
            return
        self._seen_changes = self._connection.keymap_changes
        first, last = self._connection.setup.min_keycode, self._connection.setup.max_keycode
        reply = self._connection.core.GetKeyboardMapping(first, last - first + 1).reply()
        width = reply.keysyms_per_keycode
        rows = [tuple(reply.keysyms[start : start + min(width, 2)]) for start in range(0, len(reply.keysyms), width)]
        modifiers = set(self._connection.core.GetModifierMapping().reply().keycodes)
        self._read({first + index: row for index, row in enumerate(rows)}, modifiers)

    def keycodes(self, keysym: int) -> list[int]:
        """Return the keycodes to press for a keysym, in order; empty if the keysym must be bound first."""
        if keysym in self._bound:
            return [self._bound[keysym]]
        stroke = self._strokes.get(keysym)
        if stroke is None:
            return []
        shift = self._strokes.get(_SHIFT)
        return [shift.keycode, stroke.keycode] if stroke.shift and shift else [stroke.keycode]

    def missing(self, keysyms: Iterable[int]) -> list[int]:
        """Return the keysyms that must be bound before they can be typed, without duplicates."""
        return [keysym for keysym in dict.fromkeys(keysyms) if keysym not in self._bound and keysym not in self._strokes]

    def spare_count(self) -> int:
        """Return the number of keysyms that can still be bound."""
        return len(self._spare)

    def bind(self, keysyms: Sequence[int]) -> None:
        """Bind each keysym to a spare key; there must be enough spare keys.

        Every program must have looked up all keys typed before. Programs are notified of the change; but while libX11 fetches a
        mapping, it misses a newer one. Therefore, all keysyms are bound by a single request, to adjacent keys.
        """
        if not keysyms:
            return
        keycodes, self._spare = self._spare[: len(keysyms)], self._spare[len(keysyms) :]
        # Bind both levels: from a single letter, the server would derive its lowercase and its uppercase form.
        levels = [keysym for keysym in keysyms for _ in range(2)]
        self._connection.core.ChangeKeyboardMapping(len(keysyms), keycodes[0], 2, levels)
        fresh = dict(zip(keycodes, keysyms, strict=True))
        self._keysyms.update(fresh)
        self._bound.update((keysym, keycode) for keycode, keysym in fresh.items())

    def unbind(self) -> None:
        """Release all bound keys as spare keys."""
        self._bound.clear()
        self._seen_changes = -1
        self.refresh()

    def _read(self, mapping: dict[int, tuple[int, ...]], modifiers: set[int]) -> None:
        # A program may have remapped the keys that were bound here.
        self._keysyms = {keycode: keysym for keycode, keysym in self._keysyms.items() if mapping[keycode][0] == keysym}
        self._bound = {keysym: keycode for keysym, keycode in self._bound.items() if self._keysyms.get(keycode) == keysym}
        self._strokes = {}
        for keycode, keysyms in mapping.items():
            for shift, keysym in enumerate(keysyms):
                if 0 < keysym < _VENDORS and keycode not in self._keysyms and not (shift and keysym in _KEYPAD):
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
    from xcffib import keysymdef, xf86keysym

    names = {**vars(keysymdef), **{name.replace("XF86XK_", "XK_XF86"): keysym for name, keysym in vars(xf86keysym).items()}}
    return {name.removeprefix("XK_"): keysym for name, keysym in names.items() if name.startswith("XK_") and keysym}


@cache
def _by_lower_case() -> dict[str, int]:
    by_name: dict[str, int] = {}
    for name, keysym in _keysyms_by_name().items():
        by_name.setdefault(name.lower(), keysym)
    return by_name


def _runs(keycodes: Sequence[int]) -> Iterator[list[int]]:
    """Group ascending keycodes into runs of consecutive ones."""
    for _, group in groupby(enumerate(keycodes), lambda pair: pair[1] - pair[0]):
        yield [keycode for _, keycode in group]
