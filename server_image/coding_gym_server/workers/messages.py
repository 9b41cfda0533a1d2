"""What the server, the zygote, the session roots and the workers say to each other.

Every channel is a socket pair that carries length-prefixed msgpack. The server is the only one that asks; the one message that
comes unasked is ``WorkerExited``.
"""

from __future__ import annotations

import msgspec

__all__ = [
    "Configure",
    "CpuTime",
    "CpuTimeUsed",
    "Execute",
    "Failed",
    "Finished",
    "ForkRoot",
    "ForkWorker",
    "FromProcess",
    "Interrupt",
    "Interrupted",
    "Kill",
    "Killed",
    "Ready",
    "RootForked",
    "ToProcess",
    "WorkerExited",
    "WorkerForked",
]


class ForkRoot(msgspec.Struct, tag=True):
    """To the zygote, with one descriptor: fork a session root that is controlled over it and owns ``workspace``."""

    workspace: str


class ForkWorker(msgspec.Struct, tag=True):
    """To a root, with three descriptors: put a new worker with this channel, stdout and stderr in the place of all that runs.

    Attributes:
        workspace: Where the session's directory is now.
    """

    workspace: str


class Interrupt(msgspec.Struct, tag=True):
    """To a root: send SIGINT to the worker's process group, as a terminal does."""


class Kill(msgspec.Struct, tag=True):
    """To a root: kill every process of the session; answered as soon as none of them can run on."""


class CpuTime(msgspec.Struct, tag=True):
    """To a root: say how much CPU time the session's processes have used."""


class Configure(msgspec.Struct, tag=True, kw_only=True):
    """To a worker, before its first cell: enter the workspace. Not answered.

    Attributes:
        seed: For ``random`` and ``numpy.random``, in hexadecimal, for it may have any length; from the operating system when
            absent.
        show_value: Whether the value of a last expression is shown.
    """

    seed: str | None
    show_value: bool


class Execute(msgspec.Struct, tag=True):
    """To a worker: run a cell."""

    code: str


class Ready(msgspec.Struct, tag=True):
    """From the zygote, once: the modules are imported.

    Attributes:
        missing: Modules that were to be imported and are not installed.
    """

    missing: list[str]


class RootForked(msgspec.Struct, tag=True):
    """The answer to ``ForkRoot``.

    Attributes:
        pid: The process id of the root, in the server's pid namespace.
    """

    pid: int


class WorkerForked(msgspec.Struct, tag=True):
    """The answer to ``ForkWorker``: nothing that ran before runs any more.

    Attributes:
        pid: The process id of the worker, in the server's pid namespace.
        previous_status: The wait status of the worker before, None if there was none.
    """

    pid: int
    previous_status: int | None


class Interrupted(msgspec.Struct, tag=True):
    """The answer to ``Interrupt``: the signal has been sent."""


class Killed(msgspec.Struct, tag=True):
    """The answer to ``Kill``."""


class CpuTimeUsed(msgspec.Struct, tag=True):
    """The answer to ``CpuTime``."""

    seconds: float


class WorkerExited(msgspec.Struct, tag=True):
    """From a root, unasked: the worker is gone."""


class Finished(msgspec.Struct, tag=True):
    """From a worker: the cell has run.

    Attributes:
        exit_code: 0..255.
    """

    exit_code: int


class Failed(msgspec.Struct, tag=True):
    """The answer to a request that could not be carried out."""

    reason: str


ToProcess = ForkRoot | ForkWorker | Interrupt | Kill | CpuTime | Configure | Execute
FromProcess = Ready | RootForked | WorkerForked | Interrupted | Killed | CpuTimeUsed | WorkerExited | Finished | Failed
