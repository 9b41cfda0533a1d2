"""Observations: the result of a step."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

import msgspec

from coding_gym_server.protocol.screen import Frame, Pixels
from coding_gym_server.protocol.widgets import Widget

TIMEOUT_EXIT_CODE = 124
"""Exit code of a step that timed out, as reported by GNU ``timeout``."""


INFRASTRUCTURE_EXIT_CODE = 255
"""Exit code of a step that failed because of coding_gym, not the user's code."""


IdleState = Literal["returned", "closed", "animating"]
"""How a program was handled that waited for events, or drew without end."""


class Outcome(StrEnum):
    """Why a step ended."""

    OK = "ok"
    ERROR = "error"
    RUNNING = "running"
    """It has not ended: its program waits for events, and continues with the next step."""
    TIMEOUT = "timeout"
    MEMORY = "memory"
    KILLED = "killed"
    INFRASTRUCTURE = "infrastructure"


class RichResult(msgspec.Struct, kw_only=True):
    """A value or a display, in all its available formats.

    Attributes:
        texts: MIME type to text; binary formats in Base64.
        documents: MIME type to JSON text.
        is_value: Whether it is the value of the cell, rather than a display.
    """

    texts: dict[str, str]
    documents: dict[str, str]
    is_value: bool


class Metadata(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Metadata of an observation beyond OpenEnv's fields. All but the first two are omitted when they have their defaults.

    Attributes:
        outcome: Why the step ended.
        state_lost: Whether the namespace was lost, so that the next step starts with a fresh one.
        truncated: Whether the episode should end as truncated: the sandbox failed, not the policy. OpenEnv only has ``done``.
        safety_violation: The pattern that the ``safety`` reward found in the code.
        results: Values and displays, if the episode requests them; only in the observation's metadata.
        idle: ``returned`` or ``closed``: outcome for a program that waited for events; ``animating`` for a program that drew
            without end, and was handled in the same way after ``max_watch`` seconds.
    """

    outcome: Outcome
    state_lost: bool
    truncated: bool = False
    safety_violation: str | None = None
    results: list[RichResult] = []
    idle: IdleState | None = None


class Observation(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Result of an action.

    Attributes:
        stdout: Decoded standard output without NUL or lone surrogates, truncated in the middle at ``max_output_chars``.
        stderr: Standard error, decoded and truncated in the same way.
        exit_code: 0..255 by shell convention: 0 ok, 1 exception, n of ``sys.exit(n)``, 124 timeout, 128 + signal.
        metadata: Further information.
        screenshot: The screen, if requested; in JSON, a PNG in Base64.
        frames: The video, if requested: one frame per change, up to the frame rate.
        widgets: The visible widgets in tree order, if requested.
    """

    stdout: str
    stderr: str
    exit_code: int
    metadata: Metadata
    screenshot: str | Pixels | None = None
    frames: list[Frame] = []
    widgets: list[Widget] = []


class ObservationData(msgspec.Struct, kw_only=True):
    """Payload of the response to ``reset`` and ``step``."""

    observation: Observation
    reward: float
    done: bool
    metadata: Metadata


class SessionState(msgspec.Struct, kw_only=True):
    """State of an episode: its name, the number of steps since the reset, and the exit code of the last step.

    The exit code is 0 before the first step, because OpenEnv's client does not accept null.
    """

    episode_id: str | None = None
    step_count: int = 0
    last_exit_code: int = 0
