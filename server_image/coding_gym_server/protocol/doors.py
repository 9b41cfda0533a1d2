"""Frames of ``/sessions/{session}/doors``: connections of a session to its doors, in one WebSocket.

A door is a port of the session's loopback interface that leads to the client. Each binary frame has a header, the kind of the
frame and the number of a connection, and a content. A side sends at most ``WINDOW_BYTES`` of data that the other one has not
confirmed with ``WINDOW``.
"""

from __future__ import annotations

import struct
from enum import IntEnum

__all__ = ["FRAME_HEADER", "MAX_DOORS", "MAX_DOOR_CONNECTIONS", "MAX_PORT", "NUMBER", "WINDOW_BYTES", "FrameKind"]

FRAME_HEADER = struct.Struct("!BI")
"""Header of a frame: its ``FrameKind``, and the number of the connection, which the server chooses."""

NUMBER = struct.Struct("!I")
"""Content of ``OPEN``, the port of the door, and of ``WINDOW``, a number of bytes."""

MAX_PORT = 65_535
MAX_DOORS = 64
"""Maximum number of doors of a session."""

MAX_DOOR_CONNECTIONS = 64
"""Maximum number of open connections of a session to its doors; further ones wait."""

WINDOW_BYTES = 512 * 1024
"""Maximum number of bytes that a side sends ahead of their confirmation, but for the content of one read."""


class FrameKind(IntEnum):
    """Kind of a frame."""

    OPEN = 0
    """A program of the session has connected to a door. From the server only."""

    DATA = 1
    """Bytes of the connection."""

    END = 2
    """The side sends no more data, and still receives some."""

    RESET = 3
    """The connection has ended. Data that is on its way is lost."""

    WINDOW = 4
    """The side has passed on so many bytes of data since the last confirmation."""
