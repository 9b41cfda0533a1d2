"""Messages between the server and the roots that import libraries before they fork."""

from __future__ import annotations

import msgspec

__all__ = ["ImportLibraries", "LibrariesImported"]


class ImportLibraries(msgspec.Struct, tag=True):
    """Request to a root, before its first fork: import modules that are installed, and ignore all others.

    Attributes:
        names: Their names.
    """

    names: list[str]


class LibrariesImported(msgspec.Struct, tag=True):
    """Response to ``ImportLibraries``."""
