"""Screen regions for ``env.capture``."""

from __future__ import annotations

import operator
from typing import Any

import msgspec

from coding_gym.errors import ConfigurationError
from coding_gym_server.protocol import Rectangle, ScreenRequestOptions, Window

__all__ = ["WIDGETS_AND_SCREEN", "WIDGETS_ONLY", "WINDOWS_ONLY", "Region", "screen_request"]

Region = Rectangle | tuple[int, int, int, int] | Window | int | None
"""A rectangle, also as (x, y, width, height), a window, also by its id, or None for the whole screen."""

WINDOWS_ONLY = ScreenRequestOptions(Rectangle(0, 0, 1, 1))
"""A request for the window list only: its screenshot is a single pixel."""

WIDGETS_ONLY = ScreenRequestOptions(Rectangle(0, 0, 1, 1), widgets=True)
"""A request for the widgets and windows."""

WIDGETS_AND_SCREEN = ScreenRequestOptions(widgets=True)
"""A request for the whole screen with its widgets."""


def screen_request(region: Any) -> ScreenRequestOptions:
    """Return the request for a region.

    Raises:
        ConfigurationError: If the region is invalid.
    """
    try:
        match region:
            case None:
                return ScreenRequestOptions()
            case Window():
                return ScreenRequestOptions(region.id)
            case Rectangle():
                return _part(*msgspec.structs.astuple(region))
            case tuple() | list():
                return _part(*region)
        return ScreenRequestOptions(operator.index(region))
    except (TypeError, ValueError) as error:
        message = (
            "Expected a region to be a Rectangle, (x, y, width, height), a Window, the id of a window or None, "
            f"got {region!r}: {error}"
        )
        raise ConfigurationError(message) from None


def _part(x: int, y: int, width: int, height: int) -> ScreenRequestOptions:
    sides = {"x": x, "y": y, "width": width, "height": height}
    return ScreenRequestOptions(msgspec.convert({name: operator.index(side) for name, side in sides.items()}, Rectangle))
