"""Pictures of screens for the page, which the trainer sends as it has received them."""

from __future__ import annotations

import io

from PIL import Image

from coding_gym.media.frames import decode_pixels
from coding_gym_server.protocol import Pixels
from coding_gym_studio.watching.messages import ScreenReply

__all__ = ["to_png"]


def to_png(screen: ScreenReply, *, width: int | None) -> bytes | None:
    """Return a screen as a PNG file; None if it is black.

    Args:
        screen: The screen.
        width: The largest width in pixels; None for the screen's own.

    Raises:
        ProtocolError: If the picture is malformed.
    """
    if screen.rgb is None:
        return None
    picture = Image.fromarray(decode_pixels(Pixels(screen.width, screen.height, screen.rgb)))
    if width is not None and width < screen.width:
        height = max(round(screen.height * width / screen.width), 1)
        # In two steps: first to a small multiple, which is fast.
        picture = picture.resize((width, height), Image.Resampling.BILINEAR, reducing_gap=2.0)
    buffer = io.BytesIO()
    picture.save(buffer, "PNG", compress_level=3)
    return buffer.getvalue()
