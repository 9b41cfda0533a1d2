"""The wire messages between a client and the server: their one definition, imported by both sides.

A WebSocket text frame carries one message as JSON, a binary frame the same message as msgpack. The messages, their field names
and the error codes are OpenEnv's (package ``openenv`` 0.10, ``openenv.core.env_server.types``), so that its own client drives
this server unchanged; what OpenEnv has no field for travels in ``observation.metadata``.

This module depends on msgspec alone, so that importing it stays cheap.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, Any, Literal

import msgspec

from coding_gym_server.grading.messages import FileContent, Graded, Submission

__all__ = [
    "DEFAULT_SCREEN",
    "MAX_FRAME_BYTES",
    "MAX_SCREEN_SIDE",
    "MIN_SCREEN_SIDE",
    "REWARDS",
    "Capture",
    "Click",
    "Close",
    "DoubleClick",
    "Drag",
    "Error",
    "ErrorCode",
    "ErrorData",
    "FileContent",
    "Frame",
    "Grade",
    "InputEvent",
    "Interrupt",
    "Key",
    "KeyDown",
    "KeyUp",
    "Look",
    "LookOptions",
    "Mcp",
    "Metadata",
    "MouseDown",
    "MouseUp",
    "Move",
    "Observation",
    "ObservationData",
    "ObservationMessage",
    "OnIdle",
    "Outcome",
    "Pixels",
    "Rectangle",
    "Request",
    "Reset",
    "ResetOptions",
    "Response",
    "RichResult",
    "Screen",
    "ScreenMessage",
    "Scroll",
    "SessionState",
    "State",
    "StateMessage",
    "Step",
    "StepAction",
    "Text",
    "VerdictMessage",
    "Wait",
    "Window",
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

DEFAULT_SCREEN = (640, 480)
"""Width and height of a session's screen in pixels, unless a reset says otherwise."""

MIN_SCREEN_SIDE, MAX_SCREEN_SIDE = 16, 4096

Seconds = Annotated[float, msgspec.Meta(gt=0)]
Side = Annotated[int, msgspec.Meta(ge=MIN_SCREEN_SIDE, le=MAX_SCREEN_SIDE)]
Coordinate = Annotated[int, msgspec.Meta(ge=0, lt=MAX_SCREEN_SIDE)]
Clicks = Annotated[int, msgspec.Meta(ge=-100, le=100)]
Button = Literal["left", "middle", "right"]


class Outcome(StrEnum):
    """Why a step ended."""

    OK = "ok"
    ERROR = "error"
    RUNNING = "running"
    """It has not: its program waits for events, and goes on with the next step."""
    TIMEOUT = "timeout"
    MEMORY = "memory"
    KILLED = "killed"
    INFRASTRUCTURE = "infrastructure"


class Capture(StrEnum):
    """When an observation has a screenshot."""

    AUTO = "auto"
    """When there is something on the screen."""
    ALWAYS = "always"
    NEVER = "never"


class OnIdle(StrEnum):
    """What becomes of a program that waits for events on a screen that has settled."""

    CLOSE = "close"
    """Its windows are closed, politely, and then firmly."""
    RETURN = "return"
    """The step returns, the program keeps running, and the next step goes on with it."""


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


class Move(msgspec.Struct, tag="move", tag_field="type", forbid_unknown_fields=True):
    """Move the pointer.

    Attributes:
        x: Pixels from the left edge of the screen.
        y: Pixels from the top edge.
    """

    x: Coordinate
    y: Coordinate


class Click(msgspec.Struct, tag="click", tag_field="type", forbid_unknown_fields=True, omit_defaults=True):
    """Move the pointer, press a button and release it."""

    x: Coordinate
    y: Coordinate
    button: Button = "left"


class DoubleClick(msgspec.Struct, tag="double_click", tag_field="type", forbid_unknown_fields=True, omit_defaults=True):
    """Click twice in quick succession."""

    x: Coordinate
    y: Coordinate
    button: Button = "left"


class Drag(msgspec.Struct, tag="drag", tag_field="type", forbid_unknown_fields=True, omit_defaults=True):
    """Press a button at one place and release it at another, with moves in between."""

    x: Coordinate
    y: Coordinate
    to_x: Coordinate
    to_y: Coordinate
    button: Button = "left"


