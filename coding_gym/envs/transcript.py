"""Rendering of episodes: the transcript as text, and as an image of a fixed size."""

from __future__ import annotations

import functools
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from PIL import ImageFont

__all__ = ["DEFAULT_FRAME_SIZE", "Turn", "draw_transcript", "format_transcript"]

DEFAULT_FRAME_SIZE = (640, 480)
"""Width and height of a frame if the environment has no screen."""

_BACKGROUND = (24, 24, 27)
_CODE = (228, 228, 231)
_STDOUT = (134, 239, 172)
_STDERR = (252, 165, 165)
_MARGIN = 8
_FONT_SIZE = 13
_FONTS = ("DejaVuSansMono.ttf", "LiberationMono-Regular.ttf", "Menlo.ttc", "consola.ttf")


@dataclass(frozen=True)
class Turn:
    """One step of an episode: its code and output."""

    code: str
    stdout: str
    stderr: str
    exit_code: int


def format_transcript(turns: list[Turn], *, header: str = "") -> str:
    """Format an episode as a REPL session below a header."""
    return "\n".join([*([header] if header else []), *(text for text, _ in _lines(turns))])


def draw_transcript(turns: list[Turn], size: tuple[int, int]) -> NDArray[np.uint8]:
    """Draw the end of an episode's transcript.

    Args:
        turns: The steps.
        size: Width and height in pixels.

    Returns:
        A uint8 array of shape (height, width, 3).
    """
    from PIL import Image, ImageDraw

    width, height = size
    image = Image.new("RGB", size, _BACKGROUND)
    draw = ImageDraw.Draw(image)
    font = _font()
    left, top, right, bottom = font.getbbox("Mg")
    columns = max(int((width - 2 * _MARGIN) // ((right - left) / 2)), 1)
    line_height = int(bottom - top) + 4
    rows = max((height - 2 * _MARGIN) // line_height, 1)
    wrapped = [(part, color) for text, color in _lines(turns[-rows:]) for part in _wrap(text, columns)]
    for row, (text, color) in enumerate(wrapped[-rows:]):
        draw.text((_MARGIN, _MARGIN + row * line_height), text, fill=color, font=font)
    return np.asarray(image).copy()


def _lines(turns: list[Turn]) -> list[tuple[str, tuple[int, int, int]]]:
    lines = []
    for turn in turns:
        code = turn.code.splitlines() or [""]
        lines += [(f"{'>>>' if number == 0 else '...'} {line}", _CODE) for number, line in enumerate(code)]
        lines += [(line, _STDOUT) for line in turn.stdout.splitlines()]
        lines += [(line, _STDERR) for line in turn.stderr.splitlines()]
        if turn.exit_code:
            lines.append((f"[exit code {turn.exit_code}]", _STDERR))
    return lines


def _wrap(text: str, columns: int) -> list[str]:
    return textwrap.wrap(text.expandtabs(4), columns, replace_whitespace=False, drop_whitespace=False) or [""]


@functools.cache
def _font() -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    from PIL import ImageFont

    for name in _FONTS:
        try:
            return ImageFont.truetype(name, _FONT_SIZE)
        except OSError:
            continue
    return ImageFont.load_default(_FONT_SIZE)
