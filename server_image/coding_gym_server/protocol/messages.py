"""Requests and responses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

import msgspec

from coding_gym_server.protocol.doors import MAX_DOORS, MAX_PORT
from coding_gym_server.protocol.errors import ErrorMessage
from coding_gym_server.protocol.grading import FileContent, Graded, Seconds, Submission, TaskCheck
from coding_gym_server.protocol.inputs import InputEvent
from coding_gym_server.protocol.observations import ObservationData, SessionState
from coding_gym_server.protocol.processes import Variables
from coding_gym_server.protocol.screen import Capture, OnIdle, Screen, ScreenRequestOptions, Side

PROTOCOL_VERSION = 1
"""Version of coding_gym's extensions to OpenEnv's messages. Incremented with every change that makes a client and a server of
different versions incompatible; 0 stands for servers that report none."""

PROTOCOL_VERSION_HEADER = "Coding-Gym-Protocol"
"""WebSocket handshake header with the sender's version. Clients that send none, such as OpenEnv's, are not checked."""

MAX_FRAME_BYTES = 16 * 1024 * 1024
"""Maximum request size in bytes; a larger frame closes the connection with code 1009, a larger body gets a 413."""


ERROR_CODE_HEADER = "x-coding-gym-error"
"""HTTP response header with the ``ErrorCode``, for endpoints whose status codes belong to another protocol."""

REWARDS = ("safety", "quality")
"""Names of the available rewards, those of OpenEnv's coding environment; multiple rewards are summed."""


