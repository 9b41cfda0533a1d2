"""The wire messages between a client and the server: their one definition, imported by both sides.

A WebSocket text frame carries one message as JSON, a binary frame the same message as msgpack. The messages, their field names
and the error codes are OpenEnv's (package ``openenv`` 0.10, ``openenv.core.env_server.types``), so that its own client drives
this server unchanged; what OpenEnv has no field for travels in ``observation.metadata``.

This module depends on msgspec alone, so that importing it stays cheap.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, Any

import msgspec

__all__ = [
    "MAX_FRAME_BYTES",
    "REWARDS",
    "Close",
    "Error",
    "ErrorCode",
    "ErrorData",
    "FileContent",
    "Interrupt",
    "Mcp",
    "Metadata",
    "Observation",
    "ObservationData",
    "ObservationMessage",
    "Outcome",
    "Request",
    "Reset",
    "ResetOptions",
    "Response",
    "RichResult",
    "SessionState",
    "State",
    "StateMessage",
    "Step",
    "StepAction",
    "unknown_rewards",
]

MAX_FRAME_BYTES = 16 * 1024 * 1024
"""The largest request that the server reads, in bytes; a larger frame closes its connection with code 1009, a body is a 413."""

TIMEOUT_EXIT_CODE = 124
"""The exit code of a step that ran out of time, as GNU ``timeout`` reports it."""

INFRASTRUCTURE_EXIT_CODE = 255
"""The exit code of a step that this package, not the user's code, failed to run."""

REWARDS = ("safety", "quality")
"""The rewards that the server knows, those of OpenEnv's coding environment; they add up."""

Seconds = Annotated[float, msgspec.Meta(gt=0)]


class Outcome(StrEnum):
    """Why a step ended."""

    OK = "ok"
    ERROR = "error"
    TIMEOUT = "timeout"
    MEMORY = "memory"
    KILLED = "killed"
    INFRASTRUCTURE = "infrastructure"


class ErrorCode(StrEnum):
    """The ``code`` of an error message."""

    INVALID_JSON = "INVALID_JSON"
    UNKNOWN_TYPE = "UNKNOWN_TYPE"
    VALIDATION_ERROR = "VALIDATION_ERROR"
    EXECUTION_ERROR = "EXECUTION_ERROR"
    CAPACITY_REACHED = "CAPACITY_REACHED"
    FACTORY_ERROR = "FACTORY_ERROR"
    """Of OpenEnv's own server; ours has no factory."""
    SESSION_ERROR = "SESSION_ERROR"


class FileContent(msgspec.Struct, forbid_unknown_fields=True):
    """The content of a file that is no text.

    Attributes:
        base64: The bytes; as JSON, in base64.
    """

    base64: bytes


