"""Messages between the server, the zygote, the session roots and the workers.

Each channel is a socket pair that carries length-prefixed msgpack. Only the server sends requests. Unsolicited messages are
``WorkerExited``, ``FoundWidgets`` and, while a cell runs, ``CellResult``. ``zygote_messages.py`` has those of the zygote,
``program_messages.py`` those about programs beside a worker, ``system_messages.py`` those about the systems of sessions,
``library_messages.py`` those about libraries to import, ``snapshot_messages.py`` those about copies of workers,
``widget_messages.py`` those about widgets.
"""

from __future__ import annotations

import signal
from typing import ClassVar

import msgspec

from coding_gym_server.ipc.library_messages import ImportLibraries, LibrariesImported
from coding_gym_server.ipc.snapshot_messages import FIRST_SLOT, FromBranching, ToBranching
from coding_gym_server.ipc.system_messages import (
    CreateSystem,
    EnterOwnSystem,
    Joined,
    JoinSystem,
    Mounted,
    ShareSystem,
    SystemShared,
)
from coding_gym_server.ipc.widget_messages import FoundWidgets, RequestWidgets, WidgetsRequested
from coding_gym_server.ipc.zygote_messages import FromZygote, ToZygote

__all__ = [
    "CLOSE_SIGNAL",
    "EVENTS_SIGNAL",
    "MAX_RESULT_BYTES",
    "Ack",
    "CellResult",
    "CheckWaiting",
    "Configure",
    "CpuTime",
    "CpuTimeUsed",
    "DiskMeasured",
    "Execute",
    "Failed",
    "Finished",
    "ForkFileOpener",
    "ForkSpawner",
    "ForkWorker",
    "FromProcess",
    "HelperForked",
    "InterruptWorker",
    "Interrupted",
    "Kill",
    "Killed",
    "MeasureDisk",
    "MeasureUsage",
    "Raised",
    "ToProcess",
    "UsageMeasured",
    "Waiting",
    "WorkerExited",
    "WorkerForked",
]

MAX_RESULT_BYTES = 16 * 1024 * 1024
"""Maximum total size of the results of one cell, in bytes."""


class ForkWorker(msgspec.Struct, tag=True):
    """Request to a root: replace all running processes by a new worker.

    Passes the worker's channel, stdout, stderr and, if it has one, stdin.

    Attributes:
        slot: Number of its slot.
        has_stdin: Whether it has a stdin. Only submissions have.
    """

    slot: int = FIRST_SLOT
    has_stdin: bool = False

    @property
    def DESCRIPTORS(self) -> int:
        return 3 + self.has_stdin


class ForkSpawner(msgspec.Struct, tag=True):
    """Request to a root: start a process that starts programs. Passes the socket of its requests.

    Attributes:
        slot: Number of the slot whose programs it starts.
    """

    DESCRIPTORS: ClassVar[int] = 1

    slot: int = FIRST_SLOT


class ForkFileOpener(msgspec.Struct, tag=True):
    """Request to a root: start a process that opens files for the server. Passes the socket of its requests.

    Attributes:
        slot: Number of the slot whose programs have the same rights.
    """

    DESCRIPTORS: ClassVar[int] = 1

    slot: int = FIRST_SLOT


EVENTS_SIGNAL = signal.SIGWINCH
"""Signal by which a root interrupts a handler of GUI events that runs between cells, when SIGINT is ignored.

Programs that do not handle it ignore it.
"""

CLOSE_SIGNAL = signal.SIGRTMAX - 1
"""Signal by which a root interrupts a cell that keeps its windows, where SIGINT would not, or would end the worker."""


class InterruptWorker(msgspec.Struct, tag=True):
    """Request to a root: send SIGINT to the worker's process group, as a terminal does.

    Attributes:
        slot: Number of the worker's slot.
        is_closing: Whether its windows are being closed: then it is to survive, whatever its handler of SIGINT is.
        is_repeated: Whether SIGINT has had no effect.
    """

    slot: int = FIRST_SLOT
    is_closing: bool = False
    is_repeated: bool = False


class Kill(msgspec.Struct, tag=True):
    """Request to a root: kill all processes of a session except frozen copies of its worker.

    The response is sent once none of them executes any more.

    Attributes:
        slot: Number of the session's slot.
    """

    slot: int = FIRST_SLOT


class End(msgspec.Struct, tag=True):
    """Request to a submission root: kill all processes. The response is sent once all are reaped.

    Attributes:
        keeps_worker: Whether to spare the worker. It is killed with the others if they fork faster than they can be killed.
    """

    keeps_worker: bool = False


class CpuTime(msgspec.Struct, tag=True):
    """Request to a root: return the CPU time that a session's processes have used, without programs beside the worker.

    Attributes:
        slot: Number of the session's slot.
    """

    slot: int = FIRST_SLOT


class MeasureUsage(msgspec.Struct, tag=True):
    """Request to a session root: return the resource usage of all processes of a session.

    Attributes:
        slot: Number of the session's slot.
    """

    slot: int


class MeasureDisk(msgspec.Struct, tag=True):
    """Request to the root of a session whose changed files lie on a disk: return how many there are."""


class Configure(msgspec.Struct, tag=True, kw_only=True):
    """Configuration of a worker, sent before its first cell: enter the workspace. It has no response.

    Attributes:
        seed: Seed of ``random`` and ``numpy.random`` in hexadecimal, of any length; None draws one from the operating system.
        show_value: Whether the value of a last expression is shown.
        directory: The working directory. None for the one of the workspace.
        display: The display's name, the value of ``DISPLAY``, or None without a screen.
        display_cookie: The X authority cookie that programs must present to connect.
        variables: Environment variables, in addition to those of every session.
    """

    seed: str | None
    show_value: bool
    directory: str | None = None
    display: str | None = None
    display_cookie: bytes = b""
    variables: dict[str, str] = {}


