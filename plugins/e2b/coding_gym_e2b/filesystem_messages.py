"""Messages of envd's service ``filesystem.Filesystem`` in JSON."""

from __future__ import annotations

import msgspec

__all__ = ["ListRequest", "MoveRequest", "PathRequest", "WatchRequest", "WatcherRequest"]


class PathRequest(msgspec.Struct):
    """A path."""

    path: str = ""


class MoveRequest(msgspec.Struct):
    """A file or directory to move."""

    source: str
    destination: str


class ListRequest(msgspec.Struct):
    """A directory to list."""

    path: str = ""
    depth: int = 1


class WatchRequest(msgspec.Struct, rename="camel"):
    """A directory to watch."""

    path: str = ""
    recursive: bool = False
    include_entry: bool = False


class WatcherRequest(msgspec.Struct, rename="camel"):
    """A watcher."""

    watcher_id: str
