"""Spaces of input events."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import msgspec
import numpy as np
from gymnasium import spaces

from coding_gym import inputs
from coding_gym.errors import InvalidActionError
from coding_gym.inputs import InputEvent, as_event
from coding_gym_server.protocol import Button

__all__ = ["EventSequenceSpace", "EventSpace"]

_HORIZONTAL, _VERTICAL = ("x", "to_x"), ("y", "to_y")
_KEYS = ("Return", "Tab", "space", "BackSpace", "Escape", "Left", "Right", "Up", "Down", "a", "Z", "7", "ctrl+a", "shift+Left")
_TEXTS = ("hello", "42\n", "na\N{LATIN SMALL LETTER I WITH DIAERESIS}ve \N{SNOWMAN}", "print('hi')\n", "")
_BUTTONS: tuple[Button, ...] = ("left", "middle", "right")
_MAX_CLICKS = 3
_MAX_WAIT = 0.05

_Choice = TypeVar("_Choice")


class EventSpace(spaces.Space[InputEvent]):
    """Space of input events, as the functions of ``coding_gym.inputs`` return them, or as equivalent mappings.

    Args:
        width: Width of the screen in pixels; events outside of the screen are not in the space.
        height: Height of the screen in pixels.
        seed: Seed for sampling.

    Example:
        >>> space = EventSpace(640, 480, seed=0)
        >>> inputs.click(10, 20) in space, {"type": "click", "x": 10, "y": 20} in space, inputs.click(640, 20) in space
        (True, True, False)
        >>> space.sample() in space
        True
    """

    def __init__(self, width: int, height: int, *, seed: int | np.random.Generator | None = None) -> None:
        self.width = width
        self.height = height
        super().__init__(None, None, seed)

    @property
    def is_np_flattenable(self) -> bool:
        """Return False: events cannot be flattened to an array."""
        return False

    def check(self, event: Any) -> InputEvent:
        """Return an event in the wire format.

        Raises:
            InvalidActionError: If it is not in the space.
        """
        known = as_event(event)
        for names, side in ((_HORIZONTAL, self.width), (_VERTICAL, self.height)):
            for name in names:
                if getattr(known, name, 0) >= side:
                    message = f"Expected {name} of 0 to {side - 1} on a screen of {self.width} x {self.height}, got {known}"
                    raise InvalidActionError(message)
        return known

    def contains(self, x: Any) -> bool:
        """Return whether ``x`` is an event on this screen."""
        return _passes(self.check, x)

    def sample(self, mask: Any = None, probability: Any = None) -> InputEvent:
        """Draw an event of any kind.

        Args:
            mask: None, as Gymnasium's composite spaces pass it.
            probability: Not supported.
        """
        if mask is not None or probability is not None:
            message = "Expected mask=None and probability=None: events are sampled without them"
            raise ValueError(message)
        x, to_x = self.np_random.integers(self.width, size=2)
        y, to_y = self.np_random.integers(self.height, size=2)
        dx, dy = self.np_random.integers(-_MAX_CLICKS, _MAX_CLICKS, size=2, endpoint=True)
        button, key, text = self._one_of(_BUTTONS), self._one_of(_KEYS), self._one_of(_TEXTS)
        return self._one_of(
            (
                inputs.move(x, y),
                inputs.click(x, y, button=button),
                inputs.double_click(x, y, button=button),
                inputs.drag(x, y, to_x, to_y, button=button),
                inputs.scroll(x, y, dx=dx, dy=dy),
                inputs.mouse_down(button),
                inputs.mouse_up(button),
                inputs.key(key),
                inputs.key_down(key),
                inputs.key_up(key),
                inputs.text(text),
                inputs.wait(self.np_random.uniform(0, _MAX_WAIT)),
            )
        )

    def to_jsonable(self, sample_n: Iterable[InputEvent]) -> list[Any]:
        """Return events as mappings."""
        return [msgspec.to_builtins(as_event(event)) for event in sample_n]

    def from_jsonable(self, sample_n: list[Any]) -> list[InputEvent]:
        """Return events from the output of ``to_jsonable``."""
        return [as_event(event) for event in sample_n]

    def __repr__(self) -> str:
        return f"EventSpace({self.width}, {self.height})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EventSpace) and (self.width, self.height) == (other.width, other.height)

    __hash__ = None  # type: ignore[assignment]

    def _one_of(self, choices: Sequence[_Choice]) -> _Choice:
        return choices[int(self.np_random.integers(len(choices)))]


class EventSequenceSpace(spaces.Sequence):
    """Space of sequences of input events: tuples or lists of members of ``EventSpace``.

    Args:
        width: Width of the screen in pixels.
        height: Height of the screen in pixels.
        max_length: Maximum number of events.
        seed: Seed for sampling.

    Example:
        >>> space = EventSequenceSpace(640, 480, seed=0)
        >>> [inputs.click(10, 20), inputs.key("Return")] in space, [] in space, [inputs.click(10, 480)] in space
        (True, True, False)
        >>> space.sample() in space
        True
    """

    feature_space: EventSpace

    def __init__(
        self, width: int, height: int, *, max_length: int = 100, seed: int | np.random.Generator | None = None
    ) -> None:
        self.max_length = max_length
        super().__init__(EventSpace(width, height), seed=seed)

    def check(self, events: Any) -> list[InputEvent]:
        """Return events in the wire format.

        Raises:
            InvalidActionError: If they are not in the space.
        """
        if not isinstance(events, (list, tuple)):
            message = f"Expected events to be a list of input events such as [inputs.click(10, 20)], got {events!r:.200}"
            raise InvalidActionError(message)
        if len(events) > self.max_length:
            message = f"Expected at most {self.max_length} events, got {len(events)}: send the others with the next step"
            raise InvalidActionError(message)
        return [self.feature_space.check(event) for event in events]

    def contains(self, x: Any) -> bool:
        """Return whether ``x`` is a list or tuple of events on this screen."""
        return _passes(self.check, x)

    def sample(self, mask: Any = None, probability: Any = None) -> tuple[InputEvent, ...]:
        """Draw some events; see ``Sequence.sample`` for the arguments."""
        return tuple(super().sample(mask, probability))[: self.max_length]

    def __repr__(self) -> str:
        return f"EventSequenceSpace({self.feature_space.width}, {self.feature_space.height}, max_length={self.max_length})"

    def __eq__(self, other: object) -> bool:
        return super().__eq__(other) and isinstance(other, EventSequenceSpace) and self.max_length == other.max_length

    __hash__ = None  # type: ignore[assignment]


def _passes(check: Callable[[Any], object], value: Any) -> bool:
    try:
        check(value)
    except InvalidActionError:
        return False
    return True