class Scroll(msgspec.Struct, tag="scroll", tag_field="type", forbid_unknown_fields=True, omit_defaults=True):
    """Turn the wheel.

    Attributes:
        x: Where the pointer is.
        y: Likewise.
        dx: Clicks of the wheel to the right, negative to the left.
        dy: Clicks down, negative up.
    """

    x: Coordinate
    y: Coordinate
    dx: Clicks = 0
    dy: Clicks = 0


class MouseDown(msgspec.Struct, tag="mouse_down", tag_field="type", forbid_unknown_fields=True, omit_defaults=True):
    """Press a button where the pointer is, and hold it."""

    button: Button = "left"


class MouseUp(msgspec.Struct, tag="mouse_up", tag_field="type", forbid_unknown_fields=True, omit_defaults=True):
    """Release a button."""

    button: Button = "left"


class Key(msgspec.Struct, tag="key", tag_field="type", forbid_unknown_fields=True):
    """Press a key or a chord, and release it.

    Attributes:
        key: ``a``, ``Return``, ``Left``, ``F5``, ``ctrl+shift+s``: names of X keysyms or single characters, joined by ``+``.
    """

    key: Annotated[str, msgspec.Meta(min_length=1, max_length=100)]


class KeyDown(msgspec.Struct, tag="key_down", tag_field="type", forbid_unknown_fields=True):
    """Press a key, or all of a chord, and hold it."""

    key: Annotated[str, msgspec.Meta(min_length=1, max_length=100)]


class KeyUp(msgspec.Struct, tag="key_up", tag_field="type", forbid_unknown_fields=True):
    """Release a key, or all of a chord."""

    key: Annotated[str, msgspec.Meta(min_length=1, max_length=100)]


class Text(msgspec.Struct, tag="text", tag_field="type", forbid_unknown_fields=True):
    """Type text, of any Unicode characters; a newline is the Return key, a tab the Tab key."""

    text: Annotated[str, msgspec.Meta(max_length=10_000)]


class Wait(msgspec.Struct, tag="wait", tag_field="type", forbid_unknown_fields=True):
    """Do nothing for some time, between two other events."""

    seconds: Annotated[float, msgspec.Meta(ge=0, le=60)]


InputEvent = Move | Click | DoubleClick | Drag | Scroll | MouseDown | MouseUp | Key | KeyDown | KeyUp | Text | Wait
"""What a hand can do at a desk."""


