"""Messages between the server and the process of a session that opens files and listening sockets for it."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from coding_gym_server.workspace.files import DirectoryEntry

__all__ = [
    "Done",
    "Entries",
    "FileRequest",
    "FileResponse",
    "Finish",
    "List",
    "Listen",
    "Open",
    "Opened",
    "Refused",
    "Remove",
    "Upload",
]


class List(msgspec.Struct, tag=True):
    """Request: list a directory, with ``Entries``."""

    path: str


class Open(msgspec.Struct, tag=True):
    """Request: open a file for reading, with ``Opened``."""

    path: str


class Upload(msgspec.Struct, tag=True):
    """Request: open a new file that is to replace the one at a path, with ``Opened``; the next request is ``Finish``."""

    path: str
    is_executable: bool


class Finish(msgspec.Struct, tag=True):
    """Request: move a new file, which is complete, to its path."""


class Remove(msgspec.Struct, tag=True):
    """Request: remove a file or a directory."""

    path: str


class Listen(msgspec.Struct, tag=True):
    """Request: listen at a TCP port of the session's loopback interface, with ``Opened``."""

    port: int


class Entries(msgspec.Struct, tag=True):
    """Response: the entries of a directory."""

    entries: list[DirectoryEntry]


class Opened(msgspec.Struct, tag=True):
    """Response: an open file or socket, whose descriptor it passes.

    Attributes:
        is_new: Whether there was none at the path of an upload.
    """

    DESCRIPTORS: ClassVar[int] = 1

    is_new: bool = False


class Done(msgspec.Struct, tag=True):
    """Response: the request has been fulfilled."""


class Refused(msgspec.Struct, tag=True):
    """Response: the request cannot be fulfilled.

    Attributes:
        reason: Why not.
        is_missing: Whether the path does not exist.
        is_storage: Whether nothing is wrong with the path.
    """

    reason: str
    is_missing: bool = False
    is_storage: bool = False


FileRequest = List | Open | Upload | Finish | Remove | Listen
FileResponse = Entries | Opened | Done | Refused
