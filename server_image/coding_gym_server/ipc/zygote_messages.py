"""Messages between the server and the zygote."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from coding_gym_server.ipc.snapshot_messages import ForkSlotMaker, SlotMakerForked

__all__ = [
    "SLOT_MAKER",
    "SUBMISSION",
    "DisplayForked",
    "ForkDisplay",
    "ForkRoot",
    "ForkTestRunnerRoot",
    "FromZygote",
    "Ready",
    "RootForked",
    "TestRunnerRootForked",
    "ToZygote",
]

SUBMISSION = "submission"
"""Backend name of roots whose workers run submissions, which communicate with a test runner instead of the server."""

SLOT_MAKER = "slot maker"
"""Backend name of a zygote that makes namespaces for forks of sessions, and runs no code."""


class ForkRoot(msgspec.Struct, tag=True):
    """Request to the zygote: fork a session root. Passes the root's control socket.

    Attributes:
        directory: Parent of its directories, None for those of its user.
        backend: Name of the backend that executes its cells.
        user: Id of the session's user, None if it is the server's.
    """

    DESCRIPTORS: ClassVar[int] = 1

    directory: str | None
    backend: str
    user: int | None = None


class ForkDisplay(msgspec.Struct, tag=True):
    """Request to the zygote: fork a display process. Passes its control socket and the listening socket that it serves.

    Attributes:
        config: ``DisplayConfig`` of the display process in msgpack, opaque because its type is defined above this layer.
    """

    DESCRIPTORS: ClassVar[int] = 2

    config: bytes


class ForkTestRunnerRoot(msgspec.Struct, tag=True):
    """Request to the zygote: fork a root of test runners. Passes its control socket.

    Attributes:
        directory: Directory of the submissions that they test, None if it borrows their files.
    """

    DESCRIPTORS: ClassVar[int] = 1

    directory: str | None


class Ready(msgspec.Struct, tag=True):
    """First message of the zygote: the modules are imported.

    Attributes:
        missing: Modules to preload that are not installed.
    """

    missing: list[str]


class RootForked(msgspec.Struct, tag=True):
    """Response to ``ForkRoot``.

    Attributes:
        pid: The process id of the root, in the server's pid namespace.
    """

    pid: int


class DisplayForked(msgspec.Struct, tag=True):
    """Response to ``ForkDisplay``.

    Attributes:
        pid: The process id of the display process, in the server's pid namespace.
    """

    pid: int


class TestRunnerRootForked(msgspec.Struct, tag=True):
    """Response to ``ForkTestRunnerRoot``.

    Attributes:
        pid: The process id of the root, in the server's pid namespace.
    """

    pid: int


ToZygote = ForkRoot | ForkDisplay | ForkTestRunnerRoot | ForkSlotMaker
FromZygote = Ready | RootForked | DisplayForked | TestRunnerRootForked | SlotMakerForked
