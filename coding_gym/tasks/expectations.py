"""What a step with a program that has windows should show: windows, colours, pictures, output.

Reasonable programs differ in fonts, paddings and shades, so what is expected is best said in shares: "half of this window is
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
    "Sight",
    "WindowCount",
    "WindowShown",
]

Color = Annotated[str, msgspec.Meta(pattern="^#[0-9a-fA-F]{6}$")]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Distance = Annotated[int, msgspec.Meta(ge=0, le=255)]

Area = tuple[int, int, int, int] | str | None
"""Where to look: (x, y, width, height) in pixels of the screen, the title of a window, or None for all of the screen."""

_SHADES = 16
"""How much two colours of a channel may differ to be of one shade, where the most frequent is looked for."""


@dataclass(frozen=True)
class Sight:
    """What there is after a step.

    Attributes:
        screen: uint8, shape (height, width, 3). Of a program that has ended and taken its windows along, what it showed last.
        before: The same after the step before; black before the first.
        windows: The windows that can be seen, the lowest first.
        stdout: What the program has printed since it began.
        exit_code: Its exit code; None while it runs.
        ended_before: Whether it had ended already after the step before.
    """

    screen: NDArray[np.uint8]
    before: NDArray[np.uint8]
    windows: tuple[Window, ...]
    stdout: str
    exit_code: int | None
    ended_before: bool


class _Expectation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="type"):
    """Something that is true of a sight, or is not."""

    def fault(self, sight: Sight) -> str | None:
        """Say what is wrong; None if nothing is."""
        raise NotImplementedError


class WindowCount(_Expectation, tag="windows", frozen=True, kw_only=True):
    """So many windows can be seen.

    Attributes:
        count: How many.
    """

    count: Annotated[int, msgspec.Meta(ge=0)]

    def fault(self, sight: Sight) -> str | None:
        found = len(sight.windows)
        return None if found == self.count else f"expected {self.count} windows, found {found}{_titles(sight)}"


class WindowShown(_Expectation, tag="window", frozen=True, kw_only=True):
    """There is a window of a title, a place and a size.

    Attributes:
        title: What it is called; any if None.
        position: Of its upper left corner, (x, y); any if None.
        size: Its (width, height); any if None.
        tolerance: How many pixels places and sizes may be off.
    """

    title: str | None = None
    position: tuple[int, int] | None = None
    size: tuple[int, int] | None = None
    tolerance: Annotated[int, msgspec.Meta(ge=0)] = 2

    def fault(self, sight: Sight) -> str | None:
        if any(self._is(window) for window in sight.windows):
            return None
        wanted = [repr(self.title)] if self.title is not None else []
        wanted += [f"{size[0]} x {size[1]}" for size in (self.size,) if size is not None]
        wanted += [f"at {place[0]}, {place[1]}" for place in (self.position,) if place is not None]
        return f"expected a window {' '.join(wanted)}, found {_described(sight)}"

    def _is(self, window: Window) -> bool:
        return (
            (self.title is None or window.title == self.title)
            and self._near(self.position, (window.x, window.y))
            and self._near(self.size, (window.width, window.height))
        )

    def _near(self, wanted: tuple[int, int] | None, found: tuple[int, int]) -> bool:
        return wanted is None or all(abs(a - b) <= self.tolerance for a, b in zip(wanted, found, strict=True))


class ColorShare(_Expectation, tag="color", frozen=True, kw_only=True):
    """A share of an area has a colour.

    Attributes:
        color: ``#rrggbb``.
        area: Where.
        at_least: The smallest share, from 0 to 1.
        at_most: The largest share.
        tolerance: How much red, green and blue may each be off.
    """

    color: Color
    area: Area = None
    at_least: Share = 0.0
    at_most: Share = 1.0
    tolerance: Distance = 24

    def fault(self, sight: Sight) -> str | None:
        part = _part(sight.screen, sight, self.area)
        if isinstance(part, str):
            return part
        share = float((_distance(part, _rgb(self.color)) <= self.tolerance).mean())
        return _outside(share, self.at_least, self.at_most, f"of {_place(self.area)} to be {self.color}")


class MainColor(_Expectation, tag="main_color", frozen=True, kw_only=True):
    """The most frequent shade of an area is near a colour.

    Attributes:
        color: ``#rrggbb``.
        area: Where.
        tolerance: How much red, green and blue may each be off.
    """

    color: Color
    area: Area = None
    tolerance: Distance = 24

    def fault(self, sight: Sight) -> str | None:
        part = _part(sight.screen, sight, self.area)
        if isinstance(part, str):
            return part
        pixels = part.reshape(-1, 3)
        _, shade, counts = np.unique(pixels // _SHADES, axis=0, return_inverse=True, return_counts=True)
        found = np.median(pixels[shade.reshape(-1) == counts.argmax()], axis=0)
        if np.abs(found - _rgb(self.color)).max() <= self.tolerance:
            return None
        red, green, blue = (int(channel) for channel in found)
        return f"expected most of {_place(self.area)} to be {self.color}, found #{red:02x}{green:02x}{blue:02x}"


class ChangedShare(_Expectation, tag="changed", frozen=True, kw_only=True):
    """A share of an area is another than after the step before.

    Attributes:
        area: Where.
        at_least: The smallest share, from 0 to 1.
        at_most: The largest share; 0 if nothing may have changed.
        tolerance: How much red, green and blue may each differ without having changed.
    """

    area: Area = None
    at_least: Share = 0.0
    at_most: Share = 1.0
    tolerance: Distance = 8

    def fault(self, sight: Sight) -> str | None:
        now, before = _part(sight.screen, sight, self.area), _part(sight.before, sight, self.area)
        if isinstance(now, str) or isinstance(before, str):
            return str(now)
        share = float((_distance(now, before) > self.tolerance).mean())
        return _outside(share, self.at_least, self.at_most, f"of {_place(self.area)} to have changed")


class LooksLike(_Expectation, tag="picture", frozen=True, kw_only=True):
    """An area shows a picture.

    Attributes:
        png: The picture, a PNG file; as text, in base64. It has the size of the area.
        area: Where.
        at_least: The smallest share of pixels that are the same.
        tolerance: How much red, green and blue may each be off.
    """

    png: bytes
    area: Area = None
    at_least: Share = 0.95
    tolerance: Distance = 24

    def fault(self, sight: Sight) -> str | None:
        part = _part(sight.screen, sight, self.area)
        if isinstance(part, str):
            return part
        with Image.open(io.BytesIO(self.png)) as image:
            picture = np.asarray(image.convert("RGB"))
        if picture.shape != part.shape:
            sizes = [f"{shown.shape[1]} x {shown.shape[0]}" for shown in (picture, part)]
            return f"expected {_place(self.area)} to be {sizes[0]} pixels, as the picture is, found {sizes[1]}"
        share = float((_distance(part, picture) <= self.tolerance).mean())
        return _outside(share, self.at_least, 1.0, f"of {_place(self.area)} to be as in the picture")


class Printed(_Expectation, tag="stdout", frozen=True, kw_only=True):
    """The program has printed a text since it began. Blanks at the ends of lines, and empty lines at the end, do not count.

    Attributes:
        text: All of it.
    """

    text: str

    def fault(self, sight: Sight) -> str | None:
        if _lines(sight.stdout) == _lines(self.text):
            return None
        return f"expected the output {self.text!r:.300}, found {sight.stdout!r:.300}"


class Running(_Expectation, tag="running", frozen=True, kw_only=True):
    """The program has not ended."""

    def fault(self, sight: Sight) -> str | None:
        return None if sight.exit_code is None else f"expected the program to run on, it has ended with {sight.exit_code}"


class Exited(_Expectation, tag="exited", frozen=True, kw_only=True):
    """The program has ended in this step.

    Attributes:
        code: Its exit code.
    """

    code: Annotated[int, msgspec.Meta(ge=0, le=255)] = 0

    def fault(self, sight: Sight) -> str | None:
        if sight.exit_code is None:
            return "expected the program to end, it runs on"
        if sight.ended_before:
            return "expected the program to end in this step, it had ended before"
        return None if sight.exit_code == self.code else f"expected exit code {self.code}, found {sight.exit_code}"


Expectation = WindowCount | WindowShown | ColorShare | MainColor | ChangedShare | LooksLike | Printed | Running | Exited
"""Something that is to be true after a step."""


def _part(picture: NDArray[np.uint8], sight: Sight, area: Area) -> NDArray[np.uint8] | str:
    """Return the part of a picture that is on the screen, or say why there is none."""
    match area:
        case None:
            return picture
        case str():
            windows = [window for window in sight.windows if window.title == area]
            if not windows:
                return f"expected a window {area!r}, found {_described(sight)}"
            x, y, width, height = windows[-1].x, windows[-1].y, windows[-1].width, windows[-1].height
        case _:
            x, y, width, height = area
    part = picture[max(y, 0) : max(y + height, 0), max(x, 0) : max(x + width, 0)]
    return part if part.size else f"expected {_place(area)} to be on the screen"


def _distance(pixels: NDArray[np.uint8], others: Any) -> NDArray[np.int16]:
    """Return how far colours are apart, in the channel in which they are farthest."""
    distance: NDArray[np.int16] = np.abs(pixels.astype(np.int16) - others).max(axis=-1)
    return distance


def _rgb(color: str) -> NDArray[np.int16]:
    return np.array([int(color[start : start + 2], 16) for start in (1, 3, 5)], np.int16)


def _outside(share: float, at_least: float, at_most: float, what: str) -> str | None:
    if at_least <= share <= at_most:
        return None
    return f"expected {at_least:.1%} to {at_most:.1%} {what}, found {share:.1%}"


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().splitlines()]


def _place(area: Area) -> str:
    return "the screen" if area is None else f"the window {area!r}" if isinstance(area, str) else f"the area {area}"


def _titles(sight: Sight) -> str:
    return f": {', '.join(repr(window.title) for window in sight.windows)}" if sight.windows else ""


def _described(sight: Sight) -> str:
    found = [f"{window.title!r} {window.width} x {window.height} at {window.x}, {window.y}" for window in sight.windows]
    return ", ".join(found) or "none"
