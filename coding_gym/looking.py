"""What part of a screen is to be looked at."""

from __future__ import annotations

import operator
from typing import Any

import msgspec

from coding_gym.errors import ConfigurationError
from coding_gym_server.protocol import LookOptions, Rectangle, Window

__all__ = ["NO_PICTURE", "Region", "look_at"]

Region = Rectangle | tuple[int, int, int, int] | Window | int | None
"""A rectangle, also as (x, y, width, height), a window, also by its id, or None for the whole screen."""

NO_PICTURE = LookOptions(Rectangle(0, 0, 1, 1))
"""What to ask for when the windows are all that is wanted: the picture is a single pixel."""


def look_at(region: Any) -> LookOptions:
    """Return what to ask the server for.

    Raises:
        ConfigurationError: It is no region.
    """
    try:
        match region:
            case None:
                return LookOptions()
            case Window():
                return LookOptions(region.id)
            case Rectangle():
                return _part(*msgspec.structs.astuple(region))
            case tuple() | list():
                return _part(*region)
        return LookOptions(operator.index(region))
    except (TypeError, ValueError) as error:
        message = (
            "Expected a region to be a Rectangle, (x, y, width, height), a Window, the id of a window or None, "
            f"got {region!r}: {error}"
        )
        raise ConfigurationError(message) from None


def _part(x: int, y: int, width: int, height: int) -> LookOptions:
    sides = {"x": x, "y": y, "width": width, "height": height}
    return LookOptions(msgspec.convert({name: operator.index(side) for name, side in sides.items()}, Rectangle))
