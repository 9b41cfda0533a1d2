"""Input events: mouse and keyboard."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from coding_gym_server.protocol.screen import Coordinate

Clicks = Annotated[int, msgspec.Meta(ge=-100, le=100)]


Button = Literal["left", "middle", "right"]


class Move(msgspec.Struct, tag="move", tag_field="type", forbid_unknown_fields=True):
    """Move the pointer.

    Attributes:
        x: Pixels from the left edge of the screen.
        y: Pixels from the top edge.
    """

    x: Coordinate
    y: Coordinate


class Click(msgspec.Struct, tag="click", tag_field="type", forbid_unknown_fields=True, omit_defaults=True):
    """Move the pointer, press a button and release it."""

    x: Coordinate
    y: Coordinate
    button: Button = "left"


class DoubleClick(msgspec.Struct, tag="double_click", tag_field="type", forbid_unknown_fields=True, omit_defaults=True):
    """Click twice in quick succession."""

    x: Coordinate
    y: Coordinate
    button: Button = "left"


class Drag(msgspec.Struct, tag="drag", tag_field="type", forbid_unknown_fields=True, omit_defaults=True):
    """Press a button at one position and release it at another, with pointer moves in between."""

    x: Coordinate
    y: Coordinate
    to_x: Coordinate
    to_y: Coordinate
    button: Button = "left"


class Scroll(msgspec.Struct, tag="scroll", tag_field="type", forbid_unknown_fields=True, omit_defaults=True):
    """Scroll the mouse wheel.

    Attributes:
        x: Horizontal pointer position, in pixels from the left edge of the screen.
        y: Vertical pointer position, in pixels from the top edge of the screen.
        dx: Wheel clicks to the right; negative to the left.
        dy: Wheel clicks down; negative up.
    """

    x: Coordinate
    y: Coordinate
    dx: Clicks = 0
    dy: Clicks = 0


class MouseDown(msgspec.Struct, tag="mouse_down", tag_field="type", forbid_unknown_fields=True, omit_defaults=True):
    """Press a button at the current pointer position and hold it."""

    button: Button = "left"


class MouseUp(msgspec.Struct, tag="mouse_up", tag_field="type", forbid_unknown_fields=True, omit_defaults=True):
    """Release a button."""

    button: Button = "left"


class Key(msgspec.Struct, tag="key", tag_field="type", forbid_unknown_fields=True):
    """Press a key or key chord, and release it.

    Attributes:
        key: ``a``, ``Return``, ``Left``, ``F5``, ``ctrl+shift+s``: X keysym names or single characters, joined by ``+``.
    """

    key: Annotated[str, msgspec.Meta(min_length=1, max_length=100)]


class KeyDown(msgspec.Struct, tag="key_down", tag_field="type", forbid_unknown_fields=True):
    """Press a key or all keys of a chord, and hold them."""

    key: Annotated[str, msgspec.Meta(min_length=1, max_length=100)]


class KeyUp(msgspec.Struct, tag="key_up", tag_field="type", forbid_unknown_fields=True):
    """Release a key or all keys of a chord."""

    key: Annotated[str, msgspec.Meta(min_length=1, max_length=100)]


class Text(msgspec.Struct, tag="text", tag_field="type", forbid_unknown_fields=True):
    """Type Unicode text; a newline is the Return key, a tab the Tab key."""

    text: Annotated[str, msgspec.Meta(max_length=10_000)]


class Wait(msgspec.Struct, tag="wait", tag_field="type", forbid_unknown_fields=True):
    """Pause between two other events."""

    seconds: Annotated[float, msgspec.Meta(ge=0, le=60)]


InputEvent = Move | Click | DoubleClick | Drag | Scroll | MouseDown | MouseUp | Key | KeyDown | KeyUp | Text | Wait
"""Mouse and keyboard input events."""
