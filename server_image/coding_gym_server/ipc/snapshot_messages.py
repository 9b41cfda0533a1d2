"""Messages about copies of a worker: frozen ones, and the workers that are made of these."""

from __future__ import annotations

from typing import ClassVar

import msgspec

__all__ = [
    "AdoptCopy",
    "CopyAdopted",
    "CopyWorker",
    "Freezable",
    "Freeze",
    "FromBranching",
    "KillCopy",
    "KillLive",
    "NotFreezable",
    "Thaw",
    "ToBranching",
    "WorkerCopied",
]


class Freeze(msgspec.Struct, tag=True):
    """Request to a worker between two cells: report whether a copy of it would be faithful, and wait for ``CopyWorker``."""


class Freezable(msgspec.Struct, tag=True):
    """Response to ``Freeze``: a copy would be faithful."""


class NotFreezable(msgspec.Struct, tag=True):
    """Response to ``Freeze``: the worker goes on to the next request.

    Attributes:
        reasons: What a copy would lack.
    """

    reasons: list[str]


class CopyWorker(msgspec.Struct, tag=True):
    """Request to a worker that is freezable: leave a frozen copy. Passes the copy's channel."""

    DESCRIPTORS: ClassVar[int] = 1


class Thaw(msgspec.Struct, tag=True):
    """Request to a frozen copy: make a worker that goes on from its state. Passes the worker's channel, stdout and stderr.

    The copy responds when it has forked the worker, and the worker on its own channel when it is ready.

    Attributes:
        seed: Seed of ``random`` and ``numpy.random`` in hexadecimal; None leaves the generators in their state.
        display: The display's name, or None without a screen.
        display_cookie: The X authority cookie that programs must present to connect.
    """

    DESCRIPTORS: ClassVar[int] = 3

    seed: str | None = None
    display: str | None = None
    display_cookie: bytes = b""


class WorkerCopied(msgspec.Struct, tag=True):
    """Response to ``CopyWorker`` and ``Thaw``.

    Attributes:
        pid: Process id of the copy, in the server's pid namespace.
    """

    pid: int


class AdoptCopy(msgspec.Struct, tag=True):
    """Request to a root: treat a child that it does not know as a frozen copy, or as the session's worker.

    Attributes:
        pid: Process id of the child.
        is_worker: Whether it is the worker.
    """

    pid: int
    is_worker: bool


class CopyAdopted(msgspec.Struct, tag=True):
    """Response to ``AdoptCopy``."""


class KillLive(msgspec.Struct, tag=True):
    """Request to a root: kill all processes of the session except frozen copies. The response is ``Killed``."""


class KillCopy(msgspec.Struct, tag=True):
    """Request to a root: kill a frozen copy. The response is ``Killed``.

    Attributes:
        pid: Its process id.
    """

    pid: int


ToBranching = Freeze | CopyWorker | Thaw | AdoptCopy | KillLive | KillCopy
FromBranching = Freezable | NotFreezable | WorkerCopied | CopyAdopted
