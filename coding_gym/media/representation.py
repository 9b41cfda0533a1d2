"""Representations of results and videos in notebooks."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coding_gym._html import Html, caption, document, foreign_document, picture, png, preformatted, table

__all__ = ["animated_gif", "result_bundle", "result_html", "video_html"]

_BITMAPS = ("image/png", "image/jpeg", "image/gif")
_MAX_FRAMES = 60
_MAX_GIF_BYTES = 4_000_000
_GIF_MILLISECONDS = 20
"""Shortest duration of a frame that viewers respect."""


def result_bundle(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a value or display of user code as a MIME bundle that is safe to show.

    Bitmaps and JSON are themselves. HTML, SVG and tables are isolated from the notebook. Formats that a notebook may execute,
    such as JavaScript and LaTeX, are left out: their plain text is shown.

    Args:
        data: Content by MIME type, see ``Result``.
    """
    bundle: dict[str, Any] = {"text/plain": str(data.get("text/plain") or f"[{', '.join(data)}]")}
    for kind in _BITMAPS:
        if isinstance(data.get(kind), bytes):
            return {**bundle, kind: base64.b64encode(data[kind]).decode()}
    if (rich := _rich(data)) is not None:
        bundle["text/html"] = document(rich)
    elif "application/json" in data:
        bundle["application/json"] = data["application/json"]
    return bundle


def result_html(data: Mapping[str, Any]) -> Html:
    """Return a value or display of user code as an element."""
    for kind in _BITMAPS:
        if isinstance(data.get(kind), bytes):
            return picture(data[kind], kind)
    rich = _rich(data)
    return preformatted(str(data.get("text/plain") or f"[{', '.join(data)}]")) if rich is None else rich


def video_html(frames: Sequence[NDArray[np.uint8]], times: Sequence[float], summary: str) -> Html:
    """Return a video as an animation.

    Args:
        frames: The frames, of which at most 60 are read.
        times: Their times in seconds.
        summary: Description of the video.
    """
    if not frames:
        return document(caption(summary))
    # Evenly spread, with the first and the last.
    chosen = sorted({round(index) for index in np.linspace(0, len(frames) - 1, min(len(frames), _MAX_FRAMES))})
    pictures = [frames[index] for index in chosen]
    shown = [times[index] for index in chosen]
    # The last one is shown for a second, before it repeats.
    durations = [max(int(1000 * (end - begin)), _GIF_MILLISECONDS) for begin, end in pairwise([*shown, shown[-1] + 1])]
    data = animated_gif(pictures, durations)
    if len(data) > _MAX_GIF_BYTES:
        return document(caption(f"{summary}; its last frame:"), picture(png(pictures[-1])))
    return document(caption(summary), picture(data, "image/gif", alt=summary))


def animated_gif(pictures: Sequence[NDArray[np.uint8]], durations: Sequence[int]) -> bytes:
    """Return a GIF file that repeats.

    Args:
        pictures: Its frames, uint8 of shape (height, width, 3).
        durations: Their durations in milliseconds.
    """
    from PIL import Image

    first, *others = map(Image.fromarray, pictures)
    buffer = io.BytesIO()
    first.save(buffer, "gif", save_all=True, append_images=others, duration=list(durations), loop=0)
    return buffer.getvalue()


def _rich(data: Mapping[str, Any]) -> Html | None:
    """Return the content that is more than text, None if there is none."""
    columns = data.get("e2b/data")
    if isinstance(columns, Mapping) and columns and all(isinstance(cells, list) for cells in columns.values()):
        count = max(map(len, columns.values()))
        return table(list(columns), zip(*columns.values(), strict=False), total=count)
    if isinstance(svg := data.get("image/svg+xml"), str):
        return picture(svg.encode(errors="replace"), "image/svg+xml")
    if isinstance(text := data.get("text/html"), str):
        return foreign_document(text)
    return None