class ResetOptions(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Options of a reset; unknown keys are ignored, as in OpenEnv's server.

    Attributes:
        seed: Seed of ``random`` and ``numpy.random``; drawn from the operating system when absent.
        episode_id: Name of the episode in ``state``; a random UUID when absent.
        step_timeout: Wall-clock limit of a step in seconds; the server's default when absent.
        cpu_timeout: CPU-time limit of a step in seconds, summed over all processes of the session except those that clients
            started; none when absent.
        max_output_chars: Maximum number of code points of stdout, and of stderr, in an observation.
        show_value: Whether the value of a final expression is shown, as in a REPL.
        backend: Execution backend; the server's default when absent.
        results: Whether the observation includes values and displays in all their formats.
        files: Initial content of the workspace: text or bytes by path below the working directory.
        rewards: Names from ``REWARDS`` whose sum is the reward of a step; the server's default when absent.
        screen: Width and height of the screen in pixels; the server's default when absent, no screen if null.
        window_manager: Whether a window manager runs on the screen once there is a window.
        capture: When an observation includes a screenshot; never when absent.
        on_idle: Handling of a program that waits for events; it is closed when absent.
        max_watch: Seconds of continuous drawing after which a program counts as animating, and is handled like one that waits
            for events; half of the step's wall-clock limit when absent.
        frame_rate: Frame rate of the video in an observation, in frames per second; no video when absent.
        widgets: Whether the observation includes the widgets at the end of the step, or before windows are closed.
        doors: Ports of the session's loopback interface that lead to the client, which serves them through
            ``/sessions/{session}/doors``. A coding_gym extension.
        variables: Environment variables of all programs of the episode. A coding_gym extension.
    """

    seed: Annotated[int, msgspec.Meta(ge=0)] | None = None
    episode_id: Annotated[str, msgspec.Meta(max_length=255)] | None = None
    step_timeout: Seconds | None = None
    cpu_timeout: Seconds | None = None
    max_output_chars: Annotated[int, msgspec.Meta(ge=256)] | None = None
    show_value: bool = True
    backend: str | None = None
    results: bool = False
    files: dict[str, str | FileContent] = {}
    rewards: list[Annotated[str, msgspec.Meta(extra_json_schema={"enum": list(REWARDS)})]] | None = None
    screen: tuple[Side, Side] | msgspec.UnsetType | None = msgspec.UNSET
    window_manager: bool = False
    capture: Capture | None = None
    on_idle: OnIdle | None = None
    max_watch: Seconds | None = None
    frame_rate: Annotated[float, msgspec.Meta(gt=0, le=120)] | None = None
    widgets: bool = False
    doors: Annotated[list[Annotated[int, msgspec.Meta(ge=1, le=MAX_PORT)]], msgspec.Meta(max_length=MAX_DOORS)] = []
    variables: Variables = {}

    def __post_init__(self) -> None:
        if reason := unknown_rewards(self.rewards or ()):
            raise ValueError(reason)


class StepAction(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """An action: code to run and input events to send.

    Attributes:
        code: The source code to run.
        timeout_s: Wall-clock limit of this step in seconds; the session's ``step_timeout`` when absent.
        capture_screenshot: Whether the observation includes a screenshot; the episode's ``capture`` when absent.
        on_idle: Handling of a program that waits for events; the episode's when absent.
        max_watch: Seconds of continuous drawing after which a program counts as animating; the episode's when absent.
        inputs: Input events, sent after the code has run, or to the running program if there is no code.
        settle_s: Maximum time to wait for the screen to settle after the inputs, in seconds.
        stream: Whether output is also sent while the step runs, as ``output`` messages. A coding_gym extension of ``/ws``.
        metadata: Accepted and ignored; every OpenEnv action has it.
    """

    code: str
    timeout_s: Seconds | None = None
    capture_screenshot: bool | None = None
    on_idle: OnIdle | None = None
    max_watch: Seconds | None = None
    inputs: list[InputEvent] = []
    settle_s: Annotated[float, msgspec.Meta(ge=0)] | None = None
    stream: bool = False
    metadata: dict[str, Any] = {}


class ResetRequest(msgspec.Struct, tag="reset", forbid_unknown_fields=True):
    """Start an episode."""

    data: ResetOptions | None = None


class StepRequest(msgspec.Struct, tag="step", forbid_unknown_fields=True):
    """Run code in the session."""

    data: StepAction


class StateRequest(msgspec.Struct, tag="state", forbid_unknown_fields=True):
    """Request the state of the episode."""


class InterruptRequest(msgspec.Struct, tag="interrupt", forbid_unknown_fields=True):
    """Interrupt the running step, as Ctrl-C does. Not answered: the step itself returns earlier.

    A coding_gym extension; no effect without a running step.
    """


class CloseRequest(msgspec.Struct, tag="close", forbid_unknown_fields=True):
    """End the session; answered by a WebSocket close with code 1000."""


class McpRequest(msgspec.Struct, tag="mcp", forbid_unknown_fields=True):
    """A JSON-RPC 2.0 request of the Model Context Protocol."""

    data: dict[str, Any]


class ScreenRequest(msgspec.Struct, tag="screen", forbid_unknown_fields=True):
    """Request the current screen content. A coding_gym extension."""

    data: ScreenRequestOptions | None = None


class GradeRequest(msgspec.Struct, tag="grade", tag_field="type", forbid_unknown_fields=True):
    """Grade a submission in a dedicated process, independent of the connection's session. A coding_gym extension."""

    data: Submission


class CheckRequest(msgspec.Struct, tag="check", tag_field="type", forbid_unknown_fields=True):
    """Find out the mode that a task permits. The submission is its reference. A coding_gym extension."""

    data: Submission


class CloneRequest(msgspec.Struct, tag="clone", tag_field="type", forbid_unknown_fields=True):
    """Take a snapshot of the session, which continues unchanged. A coding_gym extension."""


class RestoreOptions(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Options of a restore.

    Attributes:
        snapshot: Id of the snapshot.
        seed: Seed of ``random`` and ``numpy.random``; the generators continue from their state when absent.
        release: Whether the snapshot ends, so that nothing needs to be copied.
    """

    snapshot: Annotated[str, msgspec.Meta(max_length=64)]
    seed: Annotated[int, msgspec.Meta(ge=0)] | None = None
    release: bool = False


class RestoreRequest(msgspec.Struct, tag="restore", forbid_unknown_fields=True):
    """Replace the session's state by that of a snapshot. A coding_gym extension."""

    data: RestoreOptions


LISTENERS_SUFFIX = ".listeners"
"""Suffix of the path of the Unix socket at which a server is handed listening sockets, after that of its own socket."""

MAX_FORKS = 64
"""Maximum number of forks of a session that exist at the same time, including forks of forks."""


class ForkOptions(msgspec.Struct, forbid_unknown_fields=True):
    """Options of a fork.

    Attributes:
        count: Number of forks.
    """

    count: Annotated[int, msgspec.Meta(ge=1, le=MAX_FORKS)]


class ForkRequest(msgspec.Struct, tag="fork", forbid_unknown_fields=True):
    """Let other sessions continue from the state of this one, which continues, too. A coding_gym extension."""

    data: ForkOptions


class ReleaseOptions(msgspec.Struct, forbid_unknown_fields=True):
    """Options of a release.

    Attributes:
        snapshots: Ids of snapshots; those that do not exist are ignored.
    """

    snapshots: list[Annotated[str, msgspec.Meta(max_length=64)]]


class ReleaseRequest(msgspec.Struct, tag="release", forbid_unknown_fields=True):
    """End snapshots. A coding_gym extension."""

    data: ReleaseOptions


Request = (
    ResetRequest
    | StepRequest
    | InterruptRequest
    | StateRequest
    | CloseRequest
    | McpRequest
    | ScreenRequest
    | GradeRequest
    | CheckRequest
    | CloneRequest
    | RestoreRequest
    | ForkRequest
    | ReleaseRequest
)


class ObservationMessage(msgspec.Struct, tag="observation"):
    """Response to ``reset`` and ``step``."""

    data: ObservationData


class OutputData(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Output since the last such message, without that of the end of the step.

    Attributes:
        stdout: Decoded standard output.
        stderr: Decoded standard error.
    """

    stdout: str = ""
    stderr: str = ""


class OutputMessage(msgspec.Struct, tag="output"):
    """Sent any number of times before the response to ``step``, if the step asks for it."""

    data: OutputData


class StateMessage(msgspec.Struct, tag="state"):
    """Response to ``state``."""

    data: SessionState


class ScreenMessage(msgspec.Struct, tag="screen"):
    """Response to ``screen``."""

    data: Screen


class VerdictMessage(msgspec.Struct, tag="verdict"):
    """Response to ``grade``."""

    data: Graded


class CheckMessage(msgspec.Struct, tag="check"):
    """Response to ``check``."""

    data: TaskCheck


class SessionData(msgspec.Struct):
    """A session.

    Attributes:
        session: Its id, by which HTTP requests address it; a secret.
    """

    session: str


class SessionMessage(msgspec.Struct, tag="session"):
    """First message of a connection to ``/ws?announce=1``: browsers cannot read the header that has the id."""

    data: SessionData


class SnapshotData(msgspec.Struct, kw_only=True):
    """A snapshot.

    Attributes:
        snapshot: Its id, which any session of the sandbox may restore.
        step_count: Number of steps of the episode when it was taken.
        nbytes: Size of the copied files in bytes. Memory is shared with the session until either changes it.
    """

    snapshot: str
    step_count: int
    nbytes: int


class SnapshotMessage(msgspec.Struct, tag="snapshot"):
    """Response to ``clone``."""

    data: SnapshotData


class ForksData(msgspec.Struct, kw_only=True):
    """Forks of a session that wait for their sessions.

    Attributes:
        snapshots: An id for each fork, for one ``restore`` of a connection to ``/ws?fork_of=ID``; until then, for ``release``.
        step_count: Number of steps of the episode so far.
    """

    snapshots: list[str]
    step_count: int


class ForksMessage(msgspec.Struct, tag="forks"):
    """Response to ``fork``."""

    data: ForksData


class ReleasedMessage(msgspec.Struct, tag="released"):
    """Response to ``release``."""


class McpMessage(msgspec.Struct, tag="mcp"):
    """Response to ``mcp``: a JSON-RPC 2.0 response."""

    data: dict[str, Any]


Response = (
    ObservationMessage
    | OutputMessage
    | StateMessage
    | ScreenMessage
    | SessionMessage
    | VerdictMessage
    | CheckMessage
    | SnapshotMessage
    | ForksMessage
    | ReleasedMessage
    | McpMessage
    | ErrorMessage
)


def unknown_rewards(names: Iterable[str]) -> str | None:
    """Return an error message for unknown reward names; None if all are known."""
    unknown = [name for name in names if name not in REWARDS]
    return f"unknown rewards: {', '.join(map(repr, unknown))}; known are {', '.join(REWARDS)}" if unknown else None
