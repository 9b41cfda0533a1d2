"""HTML for notebooks, in which the output of user code cannot become markup.

Elements are ``Html``; every other text is escaped when it is put into one. Colors are those of the notebook, or readable on
light and dark backgrounds.
"""

from __future__ import annotations

import base64
import html
import io
import itertools
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "MAX_ROWS",
    "Html",
    "caption",
    "clip",
    "colored",
    "document",
    "element",
    "folded",
    "foreign_document",
    "mark",
    "page",
    "picture",
    "png",
    "preformatted",
    "table",
]

MAX_ROWS = 20
"""Maximum number of rows of a table."""

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>:root {{ color-scheme: light dark }} body {{ font: 15px/1.5 sans-serif; margin: 2em auto; max-width: 70em }}</style>
</head>
<body>
{body}
</body>
</html>
"""
_MAX_CHARS = 4000
_MAX_CELL_CHARS = 200
_MAX_DOCUMENT_CHARS = 500_000
_POLICY = (
    '<meta http-equiv="Content-Security-Policy" '
    "content=\"default-src 'none'; img-src data:; font-src data:; media-src data:; style-src 'unsafe-inline'\">"
)
# Chromium connects to the host of a frame before it refuses to load it.
_FRAME = re.compile(r"<(?=i?frame)", re.IGNORECASE)
_GOOD, _BAD = "#2da44e", "#e5534b"
_BORDER = "1px solid rgba(128, 128, 128, 0.4)"
_BLOCK = (
    "white-space: pre-wrap; overflow-wrap: anywhere; max-height: 24em; overflow: auto; margin: 0.2em 0; padding: 0.3em 0.6em; "
    "background: rgba(128, 128, 128, 0.12); border-left: 3px solid {color}; text-align: left"
)


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


def element(name: str, *children: object, **attributes: str) -> Html:
    """Return an element; children that are not ``Html``, and the values of attributes, are escaped."""
    shown = "".join(f' {key.rstrip("_")}="{html.escape(value)}"' for key, value in attributes.items())
    return Html(f"<{name}{shown}>{''.join(map(_escape, children))}</{name}>")


def document(*children: object) -> Html:
    """Return the elements of a representation, one below the other."""
    return element("div", *children, style="max-width: 100%; overflow-x: auto; text-align: left")


def page(title: str, *children: object) -> str:
    """Return a whole page."""
    return _PAGE.format(title=html.escape(title), body="".join(map(_escape, children)))


def caption(*children: object) -> Html:
    """Return a line that names an object and summarizes it."""
    return element("div", *children, style="margin: 0.2em 0")


def colored(text: str, *, is_good: bool) -> Html:
    """Return bold text in green or red."""
    return element("b", text, style=f"color: {_GOOD if is_good else _BAD}")


def mark(value: bool | None) -> Html:
    """Return a tick, a cross, or nothing for None."""
    return Html("") if value is None else colored("\N{CHECK MARK}" if value else "\N{BALLOT X}", is_good=value)


def preformatted(text: str, *, is_error: bool = False) -> Html:
    """Return a block of text with its white space, clipped in the middle; nothing for empty text."""
    if not text:
        return Html("")
    return element("pre", clip(text), style=_BLOCK.format(color=_BAD if is_error else "rgba(128, 128, 128, 0.5)"))


def folded(title: object, *children: object) -> Html:
    """Return elements below a title that a click unfolds; nothing without elements."""
    if not any(children):
        return Html("")
    return element("details", element("summary", title), *children)


def table(header: Sequence[object], rows: Iterable[Sequence[object]], *, total: int) -> Html:
    """Return a table of the first rows; nothing without rows.

    Args:
        header: Titles of the columns.
        rows: Cells of the rows, ``Html`` or text, which is clipped; only the first ``MAX_ROWS`` are read.
        total: Number of rows.
    """
    if not total:
        return Html("")
    style = f"padding: 0.2em 0.6em; border-bottom: {_BORDER}; text-align: left; vertical-align: top"
    head = element("tr", *(element("th", title, style=style) for title in header))
    body = [
        element("tr", *(element("td", cell if isinstance(cell, Html) else _one_line(cell), style=style) for cell in row))
        for row in itertools.islice(rows, MAX_ROWS)
    ]
    more = caption(f"... and {total - MAX_ROWS} more") if total > MAX_ROWS else Html("")
    grid = element("table", element("thead", head), element("tbody", *body), style="border-collapse: collapse; margin: 0.3em 0")
    return Html(grid + more)


def picture(data: bytes, kind: str = "image/png", *, alt: str = "") -> Html:
    """Return an image; a browser runs no script of an SVG image that is shown like this."""
    source = f"data:{kind};base64,{base64.b64encode(data).decode()}"
    return Html(f'<img src="{html.escape(source)}" alt="{html.escape(alt)}" style="max-width: 100%; border: {_BORDER}">')


def png(pixels: NDArray[np.uint8]) -> bytes:
    """Return pixels, uint8 of shape (height, width, 3), as a PNG file."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "png", compress_level=1)
    return buffer.getvalue()


def foreign_document(text: str) -> Html:
    """Return an HTML document of unknown origin in a frame that runs no scripts, loads nothing, and has another origin."""
    if len(text) > _MAX_DOCUMENT_CHARS:
        return caption(f"[an HTML document of {len(text)} characters]")
    style = f"width: 100%; height: 18em; border: {_BORDER}; resize: vertical; background: white"
    return element("iframe", sandbox="", srcdoc=_POLICY + _FRAME.sub("&lt;", text), style=style)


def clip(text: str, limit: int = _MAX_CHARS) -> str:
    """Return text of at most about ``limit`` characters, without its middle if it is longer."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters ...]\n{text[-half:]}"


def _one_line(cell: object) -> str:
    text = str(cell)
    return text if len(text) <= _MAX_CELL_CHARS else f"{text[:_MAX_CELL_CHARS]} ..."


def _escape(child: Any) -> str:
    return child if isinstance(child, Html) else html.escape(str(child))
