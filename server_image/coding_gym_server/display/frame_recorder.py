"""Video recording of a step: a frame for each change of the screen, up to a maximum frame rate."""

from __future__ import annotations

from coding_gym_server.display.framebuffer import Framebuffer
from coding_gym_server.protocol import Frame

__all__ = ["FrameRecorder"]

_MAX_BYTES = 12 * 1024 * 1024
_MAX_FRAMES = 2000


class FrameRecorder:
    """Record the frames of a video; halve the frame rate whenever the video becomes too large.

    Args:
        framebuffer: Framebuffer of the screen.
        rate: Maximum number of frames per second.
        began: Start of the step, as returned by ``time.monotonic``.
    """

    def __init__(self, framebuffer: Framebuffer, rate: float, *, began: float) -> None:
        self._framebuffer = framebuffer
        self._interval = 1 / rate
        self._began = began
        self._due = began
        self._is_stale = True
        self._last: bytes | None = None
        self._sizes: list[int] = []
        self.frames: list[Frame] = []

    def record(self, now: float, *, has_changed: bool) -> None:
        """Take a frame if one is due.

        Args:
            now: Current time, as returned by ``time.monotonic``.
            has_changed: Whether the screen has changed since the last call.
        """
        self._is_stale |= has_changed
        if now < self._due or not self._is_stale:
            return
        self._is_stale = False
        self._due = max(self._due + self._interval, now)
        picture = self._framebuffer.picture(self._framebuffer.snapshot())
        # The last frame may show the change already: it was taken after the picture that the change was found in.
        if picture.rgb == self._last:
            return
        self._last = picture.rgb
        self.frames.append(Frame(now - self._began, picture))
        self._sizes.append(len(picture.rgb))
        if sum(self._sizes) > _MAX_BYTES or len(self.frames) > _MAX_FRAMES:
            self._halve()

    def _halve(self) -> None:
        del self.frames[1::2], self._sizes[1::2]
        self._interval *= 2
