"""Messages between the server and a session root about the user, mounts and file system of a session.

Each request but ``ShareSystem`` is the first to a root that has a user. It fails with ``messages.Failed``.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

__all__ = ["CreateSystem", "EnterOwnSystem", "JoinSystem", "Joined", "Mounted", "ShareSystem", "SystemShared"]


class EnterOwnSystem(msgspec.Struct, tag=True):
    """Request: give the session the user, mounts and a file system.

    Attributes:
        shares_files: Whether a test runner borrows its files.
        slots: Maximum number of forks of the session that exist at the same time.
        is_root: Whether the session's programs are root, and can change files of the system in their own one.
    """

    shares_files: bool = False
    slots: int = 0
    is_root: bool = False


class CreateSystem(msgspec.Struct, tag=True):
    """Request: make such a system for other roots, and exit."""


class JoinSystem(msgspec.Struct, tag=True):
    """Request: enter a system that another root has made. Passes its mount and IPC namespaces.

    Attributes:
        authority: Path of the X authority file of the session's screen.
    """

    DESCRIPTORS: ClassVar[int] = 2

    authority: str


class ShareSystem(msgspec.Struct, tag=True):
    """Request: pass what other roots need to join the system of a session, with ``JoinSystem``.

    Attributes:
        slot: Number of the session's slot.
    """

    slot: int


class Mounted(msgspec.Struct, tag=True):
    """Response to ``EnterOwnSystem`` and ``CreateSystem``.

    Passes a descriptor of the root directory of the file system. The response to ``CreateSystem`` also passes the mount and IPC
    namespaces. That to ``EnterOwnSystem`` passes the parent directory of those of forks if the session has slots, and the mount
    namespace if it shares its files.
    """


class Joined(msgspec.Struct, tag=True):
    """Response to ``JoinSystem``."""


class SystemShared(msgspec.Struct, tag=True):
    """Response to ``ShareSystem``. Passes the mount and IPC namespaces."""
