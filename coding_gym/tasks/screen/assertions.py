"""Expectations about a graphical program after a step: windows, colors, pictures, output.

Correct programs differ in fonts, paddings and shades, so expectations are best expressed as shares: "half of this window is
red or nearly so" rather than "this pixel is #ff0000".
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from coding_gym_server.protocol import Window

__all__ = [
    "Area",
    "ChangedShare",
    "ColorShare",
    "Exited",
    "Expectation",
    "LooksLike",
    "MainColor",
    "Printed",
    "Running",
    "ScreenSnapshot",
    "WindowCount",
    "WindowShown",
]

Color = Annotated[str, msgspec.Meta(pattern="^#[0-9a-fA-F]{6}$")]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Distance = Annotated[int, msgspec.Meta(ge=0, le=255)]

Area = tuple[int, int, int, int] | str | None
"""Screen area: (x, y, width, height) in screen pixels, the title of a window, or None for the whole screen."""

_SHADES = 16
"""Bucket size per color channel when the most frequent shade is determined."""


@dataclass(frozen=True)
class ScreenSnapshot:
    """State of the screen and the program after a step.

    Attributes:
        screen: uint8, shape (height, width, 3). The last screen content if the program has exited and closed its windows.
        before: The same after the previous step; black before the first.
        windows: The visible windows, in stacking order from the bottom.
        stdout: All output of the program since it started.
        exit_code: Its exit code; None while it runs.
        ended_before: Whether it had already exited after the previous step.
    """

    screen: NDArray[np.uint8]
    before: NDArray[np.uint8]
    windows: tuple[Window, ...]
    stdout: str
    exit_code: int | None
    ended_before: bool


class _Expectation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="type"):
    """Condition on a screen snapshot."""

    def mismatch(self, snapshot: ScreenSnapshot) -> str | None:
        """Return a description of the mismatch; None if the expectation is met."""
        raise NotImplementedError


class WindowCount(_Expectation, tag="windows", frozen=True, kw_only=True):
    """The number of visible windows.

    Attributes:
        count: Number of windows.
    """

    count: Annotated[int, msgspec.Meta(ge=0)]

    def mismatch(self, snapshot: ScreenSnapshot) -> str | None:
        found = len(snapshot.windows)
        return None if found == self.count else f"expected {self.count} windows, found {found}{_titles(snapshot)}"


class WindowShown(_Expectation, tag="window", frozen=True, kw_only=True):
    """A window with a given title, position and size is visible.

    Attributes:
        title: Title; any if None.
        position: Position of its upper left corner, (x, y), in pixels; any if None.
        size: Its (width, height) in pixels; any if None.
        tolerance: Maximum deviation of each coordinate and dimension, in pixels.
    """

    title: str | None = None
    position: tuple[int, int] | None = None
    size: tuple[int, int] | None = None
    tolerance: Annotated[int, msgspec.Meta(ge=0)] = 2

    def mismatch(self, snapshot: ScreenSnapshot) -> str | None:
        if any(self._is(window) for window in snapshot.windows):
            return None
        expected = [repr(self.title)] if self.title is not None else []
        expected += [f"{size[0]} x {size[1]}" for size in (self.size,) if size is not None]
        expected += [f"at {place[0]}, {place[1]}" for place in (self.position,) if place is not None]
        return f"expected a window {' '.join(expected)}, found {_described(snapshot)}"

    def _is(self, window: Window) -> bool:
        return (
            (self.title is None or window.title == self.title)
            and self._is_near(self.position, (window.x, window.y))
            and self._is_near(self.size, (window.width, window.height))
        )

    def _is_near(self, expected: tuple[int, int] | None, found: tuple[int, int]) -> bool:
        return expected is None or all(abs(a - b) <= self.tolerance for a, b in zip(expected, found, strict=True))


class ColorShare(_Expectation, tag="color", frozen=True, kw_only=True):
    """The share of an area that has a color.

    Attributes:
        color: ``#rrggbb``.
        area: Area to check.
        at_least: Minimum share, from 0 to 1.
        at_most: Maximum share, from 0 to 1.
        tolerance: Maximum deviation of each color channel.
    """

    color: Color
    area: Area = None
    at_least: Share = 0.0
    at_most: Share = 1.0
    tolerance: Distance = 24

    def mismatch(self, snapshot: ScreenSnapshot) -> str | None:
        part = _part(snapshot.screen, snapshot, self.area)
        if isinstance(part, str):
            return part
        share = float((_distance(part, _rgb(self.color)) <= self.tolerance).mean())
        return _outside(share, self.at_least, self.at_most, f"of {_describe_area(self.area)} to be {self.color}")


class MainColor(_Expectation, tag="main_color", frozen=True, kw_only=True):
    """The most frequent shade of an area is near a color.

    Attributes:
        color: ``#rrggbb``.
        area: Area to check.
        tolerance: Maximum deviation of each color channel.
    """

    color: Color
    area: Area = None
    tolerance: Distance = 24

    def mismatch(self, snapshot: ScreenSnapshot) -> str | None:
        part = _part(snapshot.screen, snapshot, self.area)
        if isinstance(part, str):
            return part
        pixels = part.reshape(-1, 3)
        _, shade, counts = np.unique(pixels // _SHADES, axis=0, return_inverse=True, return_counts=True)
        found = np.median(pixels[shade.reshape(-1) == counts.argmax()], axis=0)
        if np.abs(found - _rgb(self.color)).max() <= self.tolerance:
            return None
        red, green, blue = (int(channel) for channel in found)
        return f"expected most of {_describe_area(self.area)} to be {self.color}, found #{red:02x}{green:02x}{blue:02x}"


class ChangedShare(_Expectation, tag="changed", frozen=True, kw_only=True):
    """The share of an area that has changed since the previous step.

    Attributes:
        area: Area to check.
        at_least: Minimum share, from 0 to 1.
        at_most: Maximum share; 0 if nothing may have changed.
        tolerance: Maximum difference of each color channel that does not count as a change.
    """

    area: Area = None
    at_least: Share = 0.0
    at_most: Share = 1.0
    tolerance: Distance = 8

    def mismatch(self, snapshot: ScreenSnapshot) -> str | None:
        now, before = _part(snapshot.screen, snapshot, self.area), _part(snapshot.before, snapshot, self.area)
        if isinstance(now, str) or isinstance(before, str):
            return str(now)
        share = float((_distance(now, before) > self.tolerance).mean())
        return _outside(share, self.at_least, self.at_most, f"of {_describe_area(self.area)} to have changed")


class LooksLike(_Expectation, tag="picture", frozen=True, kw_only=True):
    """An area matches a picture.

    Attributes:
        png: The picture as a PNG file; as text, in Base64. It has the size of the area.
        area: Area to check.
        at_least: Minimum share of matching pixels, from 0 to 1.
        tolerance: Maximum deviation of each color channel.
    """

    png: bytes
    area: Area = None
    at_least: Share = 0.95
    tolerance: Distance = 24

    def mismatch(self, snapshot: ScreenSnapshot) -> str | None:
        part = _part(snapshot.screen, snapshot, self.area)
        if isinstance(part, str):
            return part
        with Image.open(io.BytesIO(self.png)) as image:
            picture = np.asarray(image.convert("RGB"))
        if picture.shape != part.shape:
            sizes = [f"{shown.shape[1]} x {shown.shape[0]}" for shown in (picture, part)]
            return f"expected {_describe_area(self.area)} to be {sizes[0]} pixels, as the picture is, found {sizes[1]}"
        share = float((_distance(part, picture) <= self.tolerance).mean())
        return _outside(share, self.at_least, 1.0, f"of {_describe_area(self.area)} to be as in the picture")


class Printed(_Expectation, tag="stdout", frozen=True, kw_only=True):
    """The complete output of the program since it started. Ignores trailing whitespace on lines and trailing empty lines.

    Attributes:
        text: The expected output.
    """

    text: str

    def mismatch(self, snapshot: ScreenSnapshot) -> str | None:
        if _lines(snapshot.stdout) == _lines(self.text):
            return None
        return f"expected the output {self.text!r:.300}, found {snapshot.stdout!r:.300}"


class Running(_Expectation, tag="running", frozen=True, kw_only=True):
    """The program has not exited."""

    def mismatch(self, snapshot: ScreenSnapshot) -> str | None:
        return (
            None
            if snapshot.exit_code is None
            else f"expected the program to keep running, but it exited with {snapshot.exit_code}"
        )


class Exited(_Expectation, tag="exited", frozen=True, kw_only=True):
    """The program has exited in this step.

    Attributes:
        code: Its exit code.
    """

    code: Annotated[int, msgspec.Meta(ge=0, le=255)] = 0

    def mismatch(self, snapshot: ScreenSnapshot) -> str | None:
        if snapshot.exit_code is None:
            return "expected the program to end, but it is still running"
        if snapshot.ended_before:
            return "expected the program to end in this step, but it had ended before"
        return None if snapshot.exit_code == self.code else f"expected exit code {self.code}, found {snapshot.exit_code}"


Expectation = WindowCount | WindowShown | ColorShare | MainColor | ChangedShare | LooksLike | Printed | Running | Exited
"""Condition that must hold after a step."""


def _part(picture: NDArray[np.uint8], snapshot: ScreenSnapshot, area: Area) -> NDArray[np.uint8] | str:
    """Return the part of a picture that is on the screen, or an error message if there is none."""
    match area:
        case None:
            return picture
        case str():
            windows = [window for window in snapshot.windows if window.title == area]
            if not windows:
                return f"expected a window {area!r}, found {_described(snapshot)}"
            x, y, width, height = windows[-1].x, windows[-1].y, windows[-1].width, windows[-1].height
        case _:
            x, y, width, height = area
    part = picture[max(y, 0) : max(y + height, 0), max(x, 0) : max(x + width, 0)]
    return part if part.size else f"expected {_describe_area(area)} to be on the screen"


def _distance(pixels: NDArray[np.uint8], others: Any) -> NDArray[np.int16]:
    """Return the largest difference of the color channels of each pixel."""
    distance: NDArray[np.int16] = np.abs(pixels.astype(np.int16) - others).max(axis=-1)
    return distance


def _rgb(color: str) -> NDArray[np.int16]:
    return np.array([int(color[start : start + 2], 16) for start in (1, 3, 5)], np.int16)


def _outside(share: float, at_least: float, at_most: float, quantity: str) -> str | None:
    if at_least <= share <= at_most:
        return None
    return f"expected {at_least:.1%} to {at_most:.1%} {quantity}, found {share:.1%}"


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().splitlines()]


def _describe_area(area: Area) -> str:
    return "the screen" if area is None else f"the window {area!r}" if isinstance(area, str) else f"the area {area}"


def _titles(snapshot: ScreenSnapshot) -> str:
    return f": {', '.join(repr(window.title) for window in snapshot.windows)}" if snapshot.windows else ""


def _described(snapshot: ScreenSnapshot) -> str:
    found = [f"{window.title!r} {window.width} x {window.height} at {window.x}, {window.y}" for window in snapshot.windows]
    return ", ".join(found) or "none"
