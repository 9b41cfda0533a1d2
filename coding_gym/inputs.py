"""Input events: mouse and keyboard, for the ``events`` of ``CodingEnvGUI-v0``.

>>> from coding_gym import inputs
>>> {"code": "", "events": [inputs.click(10, 20), inputs.text("hé"), inputs.key("ctrl+s")]}
{'code': '', 'events': [Click(x=10, y=20, button='left'), Text(text='hé'), Key(key='ctrl+s')]}

Coordinates are pixels from the upper left corner of the screen. A button is ``left``, ``middle`` or ``right``. A key is the
name of an X keysym (``Return``, ``Left``, ``F5``) or a single character, or several of them joined by ``+``.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from coding_gym.errors import InvalidActionError
from coding_gym_server.protocol import (
    Button,
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
from coding_gym_server.protocol.errors import reason_of

__all__ = [
    "InputEvent",
    "as_event",
    "click",
    "double_click",
    "drag",
    "key",
    "key_down",
    "key_up",
    "mouse_down",
    "mouse_up",
    "move",
    "scroll",
    "text",
    "wait",
]


def move(x: int, y: int) -> InputEvent:
    """Move the pointer."""
    return as_event(Move(x, y))


def click(x: int, y: int, *, button: Button = "left") -> InputEvent:
    """Move the pointer, press a button and release it."""
    return as_event(Click(x, y, button))


def double_click(x: int, y: int, *, button: Button = "left") -> InputEvent:
    """Click twice in quick succession."""
    return as_event(DoubleClick(x, y, button))


def drag(x: int, y: int, to_x: int, to_y: int, *, button: Button = "left") -> InputEvent:
    """Press a button at one position and release it at another, with moves in between."""
    return as_event(Drag(x, y, to_x, to_y, button))


def scroll(x: int, y: int, *, dx: int = 0, dy: int = 0) -> InputEvent:
    """Turn the wheel: ``dx`` clicks to the right, ``dy`` clicks down, negative ones to the left and up."""
    return as_event(Scroll(x, y, dx, dy))


def mouse_down(button: Button = "left") -> InputEvent:
    """Press a button where the pointer is, and hold it."""
    return as_event(MouseDown(button))


def mouse_up(button: Button = "left") -> InputEvent:
    """Release a button."""
    return as_event(MouseUp(button))


def key(key: str) -> InputEvent:
    """Press a key or a chord, and release it: ``a``, ``Return``, ``ctrl+shift+s``."""
    return as_event(Key(key))


def key_down(key: str) -> InputEvent:
    """Press a key, or all of a chord, and hold it."""
    return as_event(KeyDown(key))


def key_up(key: str) -> InputEvent:
    """Release a key, or all of a chord."""
    return as_event(KeyUp(key))


def text(text: str) -> InputEvent:
    """Type text, of any Unicode characters; a newline is the Return key, a tab the Tab key."""
    return as_event(Text(text))


def wait(seconds: float) -> InputEvent:
    """Wait between two other events, for at most 60 s."""
    return as_event(Wait(seconds))


def as_event(event: Any) -> InputEvent:
    """Validate an event and return it in the wire format.

    Args:
        event: An event as the functions of this module return it, or a mapping such as ``{"type": "click", "x": 10, "y": 20}``.

    Raises:
        InvalidActionError: If it is not an event.
    """
    try:
        # The round trip validates the event and converts numpy's numbers to Python's.
        return _decoder.decode(_encoder.encode(event))
    except (msgspec.ValidationError, TypeError, ValueError, OverflowError) as error:
        message = f"Expected an input event such as inputs.click(10, 20), got {event!r:.200}: {reason_of(error)}"
        raise InvalidActionError(message) from None


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    message = f"{type(value).__name__} cannot be part of an event"
    raise TypeError(message)


_encoder = msgspec.msgpack.Encoder(enc_hook=_plain)
_decoder: msgspec.msgpack.Decoder[InputEvent] = msgspec.msgpack.Decoder(InputEvent)
