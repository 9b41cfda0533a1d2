"""Error messages."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Any

import msgspec

DECODING_ERRORS = (msgspec.MsgspecError, TypeError, UnicodeError, RecursionError)
"""Exceptions of decoding what others have written; msgspec before 0.22 raises ``TypeError`` for keys that cannot be hashed."""


_PLACE = re.compile(r" - at `(?:key in )?\$\.?(.*)`$", re.DOTALL)


def reason_of(error: Exception) -> str:
    """Return what is wrong with a value that was read, for people: its place, and what was expected there.

    Args:
        error: The error, of msgspec or another one, whose message is returned unchanged.
    """
    message = str(error)
    if not isinstance(error, msgspec.MsgspecError):
        return message
    place = _PLACE.search(message)
    reason = (message[: place.start()] if place else message).replace("`", "")
    reason = reason[:1].lower() + reason[1:]
    return f"{place[1]}: {reason}" if place and place[1] else reason


class ErrorCode(StrEnum):
    """The ``code`` of an error message."""

    INVALID_JSON = "INVALID_JSON"
    UNKNOWN_TYPE = "UNKNOWN_TYPE"
    VALIDATION_ERROR = "VALIDATION_ERROR"
    EXECUTION_ERROR = "EXECUTION_ERROR"
    CAPACITY_REACHED = "CAPACITY_REACHED"
    FACTORY_ERROR = "FACTORY_ERROR"
    """Sent only by OpenEnv's own server; coding_gym's has no factory."""
    SESSION_ERROR = "SESSION_ERROR"
    SNAPSHOT_REFUSED = "SNAPSHOT_REFUSED"
    """A snapshot cannot be taken or restored; ``errors`` has the reasons. A coding_gym extension."""


class ErrorData(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The payload of an error message.

    Attributes:
        message: What was expected, what was found, and how to proceed.
        code: Error code.
        errors: For ``VALIDATION_ERROR``: one entry per error, in pydantic's format (``type``, ``loc``, ``msg``, ``input``).
        active_sessions: For ``CAPACITY_REACHED``: number of active sessions.
        max_sessions: For ``CAPACITY_REACHED``: maximum number of sessions.
    """

    message: str
    code: ErrorCode
    errors: list[dict[str, Any]] | None = None
    active_sessions: int | None = None
    max_sessions: int | None = None


class ErrorMessage(msgspec.Struct, tag="error"):
    """Response to a request that failed."""

    data: ErrorData
