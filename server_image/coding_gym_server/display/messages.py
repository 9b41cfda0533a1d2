"""What the server and a display process say to each other.

The server asks; what comes unasked is ``Idle``, when the programs come to rest while they are watched, and when it lasts.
"""

from __future__ import annotations

import msgspec

from coding_gym_server.protocol import Capture, Frame, InputEvent, Pixels, Rectangle, Window

__all__ = [
    "CloseWindows",
    "Closed",
    "DisplayConfig",
    "FromDisplay",
    "Idle",
    "Perform",
    "Performed",
    "Refused",
    "Scene",
    "Show",
    "Shown",
    "Take",
    "ToDisplay",
    "Wake",
    "Watch",
]


class Watch(msgspec.Struct, tag=True):
    """A step begins: forget what was seen before it, and say when the programs are idle. Not answered.

    Attributes:
        worker: The process that runs the cell.
        frame_rate: Frames a second of the video; none if None.
        patience: Seconds after which programs that have windows count as idle in any case; never if None.
    """

    worker: int
    frame_rate: float | None = None
    patience: float | None = None


class DisplayConfig(msgspec.Struct, kw_only=True):
    """What a display process is forked with.

    Attributes:
        directory: Its own, which it removes in the end.
        width: Of the screen in pixels.
        height: Likewise.
        cookie: What clients must present.
        window_manager: Whether one runs, once there is a client.
        opengl: Whether Xvfb offers GLX.
        watch: The step in which its first program connects.
    """

    directory: str
    width: int
    height: int
    cookie: bytes
    window_manager: bool = False
    opengl: bool = False
    watch: Watch | None = None


class Take(msgspec.Struct, tag=True):
    """A step ends, or pauses: answer with ``Scene`` as soon as the screen has settled.

    Attributes:
        capture: When there is to be a picture.
        settle: The most seconds to wait until the screen is quiet.
        keep_watching: Whether programs run on that may still become idle.
    """

    capture: Capture
    settle: float
    keep_watching: bool = False


class Show(msgspec.Struct, tag=True):
    """Show the screen as it is, and its windows; answered by ``Shown``, or ``Refused`` where there is no such window.

    Attributes:
        region: A rectangle, or a window by its id; the whole screen if None.
    """

    region: Rectangle | int | None = None


class CloseWindows(msgspec.Struct, tag=True):
    """Ask all windows to close, as a click on their cross does."""


class Wake(msgspec.Struct, tag=True):
    """Have every window drawn anew, so that toolkits that wait for events notice that a signal has come. Not answered."""


class Perform(msgspec.Struct, tag=True):
    """Do what hands do; answered by ``Performed`` when it is done, or ``Refused`` before anything is.

    Attributes:
        events: What.
    """

    events: list[InputEvent]


class Idle(msgspec.Struct, tag=True):
    """Unasked: the screen has settled, and every program that has a window waits for events, or patience is over.

    Attributes:
        programs: The pids of those that are connected.
        is_lasting: Whether the screen has been still for longer than any animation is between two frames.
    """

    programs: list[int]
    is_lasting: bool


class Scene(msgspec.Struct, tag=True):
    """The answer to ``Take``.

    Attributes:
        picture: What the screen shows, or, if nothing, what it showed last in this step before windows vanished; None if there
            was nothing to see, or nobody wanted to.
        is_live: Whether there is something on the screen as it is, so that the picture is of that.
        is_blank: Whether there is nothing but black on it.
        is_new: Whether something was drawn in this step.
        frames: The video.
    """

    picture: Pixels | None
    is_live: bool
    is_blank: bool
    is_new: bool
    frames: list[Frame]


class Shown(msgspec.Struct, tag=True):
    """The answer to ``Show``."""

    picture: Pixels
    windows: list[Window]


class Closed(msgspec.Struct, tag=True):
    """The answer to ``CloseWindows``: they have been asked."""


class Performed(msgspec.Struct, tag=True):
    """The answer to ``Perform``."""


class Refused(msgspec.Struct, tag=True):
    """The answer to what cannot be done."""

    reason: str


ToDisplay = Watch | Take | Show | CloseWindows | Wake | Perform
FromDisplay = Idle | Scene | Shown | Closed | Performed | Refused