class Rectangle(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A part of the screen, in pixels from its upper left corner."""

    x: Annotated[int, msgspec.Meta(ge=-MAX_SCREEN_SIDE, le=MAX_SCREEN_SIDE)]
    y: Annotated[int, msgspec.Meta(ge=-MAX_SCREEN_SIDE, le=MAX_SCREEN_SIDE)]
    width: Annotated[int, msgspec.Meta(gt=0, le=MAX_SCREEN_SIDE)]
    height: Annotated[int, msgspec.Meta(gt=0, le=MAX_SCREEN_SIDE)]


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
        screen: Width and height of the screen in pixels; the server's default when absent, no screen if null.
        window_manager: Whether a window manager runs on the screen, once there is a window.
        capture: When an observation has a screenshot; never when absent.
        on_idle: What becomes of a program that waits for events; it is closed when absent.
        frame_rate: Frames a second of the video that an observation brings; none when absent.
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
    frame_rate: Annotated[float, msgspec.Meta(gt=0, le=120)] | None = None

    def __post_init__(self) -> None:
        if reason := unknown_rewards(self.rewards or ()):
            raise ValueError(reason)


class StepAction(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One action.

    Attributes:
        code: The source text to run.
        timeout_s: Wall-clock limit of this step in seconds; the session's ``step_timeout`` when absent.
        capture_screenshot: Whether the observation has a screenshot; as the episode's ``capture`` says when absent.
        on_idle: What becomes of a program that waits for events; as the episode's when absent.
        inputs: What hands do at the screen, after the code has been run, or to the program that runs if there is no code.
        settle_s: The most seconds to wait for the screen to settle after the inputs.
        metadata: Accepted and ignored, as every OpenEnv action has it.
    """

    code: str
    timeout_s: Seconds | None = None
    capture_screenshot: bool | None = None
    on_idle: OnIdle | None = None
    inputs: list[InputEvent] = []
    settle_s: Annotated[float, msgspec.Meta(ge=0)] | None = None
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


class LookOptions(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What to look at.

    Attributes:
        region: A rectangle, or a window by its id; the whole screen when absent.
    """

    region: Rectangle | int | None = None


class Look(msgspec.Struct, tag="screen", forbid_unknown_fields=True):
    """Ask what is on the screen, now. An extension of ours."""

    data: LookOptions | None = None


class Grade(msgspec.Struct, tag="grade", tag_field="type", forbid_unknown_fields=True):
    """Grade a submission, in a process of its own, beside the connection's session. An extension of ours."""

    data: Submission


Request = Reset | Step | Interrupt | State | Close | Mcp | Look | Grade


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


class Pixels(msgspec.Struct, frozen=True):
    """A picture.

    Attributes:
        width: In pixels.
        height: In pixels.
        rgb: Red, green and blue, a byte each, row by row from the top; compressed with Zstandard.
    """

    width: int
    height: int
    rgb: bytes


class Frame(msgspec.Struct, frozen=True):
    """A picture of a video.

    Attributes:
        time: Seconds since the step began.
        pixels: What the screen showed from then on; as JSON, a PNG in base64.
    """

    time: float
    pixels: str | Pixels


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """A window that can be seen, without what a window manager draws around it.

    Attributes:
        id: Its X id.
        title: What it is called; empty if it is not.
        x: Of the upper left corner, in pixels from the left edge of the screen; may be negative.
        y: Likewise, from the top edge.
        width: In pixels.
        height: In pixels.
        stacking: 0 for the lowest; a window hides those with smaller numbers.
    """

    id: int
    title: str
    x: int
    y: int
    width: int
    height: int
    stacking: int


class Metadata(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What an observation says beyond OpenEnv's fields. All but the first two are there only when they say something.

    Attributes:
        outcome: Why the step ended.
        state_lost: Whether the namespace was lost, so that the next step begins with a fresh one.
        truncated: Whether to end the episode as truncated: the sandbox, not the policy, failed. OpenEnv has but ``done``.
        safety_violation: The pattern that the reward ``safety`` found in the code.
        results: Values and displays, if the episode wants them; in the observation's metadata alone.
        idle: ``returned`` or ``closed``: what became of a program that waited for events.
    """

    outcome: Outcome
    state_lost: bool
    truncated: bool = False
    safety_violation: str | None = None
    results: list[RichResult] = []
    idle: Literal["returned", "closed"] | None = None


class Observation(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What running an action showed.

    Attributes:
        stdout: Decoded standard output without NUL or lone surrogates, cut in the middle at ``max_output_chars``.
        stderr: Standard error, likewise.
        exit_code: 0..255 by the convention of shells: 0 ok, 1 exception, n of ``sys.exit(n)``, 124 timeout, 128 + signal.
        metadata: The rest.
        screenshot: The screen, if it is wanted; as JSON, a PNG in base64.
        frames: The video, if it is wanted: a frame for each change, no more than there should be a second.
    """

    stdout: str
    stderr: str
    exit_code: int
    metadata: Metadata
    screenshot: str | Pixels | None = None
    frames: list[Frame] = []


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


class Screen(msgspec.Struct, kw_only=True):
    """What is on the screen.

    Attributes:
        windows: The windows that can be seen, the lowest first.
        running: Whether a program of an earlier step still runs.
        screenshot: What was asked for; as JSON, a PNG in base64. Black if there is nothing on the screen.
    """

    windows: list[Window]
    running: bool
    screenshot: str | Pixels


class ScreenMessage(msgspec.Struct, tag="screen"):
    """The answer to ``screen``."""

    data: Screen


class VerdictMessage(msgspec.Struct, tag="verdict"):
    """The answer to ``grade``."""

    data: Graded


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


Response = ObservationMessage | StateMessage | ScreenMessage | VerdictMessage | McpMessage | Error


def unknown_rewards(names: Iterable[str]) -> str | None:
    """Say what is wrong with names of rewards; None if nothing is."""
    unknown = [name for name in names if name not in REWARDS]
    return f"unknown rewards: {', '.join(map(repr, unknown))}; known are {', '.join(REWARDS)}" if unknown else None
