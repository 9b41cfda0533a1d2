"""Screens: pictures, windows and capture modes."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec

from coding_gym_server.protocol.widgets import Widget

DEFAULT_SCREEN = (800, 600)
"""Default width and height of a session's screen in pixels: matplotlib's and turtle's default windows fit."""


MIN_SCREEN_SIDE, MAX_SCREEN_SIDE = 16, 4096


Side = Annotated[int, msgspec.Meta(ge=MIN_SCREEN_SIDE, le=MAX_SCREEN_SIDE)]


Coordinate = Annotated[int, msgspec.Meta(ge=0, lt=MAX_SCREEN_SIDE)]


class Capture(StrEnum):
    """When an observation includes a screenshot."""

    AUTO = "auto"
    """When the screen is not empty."""
    ALWAYS = "always"
    NEVER = "never"


class OnIdle(StrEnum):
    """Handling of a program that waits for events on a screen that has settled."""

    CLOSE = "close"
    """Its windows are closed, first by request, then by force."""
    RETURN = "return"
    """The step returns while the program keeps running, and the next step continues with it."""


class Rectangle(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A region of the screen, in pixels relative to its upper left corner."""

    x: Annotated[int, msgspec.Meta(ge=-MAX_SCREEN_SIDE, le=MAX_SCREEN_SIDE)]
    y: Annotated[int, msgspec.Meta(ge=-MAX_SCREEN_SIDE, le=MAX_SCREEN_SIDE)]
    width: Annotated[int, msgspec.Meta(gt=0, le=MAX_SCREEN_SIDE)]
    height: Annotated[int, msgspec.Meta(gt=0, le=MAX_SCREEN_SIDE)]


class ScreenRequestOptions(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Options of a screen request.

    Attributes:
        region: A rectangle or a window id; the whole screen when absent.
        widgets: Whether the response has the widgets.
    """

    region: Rectangle | int | None = None
    widgets: bool = False


class Pixels(msgspec.Struct, frozen=True):
    """A picture.

    Attributes:
        width: Width in pixels.
        height: Height in pixels.
        rgb: Red, green and blue, one byte each, row by row from the top; compressed with Zstandard.
    """

    width: int
    height: int
    rgb: bytes


class Frame(msgspec.Struct, frozen=True):
    """A video frame.

    Attributes:
        time: Seconds since the start of the step.
        pixels: Content of the screen from that time on; in JSON, a PNG in Base64.
    """

    time: float
    pixels: str | Pixels


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """A visible window, without the decorations of a window manager.

    Attributes:
        id: Its X window id.
        title: Its title; empty if it has none.
        x: Horizontal position of the upper left corner, in pixels from the left edge of the screen; may be negative.
        y: Vertical position of the upper left corner, in pixels from the top edge; may be negative.
        width: Width in pixels.
        height: Height in pixels.
        stacking: Stacking order, 0 for the bottom window; a window covers those with smaller numbers.
    """

    id: int
    title: str
    x: int
    y: int
    width: int
    height: int
    stacking: int


class Screen(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Content of the screen.

    Attributes:
        windows: The visible windows, in stacking order from the bottom.
        running: Whether a program of an earlier step is still running.
        screenshot: The requested region; in JSON, a PNG in Base64. Black if the screen is empty.
        widgets: The visible widgets in tree order, if they were requested.
    """

    windows: list[Window]
    running: bool
    screenshot: str | Pixels
    widgets: list[Widget] = []