class Execute(msgspec.Struct, tag=True, omit_defaults=True):
    """Request to a worker: run a cell.

    Attributes:
        code: The source text.
        environment: Environment variables that are set while it runs.
        rich: Whether values and displays are reported as ``CellResult`` and an exception in ``Finished``, instead of as text.
    """

    code: str
    environment: dict[str, str] = {}
    rich: bool = False


class Ack(msgspec.Struct, tag=True):
    """Response to ``CellResult``: all output that precedes the result has been read, so the cell may print again."""


class CheckWaiting(msgspec.Struct, tag=True):
    """Request to a root: report whether programs sleep without a timeout.

    Attributes:
        pids: Their process ids.
    """

    pids: list[int]


class Waiting(msgspec.Struct, tag=True):
    """Response to ``CheckWaiting``.

    Attributes:
        are_waiting: Whether all of them do.
    """

    are_waiting: bool


class WorkerForked(msgspec.Struct, tag=True):
    """Response to ``ForkWorker``: all previous processes have terminated.

    Attributes:
        pid: The process id of the worker, in the root's pid namespace.
        previous_status: Wait status of the previous worker, None if there was none.
        cpu_seconds: CPU time that the session's previous processes used.
    """

    pid: int
    previous_status: int | None
    cpu_seconds: float


class HelperForked(msgspec.Struct, tag=True):
    """Response to ``ForkSpawner`` and ``ForkFileOpener``. A process that fails to start closes its socket."""


class Interrupted(msgspec.Struct, tag=True):
    """Response to ``InterruptWorker``: the signal has been sent."""


class Killed(msgspec.Struct, tag=True):
    """Response to ``Kill``, ``KillCopy`` and ``CloseSlot``."""


class Ended(msgspec.Struct, tag=True):
    """Response to ``End``.

    Attributes:
        cpu_seconds: Total CPU time of the processes that the root has reaped, over all submissions.
        has_worker: Whether the worker is still there.
    """

    cpu_seconds: float
    has_worker: bool = False


class UsageMeasured(msgspec.Struct, tag=True):
    """Response to ``MeasureUsage``.

    Attributes:
        cpu_seconds: CPU time.
        memory_bytes: Memory, in which each process has its share of the pages that others have as well.
    """

    cpu_seconds: float
    memory_bytes: int


class DiskMeasured(msgspec.Struct, tag=True):
    """Response to ``MeasureDisk``.

    Attributes:
        size: Bytes of the disk that changed files take; None if they are in memory.
        count: Number of changed files and directories.
    """

    size: int | None
    count: int = 0


class CpuTimeUsed(msgspec.Struct, tag=True):
    """Response to ``CpuTime``.

    Attributes:
        seconds: CPU time that the session's processes have used.
    """

    seconds: float


class WorkerExited(msgspec.Struct, tag=True):
    """Unsolicited message of a root: a worker has exited.

    Attributes:
        status: Its wait status.
        slot: Number of its slot.
        peak_bytes: The most memory that it, or a child that it has waited for, had in use.
        shared_bytes: The most memory that its root had in use, of which it began with a copy.
    """

    status: int
    slot: int = FIRST_SLOT
    peak_bytes: int = 0
    shared_bytes: int = 0


class CellResult(msgspec.Struct, tag=True):
    """Message of a worker while a rich cell runs: a value or a display in all its formats. The response is ``Ack``.

    Attributes:
        texts: Text by MIME type; binary formats are base64.
        documents: JSON text by MIME type.
        is_value: Whether it is the value of the cell, rather than a display.
    """

    texts: dict[str, str]
    documents: dict[str, str]
    is_value: bool


class Raised(msgspec.Struct):
    """Exception that a rich cell raised.

    Attributes:
        name: The name of the exception's class.
        value: The exception's message.
        traceback: The formatted traceback.
    """

    name: str
    value: str
    traceback: str


class Finished(msgspec.Struct, tag=True, omit_defaults=True):
    """Response to ``Execute``: the cell has ended.

    Attributes:
        exit_code: Exit code, 0..255.
        raised: Exception that a rich cell raised, or None.
    """

    exit_code: int
    raised: Raised | None = None


class Failed(msgspec.Struct, tag=True):
    """Response to a request that failed.

    Attributes:
        reason: The cause, for error messages.
    """

    reason: str


ToProcess = (
    ToZygote
    | ForkWorker
    | ForkSpawner
    | ForkFileOpener
    | InterruptWorker
    | RequestWidgets
    | Kill
    | End
    | CpuTime
    | MeasureUsage
    | MeasureDisk
    | CheckWaiting
    | EnterOwnSystem
    | CreateSystem
    | JoinSystem
    | ShareSystem
    | ImportLibraries
    | Configure
    | Execute
    | Ack
    | ToBranching
)
FromProcess = (
    FromZygote
    | WorkerForked
    | HelperForked
    | Interrupted
    | WidgetsRequested
    | FoundWidgets
    | Killed
    | Ended
    | CpuTimeUsed
    | UsageMeasured
    | DiskMeasured
    | Mounted
    | Joined
    | SystemShared
    | LibrariesImported
    | Waiting
    | WorkerExited
    | CellResult
    | Finished
    | FromBranching
    | Failed
)
