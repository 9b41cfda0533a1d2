"""What the server, the zygote, the session roots and the workers say to each other.

Every channel is a socket pair that carries length-prefixed msgpack. The server is the only one that asks; what comes unasked is
``WorkerExited``, and, while a cell runs, ``Result``.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from coding_gym_server.display.messages import DisplayConfig

__all__ = [
    "MAX_RESULT_BYTES",
    "SUBMISSION",
    "Configure",
    "CpuTime",
    "CpuTimeUsed",
    "DisplayForked",
    "ExaminerForked",
    "Execute",
    "Failed",
    "Finished",
    "ForkDisplay",
    "ForkExaminer",
    "ForkRoot",
    "ForkWorker",
    "FromProcess",
    "Interrupt",
    "Interrupted",
    "Kill",
    "Killed",
    "Raised",
    "Ready",
    "Result",
    "RootForked",
    "Taken",
    "ToProcess",
    "WorkerExited",
    "WorkerForked",
]

MAX_RESULT_BYTES = 16 * 1024 * 1024
"""The most that the results of one cell have together."""


SUBMISSION = "submission"
"""The backend of roots whose workers hold submissions, and are spoken with by an examiner rather than by the server."""


class ForkRoot(msgspec.Struct, tag=True):
    """To the zygote, with one descriptor: fork a session root that is controlled over it and owns ``workspace``.

    Attributes:
        workspace: The session's directory.
        backend: What executes its cells.
        shared: A directory that it has in common with other sessions; None if there is none.
    """

    DESCRIPTORS: ClassVar[int] = 1

    workspace: str
    backend: str
    shared: str | None = None


class ForkDisplay(msgspec.Struct, tag=True):
    """To the zygote, with two descriptors: fork a display process that is controlled over the one and serves the other.

    Attributes:
        config: What the display is to be.
    """

    DESCRIPTORS: ClassVar[int] = 2

    config: DisplayConfig


class ForkExaminer(msgspec.Struct, tag=True):
    """To the zygote, with one descriptor: fork an examiner that is controlled over it.

    Attributes:
        directory: Where the workspaces of the submissions that it tests are.
    """

    DESCRIPTORS: ClassVar[int] = 1

    directory: str


class ForkWorker(msgspec.Struct, tag=True):
    """To a root, with three descriptors: put a new worker with this channel, stdout and stderr in the place of all that runs.

    Attributes:
        workspace: Where the session's directory is now.
    """

    DESCRIPTORS: ClassVar[int] = 3

    workspace: str


class Interrupt(msgspec.Struct, tag=True):
    """To a root: send SIGINT to the worker's process group, as a terminal does."""


class Kill(msgspec.Struct, tag=True):
    """To a root: kill every process of the session; answered as soon as none of them can run on."""


class End(msgspec.Struct, tag=True):
    """To a root of submissions: kill every process, and answer once all are gone."""


class CpuTime(msgspec.Struct, tag=True):
    """To a root: say how much CPU time the session's processes have used."""


class Configure(msgspec.Struct, tag=True, kw_only=True):
    """To a worker, before its first cell: enter the workspace. Not answered.

    Attributes:
        seed: For ``random`` and ``numpy.random``, in hexadecimal, for it may have any length; from the operating system when
            absent.
        show_value: Whether the value of a last expression is shown.
        directory: The working directory; the workspace's own when absent.
        display: The screen's name, as programs find it in ``DISPLAY``; none when absent.
        display_cookie: What programs must present to draw on it.
    """

    seed: str | None
    show_value: bool
    directory: str | None = None
    display: str | None = None
    display_cookie: bytes = b""


class Execute(msgspec.Struct, tag=True, omit_defaults=True):
    """To a worker: run a cell.

    Attributes:
        code: The source text.
        environment: Environment variables that are set while it runs.
        rich: Whether values and displays are reported as ``Result`` and an exception with ``Finished``, and not as text.
    """

    code: str
    environment: dict[str, str] = {}
    rich: bool = False


class Taken(msgspec.Struct, tag=True):
    """To a worker: what it had printed before a display has been read, and so the display is in its place."""


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


class ExaminerForked(msgspec.Struct, tag=True):
    """The answer to ``ForkExaminer``.

    Attributes:
        pid: The process id of the examiner, in the server's pid namespace.
    """

    pid: int


class DisplayForked(msgspec.Struct, tag=True):
    """The answer to ``ForkDisplay``.

    Attributes:
        pid: The process id of the display process, in the server's pid namespace.
    """

    pid: int


class WorkerForked(msgspec.Struct, tag=True):
    """The answer to ``ForkWorker``: nothing that ran before runs any more.

    Attributes:
        pid: The process id of the worker, in the server's pid namespace.
        previous_status: The wait status of the worker before, None if there was none.
        cpu_seconds: The CPU time that the session's processes have used before.
    """

    pid: int
    previous_status: int | None
    cpu_seconds: float


class Interrupted(msgspec.Struct, tag=True):
    """The answer to ``Interrupt``: the signal has been sent."""


class Killed(msgspec.Struct, tag=True):
    """The answer to ``Kill``."""


class Ended(msgspec.Struct, tag=True):
    """The answer to ``End``.

    Attributes:
        cpu_seconds: The CPU time that the processes of the root have used, those of all submissions together.
    """

    cpu_seconds: float


class CpuTimeUsed(msgspec.Struct, tag=True):
    """The answer to ``CpuTime``."""

    seconds: float


class WorkerExited(msgspec.Struct, tag=True):
    """From a root, unasked: the worker is gone.

    Attributes:
        status: Its wait status.
    """

    status: int


class Result(msgspec.Struct, tag=True):
    """From a worker, while a rich cell runs: a value or a display, in all the formats that it has. Answered by ``Taken``.

    Attributes:
        texts: MIME type to text, binary formats in base64.
        documents: MIME type to JSON text.
        is_value: Whether it is the value of the cell, rather than something that it displayed.
    """

    texts: dict[str, str]
    documents: dict[str, str]
    is_value: bool


class Raised(msgspec.Struct):
    """What a rich cell raised.

    Attributes:
        name: The name of the exception's class.
        value: The exception as text.
        traceback: The traceback as it is shown.
    """

    name: str
    value: str
    traceback: str


class Finished(msgspec.Struct, tag=True, omit_defaults=True):
    """From a worker: the cell has run.

    Attributes:
        exit_code: 0..255.
        raised: What a rich cell raised.
    """

    exit_code: int
    raised: Raised | None = None


class Failed(msgspec.Struct, tag=True):
    """The answer to a request that could not be carried out."""

    reason: str


ToProcess = ForkRoot | ForkDisplay | ForkExaminer | ForkWorker | Interrupt | Kill | End | CpuTime | Configure | Execute | Taken
FromProcess = (
    Ready
    | RootForked
    | DisplayForked
    | ExaminerForked
    | WorkerForked
    | Interrupted
    | Killed
    | Ended
    | CpuTimeUsed
    | WorkerExited
    | Result
    | Finished
    | Failed
)
