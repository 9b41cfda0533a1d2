"""Frames of ``/ws/shared``: one connection of many sessions."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

import msgspec

__all__ = ["MAX_CHANNELS", "MAX_PART_BYTES", "Packet", "PacketKind", "frames_of"]

MAX_CHANNELS = 1024
"""Maximum number of open channels of a connection."""

MAX_PART_BYTES = 1024 * 1024
"""Size in bytes above which a client sends a message in parts, so that those of other channels fit in between."""

_MAX_FRAME_BYTES = 4 * MAX_PART_BYTES


class PacketKind(IntEnum):
    """Kind of a packet."""

    OPEN = 0
    """Opens a channel. From the client, the body is the query of ``/ws``; from the server, the id of the session, or empty if
    it refuses the session: a message with the reason follows."""

    MESSAGE = 1
    """A message as msgpack, or its last part."""

    PART = 2
    """A part of a message, which continues in the next packet of the channel. From the client only."""

    TEXT = 3
    """A message as JSON. From the server only."""

    CLOSE = 4
    """Closes a channel. From the server: the body is the code of the closure in decimal digits; it also confirms the closure by
    the client."""


class Packet(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """Part of a frame that belongs to one channel. A frame is an array of packets.

    Attributes:
        channel: Number of the channel, chosen by the client.
        kind: The kind.
        body: The content.
    """

    channel: int
    kind: PacketKind
    body: bytes = b""


def frames_of(packets: Iterable[Packet]) -> list[list[Packet]]:
    """Distribute packets to frames of bounded size; a larger packet has one of its own."""
    frames: list[list[Packet]] = []
    size = _MAX_FRAME_BYTES + 1
    for packet in packets:
        size += len(packet.body)
        if size > _MAX_FRAME_BYTES:
            frames.append([])
            size = len(packet.body)
        frames[-1].append(packet)
    return frames