class ResetOptions(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What a reset may ask for; unknown keys are ignored, as OpenEnv's server ignores them.

    Attributes:
        seed: Seeds ``random`` and ``numpy.random``; drawn from the operating system when absent.
        episode_id: The name of the episode in ``state``; a fresh UUID when absent.
        step_timeout: Wall-clock limit of a step in seconds; the server's default when absent.
        cpu_timeout: CPU-time limit of a step in seconds, summed over all processes of the session; none when absent.
        max_output_chars: The most code points of stdout, and of stderr, that an observation carries.
        show_value: Whether the value of a last expression is shown, as a REPL does.
        backend: What executes the code; the server's default when absent.
        results: Whether the observation brings values and displays in all their formats.
        files: What the workspace holds at the start: text, or bytes, by the path below the working directory.
        rewards: What the reward of a step is the sum of, names of ``REWARDS``; the server's default when absent.
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

    def __post_init__(self) -> None:
        if reason := unknown_rewards(self.rewards or ()):
            raise ValueError(reason)


class StepAction(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One action.

    Attributes:
        code: The source text to run.
        timeout_s: Wall-clock limit of this step in seconds; the session's ``step_timeout`` when absent.
        metadata: Accepted and ignored, as every OpenEnv action has it.
    """

    code: str
    timeout_s: Seconds | None = None
    metadata: dict[str, Any] = {}


class Reset(msgspec.Struct, tag="reset", forbid_unknown_fields=True):
    """Begin an episode."""

    data: ResetOptions | None = None


class Step(msgspec.Struct, tag="step", forbid_unknown_fields=True):
    """Run code in the session."""

    data: StepAction


class State(msgspec.Struct, tag="state", forbid_unknown_fields=True):
    """Ask for the state of the episode."""


class Interrupt(msgspec.Struct, tag="interrupt", forbid_unknown_fields=True):
    """Interrupt the step that is running, as Ctrl-C does. Not answered: the step's own answer comes all the sooner.

    An extension of ours; without a running step it does nothing.
    """


class Close(msgspec.Struct, tag="close", forbid_unknown_fields=True):
    """End the session; answered by a WebSocket close with code 1000."""


class Mcp(msgspec.Struct, tag="mcp", forbid_unknown_fields=True):
    """A JSON-RPC 2.0 request of the Model Context Protocol."""

    data: dict[str, Any]


Request = Reset | Step | Interrupt | State | Close | Mcp


class RichResult(msgspec.Struct, kw_only=True):
    """A value or a display, in all the formats that it has.

    Attributes:
        texts: MIME type to text, binary formats in base64.
        documents: MIME type to JSON text.
        is_value: Whether it is the value of the cell, rather than something that it displayed.
    """

    texts: dict[str, str]
    documents: dict[str, str]
    is_value: bool


class Metadata(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What an observation says beyond OpenEnv's fields. The last three are there only when they say something.

    Attributes:
        outcome: Why the step ended.
        state_lost: Whether the namespace was lost, so that the next step begins with a fresh one.
        truncated: Whether to end the episode as truncated: the sandbox, not the policy, failed. OpenEnv has but ``done``.
        safety_violation: The pattern that the reward ``safety`` found in the code.
        results: Values and displays, if the episode wants them; in the observation's metadata alone.
    """

    outcome: Outcome
    state_lost: bool
    truncated: bool = False
    safety_violation: str | None = None
    results: list[RichResult] = []


class Observation(msgspec.Struct, kw_only=True):
    """What running an action showed.

    Attributes:
        stdout: Decoded standard output without NUL or lone surrogates, cut in the middle at ``max_output_chars``.
        stderr: Standard error, likewise.
        exit_code: 0..255 by the convention of shells: 0 ok, 1 exception, n of ``sys.exit(n)``, 124 timeout, 128 + signal.
        metadata: The rest.
    """

    stdout: str
    stderr: str
    exit_code: int
    metadata: Metadata


class ObservationData(msgspec.Struct, kw_only=True):
    """The payload of the answer to ``reset`` and ``step``."""

    observation: Observation
    reward: float
    done: bool
    metadata: Metadata


class ObservationMessage(msgspec.Struct, tag="observation"):
    """The answer to ``reset`` and ``step``."""

    data: ObservationData


class SessionState(msgspec.Struct, kw_only=True):
    """The state of an episode: its name, the number of steps taken since its reset, the exit code of the last one.

    That is 0 before the first: OpenEnv's client takes no null.
    """

    episode_id: str | None = None
    step_count: int = 0
    last_exit_code: int = 0


class StateMessage(msgspec.Struct, tag="state"):
    """The answer to ``state``."""

    data: SessionState


class McpMessage(msgspec.Struct, tag="mcp"):
    """The answer to ``mcp``: a JSON-RPC 2.0 response."""

    data: dict[str, Any]


class ErrorData(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The payload of an error message.

    Attributes:
        message: What was expected, what was found, what to do next.
        code: The kind of error.
        errors: With ``VALIDATION_ERROR``: one entry per fault, in pydantic's shape (``type``, ``loc``, ``msg``, ``input``).
        active_sessions: With ``CAPACITY_REACHED``.
        max_sessions: With ``CAPACITY_REACHED``.
    """

    message: str
    code: ErrorCode
    errors: list[dict[str, Any]] | None = None
    active_sessions: int | None = None
    max_sessions: int | None = None


class Error(msgspec.Struct, tag="error"):
    """The answer to a request that could not be carried out."""

    data: ErrorData


Response = ObservationMessage | StateMessage | McpMessage | Error


def unknown_rewards(names: Iterable[str]) -> str | None:
    """Say what is wrong with names of rewards; None if nothing is."""
    unknown = [name for name in names if name not in REWARDS]
    return f"unknown rewards: {', '.join(map(repr, unknown))}; known are {', '.join(REWARDS)}" if unknown else None
