"""Messages about copies of a worker: frozen ones, and the workers that are made of these."""

from __future__ import annotations

from typing import ClassVar

import msgspec

__all__ = [
    "FIRST_SLOT",
    "AdoptCopy",
    "CheckAlone",
    "CloseSlot",
    "CopyAdopted",
    "CopyWorker",
    "EnterSlot",
    "ForkSlotMaker",
    "Freezable",
    "Freeze",
    "FromBranching",
    "KillCopy",
    "NamespacesShared",
    "NotFreezable",
    "OpenSlot",
    "Resume",
    "SealSlot",
    "ShareNamespaces",
    "SlotMade",
    "SlotMakerForked",
    "StayFrozen",
    "Thaw",
    "ToBranching",
    "WorkerCopied",
]

FIRST_SLOT = 0
"""Number of the slot of the session that a root was forked for; forks have others."""


class Freeze(msgspec.Struct, tag=True):
    """Request to a worker between two cells: report whether a copy of it would be faithful."""


class Freezable(msgspec.Struct, tag=True):
    """Response to ``Freeze``: a copy would be faithful, until the next request that is neither of the next two."""


class NotFreezable(msgspec.Struct, tag=True):
    """Response to ``Freeze``.

    Attributes:
        reasons: What a copy would lack.
    """

    reasons: list[str]


class CopyWorker(msgspec.Struct, tag=True):
    """Request to a worker that is freezable: leave a frozen copy. Passes the copy's channel."""

    DESCRIPTORS: ClassVar[int] = 1


class StayFrozen(msgspec.Struct, tag=True):
    """Request to a worker that is freezable: become the frozen copy itself. Passes its new channel."""

    DESCRIPTORS: ClassVar[int] = 1


class Thaw(msgspec.Struct, tag=True):
    """Request to a frozen copy: fork a worker, or become one. Passes the worker's channel, stdout and stderr.

    Attributes:
        fork: Whether to fork, and to stay frozen.
    """

    DESCRIPTORS: ClassVar[int] = 3

    fork: bool


class Resume(msgspec.Struct, tag=True):
    """Request to a worker that was forked from a frozen copy: continue from its state. It responds when it is ready.

    Attributes:
        seed: Seed of ``random`` and ``numpy.random`` in hexadecimal; None leaves the generators in their state.
        display: The display's name, or None without a screen.
        display_cookie: The X authority cookie that programs must present to connect.
    """

    seed: str | None = None
    display: str | None = None
    display_cookie: bytes = b""


class WorkerCopied(msgspec.Struct, tag=True):
    """Response to ``CopyWorker``, ``StayFrozen``, ``Thaw`` and ``Resume``.

    Attributes:
        pid: Process id of the copy, in its own pid namespace.
    """

    pid: int


class AdoptCopy(msgspec.Struct, tag=True):
    """Request to a root: treat a child as a frozen copy, or as the worker of a slot. It is a new one, or has been the other.

    A child that is to be the worker of another slot than it was copied in may then join the namespaces of this one, once.

    Attributes:
        pid: Process id of the child in its own pid namespace, as it claims; 0 for the original itself.
        original: Process id of the process that it is a copy of.
        is_worker: Whether it is the worker.
        slot: Number of the slot that it is a worker of, or a copy of the worker of.
    """

    pid: int
    original: int
    is_worker: bool
    slot: int = FIRST_SLOT


class CheckAlone(msgspec.Struct, tag=True):
    """Request to a root: check that a slot has no background processes.

    Attributes:
        slot: Number of the slot.
    """

    slot: int


class CopyAdopted(msgspec.Struct, tag=True):
    """Response to ``CheckAlone``, ``AdoptCopy``, ``OpenSlot`` and ``SealSlot``.

    Attributes:
        pid: Process id of the adopted child, or of the sealed worker, in the root's pid namespace; else 0.
    """

    pid: int = 0


class ShareNamespaces(msgspec.Struct, tag=True):
    """Request to a root: pass what a slot for a fork is made of.

    Attributes:
        pid: Process id of a frozen copy.
    """

    pid: int


class NamespacesShared(msgspec.Struct, tag=True):
    """Response to ``ShareNamespaces``. Passes the copy's user and pid namespaces, and the session's mount namespace."""


class ForkSlotMaker(msgspec.Struct, tag=True):
    """Request to a zygote: make the namespaces of a slot.

    Passes a socket for the response, what ``NamespacesShared`` passes, and the parent directory of the directories of forks.

    Attributes:
        number: Number of the slot.
    """

    DESCRIPTORS: ClassVar[int] = 5

    number: int


class SlotMakerForked(msgspec.Struct, tag=True):
    """Response to ``ForkSlotMaker``: a process makes the namespaces, and responds on the socket.

    Attributes:
        pid: Its process id.
    """

    pid: int


class SlotMade(msgspec.Struct, tag=True):
    """Response of the slot's init on the socket of ``ForkSlotMaker``. Passes a pidfd of it, and the slot's namespaces."""


class OpenSlot(msgspec.Struct, tag=True):
    """Request to a root: open a slot for a fork. Passes the channel of its init, and what ``SlotMade`` passes.

    Attributes:
        slot: Its number.
    """

    DESCRIPTORS: ClassVar[int] = 8

    slot: int


class EnterSlot(msgspec.Struct, tag=True):
    """Request to a worker before ``Resume``: join the namespaces of its slot, which are passed, and continue in a child."""

    DESCRIPTORS: ClassVar[int] = 6


class SealSlot(msgspec.Struct, tag=True):
    """Request to a root: check that the new worker of a slot has joined its namespaces and has no capabilities in them.

    Attributes:
        slot: Number of the slot.
    """

    slot: int


class CloseSlot(msgspec.Struct, tag=True):
    """Request to a root: kill all processes of a slot except frozen copies, and forget it. The response is ``Killed``.

    Attributes:
        slot: Its number.
    """

    slot: int


class KillCopy(msgspec.Struct, tag=True):
    """Request to a root: kill a frozen copy. The response is ``Killed``.

    Attributes:
        pid: Its process id.
    """

    pid: int


ToBranching = (
    Freeze
    | CopyWorker
    | StayFrozen
    | Thaw
    | EnterSlot
    | Resume
    | CheckAlone
    | AdoptCopy
    | ShareNamespaces
    | OpenSlot
    | SealSlot
    | CloseSlot
    | KillCopy
)
FromBranching = Freezable | NotFreezable | WorkerCopied | CopyAdopted | NamespacesShared | SlotMade
